#include "cli/keys.h"

#include <doctest/doctest.h>

#include <utility>

namespace tutti::cli {
namespace {

using Kind = Key::Kind;

std::vector<Kind> kinds(const std::vector<Key>& keys) {
  std::vector<Kind> kinds;
  for (const Key& key : keys) kinds.push_back(key.kind);
  return kinds;
}

TEST_CASE("letters and special keys are told apart, however the bytes are cut") {
  const std::string_view bytes = "q\033[A\r\177\303\244\033[6~\003";
  const std::vector<Kind> expected = {Kind::text, Kind::up,        Kind::enter,  Kind::backspace,
                                      Kind::text, Kind::page_down, Kind::control};
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    KeyDecoder decoder;
    std::vector<Key> keys = decoder.feed(bytes.substr(0, cut));
    for (Key& key : decoder.feed(bytes.substr(cut))) keys.push_back(std::move(key));
    CHECK(kinds(keys) == expected);
    CHECK(keys[4].text == "\303\244");
    CHECK(keys[6].text == "c");
    CHECK_FALSE(decoder.pending());
  }
}

TEST_CASE("Escape is a key when nothing follows") {
  KeyDecoder decoder;
  CHECK(decoder.feed("\033").empty());
  CHECK(decoder.pending());
  CHECK(kinds(decoder.give_up()) == std::vector{Kind::escape});
  CHECK(kinds(decoder.feed("\033\033[B")) == std::vector{Kind::escape, Kind::down});
  CHECK(kinds(decoder.feed("\033p")) == std::vector{Kind::escape, Kind::text});
}

TEST_CASE("sequences that mean nothing are dropped, and do not pile up") {
  KeyDecoder decoder;
  CHECK(kinds(decoder.feed("\033[1;5Cq")) == std::vector{Kind::text});
  CHECK(decoder.feed("\033[" + std::string(40, '1')).size() > 0);
  CHECK_FALSE(decoder.pending());
}

}  // namespace
}  // namespace tutti::cli
