#include "world/fault.h"

#include <algorithm>
#include <cstring>

// The linker makes these two; weak, since a program may have no places.
extern "C" {
[[gnu::weak]] extern tutti::CodePlace __start_tutti_places;
[[gnu::weak]] extern tutti::CodePlace __stop_tutti_places;
}

namespace tutti {

std::vector<CodePlace*> code_places() {
  std::vector<CodePlace*> places;
  for (CodePlace* place = &__start_tutti_places; place != &__stop_tutti_places; ++place)
    places.push_back(place);
  std::sort(places.begin(), places.end(),
            [](auto* a, auto* b) { return std::strcmp(a->name, b->name) < 0; });
  return places;
}

}  // namespace tutti
