#include "cluster/lines.h"

namespace tutti {

void LastLines::add(std::string_view line, LineEnd end) {
  if (!within_line_) {
    if (lines_.size() == kLines) lines_.pop_front();
    lines_.emplace_back(line.substr(0, kBytesPerLine));
    if (line.size() > kBytesPerLine) lines_.back() += "…";
  }
  within_line_ = end == LineEnd::continued;
}

}  // namespace tutti
