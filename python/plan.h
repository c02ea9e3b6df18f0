// Meshes, layouts and plans, for tutti.layout.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "fabric/plan.h"

struct PythonPlan {
  std::shared_ptr<const tutti::Plan> plan;
};

void bind_plan(nanobind::module_& module);
