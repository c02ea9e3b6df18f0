// Keys, out of the bytes that a terminal sends for them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::cli {

struct Key {
  enum class Kind : unsigned char {
    text,  // a letter, perhaps of several bytes
    control,
    up,
    down,
    left,
    right,
    page_up,
    page_down,
    home,
    end,
    enter,
    escape,
    backspace,
  };
  Kind kind = Kind::text;
  std::string text;  // of text the letter, of control the letter that was pressed with Ctrl

  bool operator==(const Key&) const = default;
  bool is(std::string_view letter) const { return kind == Kind::text && text == letter; }
};

class KeyDecoder {
 public:
  // The keys that are complete by now. Sequences that mean nothing to us are dropped.
  std::vector<Key> feed(std::string_view bytes);
  // Something has begun: an arrow, or Escape alone, if nothing follows soon.
  bool pending() const { return !left_.empty(); }
  // Nothing followed.
  std::vector<Key> give_up();

 private:
  std::string left_;
};

}  // namespace tutti::cli
