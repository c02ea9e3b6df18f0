// `tutti top` as lines of text.
#pragma once

#include <string>
#include <vector>

#include "cli/top_model.h"

namespace tutti::cli {

struct TopStyle {
  size_t columns = 80;
  size_t rows = 24;
  bool colour = false;
};

// Rows of the table that fit beside the rest.
size_t table_height(const TopStyle& style);
// A whole screen. The notice, if any, is in the last line.
std::vector<std::string> top_screen(const TopModel& model, const TopStyle& style,
                                    const std::string& notice);
// The header and every row, for a terminal that scrolls.
std::string top_text(const Look& look, const TopTable& table, const TopStyle& style);

}  // namespace tutti::cli
