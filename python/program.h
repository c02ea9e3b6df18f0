// Graphs that run, for tutti.nn.
#pragma once

#include <nanobind/nanobind.h>

void bind_program(nanobind::module_& module);
