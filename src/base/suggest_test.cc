#include "base/suggest.h"

#include <doctest/doctest.h>

#include <string>

namespace tutti {
namespace {

TEST_CASE("edit distance counts insertions, removals, replacements and swaps") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("train", "trian") == 1);
  CHECK(edit_distance("workers", "worker") == 1);
  CHECK(edit_distance("abcd", "abcd") == 0);
}

TEST_CASE("the nearest word is suggested, the first of equals") {
  constexpr std::string_view kWords[] = {"train", "trace", "status", "logs"};
  CHECK(suggest("trian", kWords) == "train");
  CHECK(suggest("stauts", kWords) == "status");
  CHECK(suggest("log", kWords) == "logs");
  constexpr std::string_view kTwins[] = {"cat", "bat"};
  CHECK(suggest("rat", kTwins) == "cat");
}

TEST_CASE("a word far from all of them gets no suggestion") {
  constexpr std::string_view kWords[] = {"train", "trace", "x"};
  CHECK(!suggest("deploy", kWords));
  CHECK(!suggest("y", kWords));
  CHECK(!suggest("", kWords));
  CHECK(!suggest(std::string(1000, 't'), kWords));
}

}  // namespace
}  // namespace tutti
