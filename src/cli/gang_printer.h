// Shows what a gang does: lines with their rank before them, or events as JSON lines.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/range_set.h"
#include "cli/output_sink.h"
#include "cluster/gang.h"
#include "cluster/lines.h"
#include "cluster/verdict.h"

namespace tutti::cli {

enum class PrintStyle : unsigned char {
  prefixed,  // "[2] line"; long lines in pieces that end and begin with …, the last line ended
  raw,       // the bytes as they came, line by line
  json,      // everything on standard output, as one JSON object per line
};

// Whom a job of the cluster is shown to.
class JobViewer : public GangListener {
 public:
  // Nobody reads what is shown any more.
  virtual bool broken() const = 0;
  // A line to people, not to tools.
  virtual void print_notice(std::string_view text) = 0;
  // Some of what these printed on that host may not have been shown, nor will be.
  virtual void on_output_missing(const std::string& host, const RangeSet& processes,
                                 const Error& why) = 0;
  // What it prints is not for us to read.
  virtual void on_denied(const Error& why) { print_notice(why.text()); }
};

// That, in words for people.
std::string missing_output_text(const std::string& host, const RangeSet& processes,
                                std::span<const std::string> labels, const Error& why);

class GangPrinter : public JobViewer {
 public:
  // Ranks are called by their numbers where there are no other labels.
  GangPrinter(uint32_t ranks, PrintStyle style, OutputSink& output, OutputSink& error,
              std::vector<std::string> labels = {});

  void on_started(uint32_t rank, pid_t pid, bool was_spare) override;
  Task<Result<void>> on_output(uint32_t rank, RankStream stream, Bytes bytes) override;
  void on_exit(uint32_t rank, const RankReport& report) override;
  void on_ending(const GangReport& so_far) override;
  void on_hurried() override;
  void on_output_missing(const std::string& host, const RangeSet& processes,
                         const Error& why) override;

  bool broken() const override { return output_.broken() || error_.broken(); }
  // What each rank printed last.
  std::span<const RankTail> tails() const { return tails_; }
  void print_event(const Json& event);
  void print_notice(std::string_view text) override;
  // What comes next begins on a line of its own, below one that would have been written over.
  void end_live_line();
  // Of ranks whose output did not end: somebody holds on to it, or it was given up.
  void print_held_exits();

 private:
  struct RankOutput {
    LineSplitter splitter;
    std::string raw;           // the beginning of a line, when printing raw
    bool within_line = false;  // the last piece was continued
    bool ended = false;
    bool life_over = false;  // what comes next, if only its end, is of another life of the rank
  };

  OutputSink& sink_of(RankStream stream) {
    return style_ == PrintStyle::json || stream == RankStream::output ? output_ : error_;
  }
  RankOutput& state_of(uint32_t rank, RankStream stream) {
    return states_[2 * rank + (stream == RankStream::error ? 1 : 0)];
  }
  bool all_output_ended(uint32_t rank) const {
    return states_[2 * rank].ended && states_[2 * rank + 1].ended;
  }
  // An event of this rank, by its number and, where it has one, its name.
  Json event_of(uint32_t rank, std::string_view what) const;
  void print_held_exit(uint32_t rank);
  LastLines& tail_of(uint32_t rank, RankStream stream) {
    return stream == RankStream::output ? tails_[rank].output : tails_[rank].error;
  }
  void print_line(uint32_t rank, RankStream stream, std::string_view text, LineEnd end);
  void print_raw(RankOutput& state, OutputSink& sink, std::string_view bytes);

  PrintStyle style_;
  OutputSink& output_;
  OutputSink& error_;
  bool live_line_ = false;  // on a terminal: the last line ended with \r
  std::vector<RankOutput> states_;
  std::vector<RankTail> tails_;
  std::vector<Json> held_exits_;     // of each rank, null when there is none
  std::vector<std::string> labels_;  // of ranks, or none
  std::vector<std::string> plain_prefixes_;
  std::vector<std::string> colour_prefixes_;
};

}  // namespace tutti::cli
