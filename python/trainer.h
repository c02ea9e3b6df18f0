// Training on one process, for tutti.Trainer and tutti.data.
#pragma once

#include <nanobind/nanobind.h>

void bind_trainer(nanobind::module_& module);
