// Messages between ranks, and one-sided reads and writes, for tutti.fabric.
#pragma once

#include <nanobind/nanobind.h>

void bind_parcel(nanobind::module_& module);
