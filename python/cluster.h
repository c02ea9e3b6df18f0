// tutti.Cluster, as far as it is C++; python/tutti/cluster.py is the rest.
#pragma once

#include <nanobind/nanobind.h>

void bind_cluster(nanobind::module_& module);
