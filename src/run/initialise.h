// What weights are before the first step: a function of the seed, the name in files and the place
// within the tensor of that name, so that neither stacking, threads nor machines change a bit.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "compile/model.h"
#include "world/team.h"

namespace tutti {

// Elements from `first` on of the tensor that files call `file_name`.
void initial_values(const Init& init, int64_t seed, std::string_view file_name, int64_t first,
                    std::span<float> values);

// All elements of a parameter of f32, stacked or not, by all threads of the team.
void initialise(const Parameter& parameter, int64_t seed, std::span<float> values, Team& team);

}  // namespace tutti
