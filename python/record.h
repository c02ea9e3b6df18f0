// The flight recorder's part of tutti._core.
#pragma once

#include <nanobind/nanobind.h>

void bind_record(nanobind::module_& module);
