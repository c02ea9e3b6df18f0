#include "world/real/real_world.h"

#include <sys/utsname.h>

namespace tutti {

namespace {

std::string own_host_name() {
  utsname names;
  uname(&names);
  return names.nodename;
}

}  // namespace

RealWorld::RealWorld(LoopOptions options) : loop_(options), host_name_(own_host_name()) {}

}  // namespace tutti
