// Bytes from a pipe as lines, in bounded memory.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace tutti {

// A longer line is handed out in pieces of this size, or a little less: no character is cut.
constexpr size_t kLongestLine = 64 << 10;

// How many of the bytes are whole characters: fewer than all when the last one, in UTF-8, is cut.
size_t whole_characters(std::string_view text);

enum class LineEnd : unsigned char {
  newline,    // a whole line, or its last piece
  continued,  // the line was too long: its next piece follows
  missing,    // the stream ended within the line
};

// Splits at \n, \r\n, and at a lone \r, with which progress bars overwrite themselves: each state
// of the bar is a line. Lines are given without their ends.
class LineSplitter {
 public:
  // line(std::string_view text, LineEnd end); the text lives during the call only.
  template <class Line>
  void feed(std::string_view bytes, Line&& line);
  // At the end of the stream.
  template <class Line>
  void finish(Line&& line);

 private:
  template <class Line>
  void end_line(std::string_view tail, Line& line);
  template <class Line>
  void keep(std::string_view tail, Line& line);

  std::string pending_;        // the beginning of a line
  bool after_return_ = false;  // the last byte was \r; an \n now belongs to it
  bool within_line_ = false;   // pieces of the line were handed out already
};

// The last lines somebody printed, for telling why it died.
class LastLines {
 public:
  static constexpr size_t kLines = 12;
  static constexpr size_t kBytesPerLine = 512;  // of a longer line its beginning is kept

  void add(std::string_view line, LineEnd end);
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  std::deque<std::string> lines_;
  bool within_line_ = false;
};

template <class Line>
void LineSplitter::feed(std::string_view bytes, Line&& line) {
  if (after_return_ && !bytes.empty()) {
    after_return_ = false;
    if (bytes.front() == '\n') bytes.remove_prefix(1);
  }
  size_t start = 0;
  size_t newline = bytes.find('\n');
  while (start < bytes.size()) {
    if (newline < start) newline = bytes.find('\n', start);
    const std::string_view ahead = bytes.substr(start, newline - start);
    const size_t stop = ahead.find('\r');
    if (stop == std::string_view::npos && newline == std::string_view::npos)
      return keep(ahead, line);
    const bool returned = stop != std::string_view::npos;
    const std::string_view tail = ahead.substr(0, stop);
    start += tail.size() + 1;
    const bool joined = returned && start == newline;  // \r\n
    if (joined) ++start;
    // A bar begins with \r to return to the margin: nothing stands before it.
    const bool nothing = returned && tail.empty() && pending_.empty() && !within_line_;
    if (nothing && !joined) continue;
    after_return_ = returned && !joined && start == bytes.size();
    end_line(tail, line);
  }
}

template <class Line>
void LineSplitter::finish(Line&& line) {
  if (!pending_.empty() || within_line_) line(std::string_view(pending_), LineEnd::missing);
  pending_.clear();
  within_line_ = false;
}

template <class Line>
void LineSplitter::end_line(std::string_view tail, Line& line) {
  if (!pending_.empty() || tail.size() > kLongestLine) {
    keep(tail, line);
    line(std::string_view(pending_), LineEnd::newline);
    pending_.clear();
  } else {
    line(tail, LineEnd::newline);
  }
  within_line_ = false;
}

template <class Line>
void LineSplitter::keep(std::string_view tail, Line& line) {
  while (pending_.size() + tail.size() > kLongestLine) {
    const size_t room = kLongestLine - pending_.size();
    pending_.append(tail.substr(0, room));
    tail.remove_prefix(room);
    const size_t whole = whole_characters(pending_);
    line(std::string_view(pending_).substr(0, whole), LineEnd::continued);
    within_line_ = true;
    pending_.erase(0, whole);
  }
  pending_.append(tail);
}

}  // namespace tutti
