// Models, for tutti.nn: graphs built operation by operation.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "compile/type.h"

// Dimensions as Python has them: [("batch", 16), ("time", 256)].
using PythonDims = std::vector<std::pair<std::string, int64_t>>;

tutti::Dims dims_of(const PythonDims& dims);
PythonDims python_dims(const tutti::Dims& dims);
// Raises when nothing computes with this kind of number.
tutti::DType dtype_of(const std::string& name);

void bind_model(nanobind::module_& module);
