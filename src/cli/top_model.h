// What a person looks at in `tutti top`, and what keys make of it. Knows no terminal.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "cli/keys.h"
#include "cli/top_tables.h"

namespace tutti::cli {

enum class Level : unsigned char { jobs, roles, hosts, processes };
constexpr size_t kLevels = 4;

// What a key asks for beyond the model.
struct TopAction {
  enum class Kind : unsigned char { none, quit, suspend, look, kill_job, end_processes };
  Kind kind = Kind::none;
  uint64_t job = 0;
  RangeSet processes;
};

class TopModel {
 public:
  // Of this job from the start, or (0) of all.
  explicit TopModel(uint64_t job = 0);

  void take(Look look);
  // How many rows of the table can be seen.
  void set_height(size_t rows);
  TopAction press(const Key& key);
  // What the next look shall be at.
  Wish wish() const;

  Level level() const { return level_; }
  const Look& look() const { return look_; }
  bool looked() const { return looked_; }
  bool paused() const { return paused_; }
  bool help() const { return help_; }
  // Sorted and filtered.
  const TopTable& table() const { return table_; }
  size_t selected() const { return selected_; }
  size_t first() const { return first_; }  // row on the screen
  size_t sorted_by() const { return sorts_[static_cast<size_t>(level_)].column; }
  bool descending() const { return sorts_[static_cast<size_t>(level_)].descending; }
  const std::string& filter() const { return filter_; }
  bool filtering() const { return filtering_; }
  // "jobs", "3 train", "worker", "node1": where we are.
  std::vector<std::string> trail() const;
  // What waits for a yes.
  std::optional<std::string> question() const;

 private:
  struct Sort {
    size_t column = 0;
    bool descending = false;
  };
  struct Frame {  // to come back to
    std::string selected;
    std::string filter;
  };
  void rebuild();
  TopAction press_in_filter(const Key& key);
  TopAction press_letter(const std::string& letter);
  void move(int64_t by);
  void choose_column(int by);
  TopAction enter();
  TopAction leave();
  void ask_to_end();
  const TopRow* row() const {
    return selected_ < table_.rows.size() ? &table_.rows[selected_] : nullptr;
  }

  Look look_;
  bool looked_ = false;
  Level level_ = Level::jobs;
  uint64_t job_ = 0;
  std::string role_;
  uint32_t host_ = 0;
  RangeSet only_;  // processes of a row that was unfolded
  bool folded_ = true;
  bool ended_jobs_ = false;
  std::array<Sort, kLevels> sorts_{{{0, true}, {}, {}, {}}};
  std::vector<Frame> frames_;
  TopTable table_;
  std::string key_;  // of the selected row
  size_t selected_ = 0;
  size_t first_ = 0;
  size_t height_ = 1;
  std::string filter_;
  bool filtering_ = false;
  bool paused_ = false;
  bool help_ = false;
  std::optional<TopAction> asked_;
};

}  // namespace tutti::cli
