// What python/decoder.cc adds to tutti._core.
#pragma once

#include <nanobind/nanobind.h>

void bind_decoder(nanobind::module_& module);
