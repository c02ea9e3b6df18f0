// Accounts of this host: who people are to the kernel.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace tutti {

struct Account {
  std::string name;
  uid_t user = 0;
  gid_t group = 0;
  std::string home;
  std::string shell;
};

// By its name, or as "uid1000" by its number. Code::not_found when there is none.
Result<Account> account_named(const std::string& name);
// Of the user this process acts as; one that nobody knows is called "uid1000".
Account own_account();

}  // namespace tutti
