// Vaults and replicas, for tutti.vault.
#pragma once

#include <nanobind/nanobind.h>

void bind_vault(nanobind::module_& module);
