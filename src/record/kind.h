// What an event is about: a name and the labels of its two fields, registered once per process.
//
//   const RecordKind kSend("wire.send", "bytes", "peer");   // at file scope
//
// Making one takes a lock and finds an equal name if there is one; using one costs nothing. Kinds
// live as long as the process. Any thread may make one at any time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class RecordKind {
 public:
  // Of equal names the first one's labels count. Text past kMaxTextBytes in all is cut. When
  // kMaxKinds are taken, further names share the kind called "unnamed".
  explicit RecordKind(std::string_view name, std::string_view a_label = "",
                      std::string_view b_label = "");

  // What stands for names that found no place.
  static RecordKind unnamed() { return RecordKind(0); }

  // Where a recording's table of kinds has it; 0 is "unnamed".
  uint32_t index() const { return index_; }

  static constexpr uint32_t kMaxKinds = 4096;   // names are few and chosen by programmers
  static constexpr size_t kMaxTextBytes = 104;  // one entry of a recording's table

  struct Names {
    std::string name;
    std::string a_label;
    std::string b_label;
  };
  // All kinds made until now from the given index on, in order of their index.
  static std::vector<Names> names_from(uint32_t index);

 private:
  explicit RecordKind(uint32_t index) : index_(index) {}
  uint32_t index_;
};

// The beginning of the text that has at most so many bytes and ends between characters of UTF-8.
std::string_view cut_text(std::string_view text, size_t most_bytes);

}  // namespace tutti
