// Sharded graphs, for looking at them.
#pragma once

#include <nanobind/nanobind.h>

void bind_shard(nanobind::module_& module);
