// The fabric, for tutti.fabric.
#pragma once

#include <nanobind/nanobind.h>

void bind_fabric(nanobind::module_& module);
