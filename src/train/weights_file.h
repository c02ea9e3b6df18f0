// Parameters out of a file of weights, wherever they are wanted.
#pragma once

#include "compile/model.h"
#include "train/safetensors.h"

namespace tutti {

// Layer by layer if it is stacked: files have a tensor for each. `to` has room for all of it.
Result<void> read_parameter(const SafetensorsFile& file, const Parameter& parameter, std::byte* to);

}  // namespace tutti
