// "Did you mean …?": the nearest of the words that would have been right.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace tutti {

// How many letters to insert, remove, replace or swap with their neighbour turn one word into the
// other.
size_t edit_distance(std::string_view from, std::string_view to);

// The candidate nearest to `word`, if it is near enough to be a slip; the first of equals.
std::optional<std::string_view> suggest(std::string_view word,
                                        std::span<const std::string_view> candidates);

}  // namespace tutti
