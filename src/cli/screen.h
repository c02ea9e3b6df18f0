// Lines on a terminal: what changed since the last frame, as bytes to write at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::cli {

// How wide text is on a terminal: a column per letter.
size_t width_of(std::string_view text);
// At most so many columns, with … where something was cut off.
std::string clipped(std::string_view text, size_t columns);
// With spaces to the wanted width, and clipped to it.
std::string padded(std::string_view text, size_t columns, bool right = false);
// Text of others, without what could move the cursor or change the terminal.
std::string harmless(std::string_view text);

class Screen {
 public:
  // The next frame; each line is to fit, and switches off what it switched on.
  std::string frame(const std::vector<std::string>& lines);
  // The terminal shows something else: the next frame is drawn whole.
  void forget() { shown_.reset(); }

 private:
  std::optional<std::vector<std::string>> shown_;
};

}  // namespace tutti::cli
