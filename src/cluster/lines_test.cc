#include "cluster/lines.h"

#include <doctest/doctest.h>

#include <vector>

namespace tutti {
namespace {

using Lines = std::vector<std::string>;

// "+" marks a continued piece, "!" a line without an end.
Lines split(const std::vector<std::string_view>& chunks) {
  Lines lines;
  LineSplitter splitter;
  const auto note = [&](std::string_view text, LineEnd end) {
    const char* mark = end == LineEnd::continued ? "+" : end == LineEnd::missing ? "!" : "";
    lines.push_back(std::string(text) + mark);
  };
  for (const std::string_view chunk : chunks) splitter.feed(chunk, note);
  splitter.finish(note);
  return lines;
}

TEST_CASE("lines are whole however the bytes arrive") {
  CHECK(split({"one\ntwo\n"}) == Lines{"one", "two"});
  CHECK(split({"o", "ne\nt", "", "wo", "\n"}) == Lines{"one", "two"});
  CHECK(split({"\n\na\n"}) == Lines{"", "", "a"});
}

TEST_CASE("a last line without an end is told as such") {
  CHECK(split({"one\ntwo"}) == Lines{"one", "two!"});
  CHECK(split({}).empty());
}

TEST_CASE("a return ends a line as a newline does, and the two together are one end") {
  CHECK(split({"one\r\ntwo\r\n"}) == Lines{"one", "two"});
  CHECK(split({"one\r", "\ntwo\r", "three\n"}) == Lines{"one", "two", "three"});
  CHECK(split({"\r10%\r20%\r", "30%\n"}) == Lines{"10%", "20%", "30%"});
  CHECK(split({"\r\n", "\r", "\n"}) == Lines{"", ""});
  CHECK(split({"a\n\r\rb\r"}) == Lines{"a", "b"});
}

TEST_CASE("every way to cut the bytes gives the same lines") {
  const std::string text = "a\r\n\nbc\rd\r\r\n\ne\n\rf";
  const Lines whole = split({text});
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      const std::string_view view = text;
      CHECK(split({view.substr(0, i), view.substr(i, j - i), view.substr(j)}) == whole);
    }
  }
}

TEST_CASE("a line that is too long comes in pieces, in bounded memory") {
  const std::string half(kLongestLine / 2 + 1, 'x');
  const Lines lines = split({half, half, half, "y\nz\n"});
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == std::string(kLongestLine, 'x') + "+");
  CHECK(lines[1] == std::string(3 * half.size() - kLongestLine, 'x') + "y");
  CHECK(lines[2] == "z");
}

TEST_CASE("no character is cut") {
  for (const std::string character : {"é", "€", "𝄞"}) {
    std::string text(kLongestLine - 1, 'x');
    text += character + "y";
    const Lines lines = split({text, "\n"});
    CHECK(lines == Lines{std::string(kLongestLine - 1, 'x') + "+", character + "y"});
    LastLines last;
    last.add(std::string(LastLines::kBytesPerLine - 1, 'x') + character, LineEnd::newline);
    CHECK(last.lines().back() == std::string(LastLines::kBytesPerLine - 1, 'x') + "…");
  }
  const std::string binary(kLongestLine + 1, '\x80');  // no UTF-8 at all
  CHECK(split({binary}) == Lines{std::string(kLongestLine, '\x80') + "+", "\x80!"});
}

TEST_CASE("a line of exactly the limit is whole") {
  const std::string longest(kLongestLine, 'x');
  CHECK(split({longest, "\n"}) == Lines{longest});
  CHECK(split({longest + "\n"}) == Lines{longest});
  CHECK(split({longest + "y"}) == Lines{longest + "+", "y!"});
}

TEST_CASE("the last lines are the last, each cut to its beginning") {
  LastLines last;
  for (int i = 0; i < 100; ++i) last.add(std::to_string(i), LineEnd::newline);
  last.add(std::string(LastLines::kBytesPerLine + 1, 'x'), LineEnd::continued);
  last.add("the rest of it", LineEnd::newline);
  REQUIRE(last.lines().size() == LastLines::kLines);
  CHECK(last.lines().front() == "89");
  CHECK(last.lines().back() == std::string(LastLines::kBytesPerLine, 'x') + "…");
}

}  // namespace
}  // namespace tutti
