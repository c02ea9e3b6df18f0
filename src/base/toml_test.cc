#include "base/toml.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace tutti {
namespace {

TomlReader reader_of(std::string_view text) {
  auto reader = TomlReader::parse(text, "c.toml");
  REQUIRE(reader);
  return *std::move(reader);
}

TEST_CASE("values of every type are read") {
  auto toml = reader_of(R"(
    flag = true
    port = 8080
    share = 0.25
    whole_share = 2
    name = "east"
    timeout = "2m30s"
    pause = 0.5
    memory = "1.5GiB"
    page = 4096
    hosts = ["a", "b"]
  )");
  bool flag = false;
  uint16_t port = 0;
  double share = 0, whole_share = 0;
  std::string name;
  Duration timeout{}, pause{};
  uint64_t memory = 0, page = 0;
  std::vector<std::string> hosts;
  CHECK(toml.read("flag", flag));
  CHECK(toml.read("port", port));
  CHECK(toml.read("share", share));
  CHECK(toml.read("whole_share", whole_share));
  CHECK(toml.require("name", name));
  CHECK(toml.read("timeout", timeout));
  CHECK(toml.read("pause", pause));
  CHECK(toml.read_bytes("memory", memory));
  CHECK(toml.read_bytes("page", page));
  CHECK(toml.read("hosts", hosts));
  CHECK(toml.finish());
  CHECK(flag);
  CHECK(port == 8080);
  CHECK(share == 0.25);
  CHECK(whole_share == 2.0);
  CHECK(name == "east");
  CHECK(timeout == 150s);
  CHECK(pause == 500ms);
  CHECK(memory == 1536_MiB);
  CHECK(page == 4096);
  CHECK(hosts == std::vector<std::string>{"a", "b"});
}

TEST_CASE("an absent key leaves the value as it was") {
  auto toml = reader_of("");
  int port = 7;
  CHECK(!toml.read("port", port));
  CHECK(port == 7);
  CHECK(toml.finish());
}

TEST_CASE("a syntax error names file, line and column") {
  const auto parsed = TomlReader::parse("a = 1\nb = = 2\n", "c.toml");
  REQUIRE(!parsed);
  CHECK(parsed.error().code() == Code::invalid);
  CHECK(parsed.error().text().starts_with("c.toml:2:5: "));
}

TEST_CASE("a broken file is an error, never a crash") {
  for (const auto* text :
       {"[\n", "[,", "[[\n", "a =", "=", "a.", "[a", "\"", "a = '", "a = [", "a = {", "a = 0x",
        "a = 1979-", "\xff", "[a]\n[a]\n", "a = 1\na = 2\n"}) {
    CAPTURE(text);
    CHECK(!TomlReader::parse(text, "c.toml"));
  }
  const std::string deep(10'000, '[');
  CHECK(!TomlReader::parse("a = " + deep, "c.toml"));
}

TEST_CASE("an unknown key is reported with its line and the key that was meant") {
  auto toml = reader_of("port = 1\n\nprot = 2\n[tls]\ncret = \"x\"\n[extra]\na = 1\n");
  int port = 0;
  std::string cert;
  toml.read("port", port);
  auto tls = toml.table("tls");
  tls.read("cert", cert);
  const auto done = toml.finish();
  REQUIRE(!done);
  CHECK(done.error().code() == Code::invalid);
  CHECK(done.error().text() ==
        "c.toml:3: unknown key 'prot'; did you mean 'port'?\n"
        "c.toml:5: unknown key 'tls.cret'; did you mean 'cert'?\n"
        "c.toml:6: unknown key 'extra'");
}

TEST_CASE("a wrong type says what was expected and what is there") {
  auto toml = reader_of(
      "port = \"x\"\nname = 3\nflag = 1\nshare = true\nwait = []\nhosts = [1]\n"
      "tls = 1\nsize = 1.5\nlist = 1\nhost = [1]\n");
  int port = 0;
  std::string name;
  bool flag = false;
  double share = 0;
  Duration wait{};
  std::vector<std::string> hosts, list;
  uint64_t size = 0;
  CHECK(!toml.read("port", port));
  CHECK(!toml.read("name", name));
  CHECK(!toml.read("flag", flag));
  CHECK(!toml.read("share", share));
  CHECK(!toml.read("wait", wait));
  CHECK(!toml.read("hosts", hosts));
  CHECK(!toml.table("tls").has("x"));
  CHECK(!toml.read_bytes("size", size));
  CHECK(!toml.read("list", list));
  CHECK(toml.tables("host").empty());
  CHECK(toml.finish().error().text() ==
        "c.toml:1: 'port' must be a whole number, not a string\n"
        "c.toml:2: 'name' must be a string, not a whole number\n"
        "c.toml:3: 'flag' must be true or false, not a whole number\n"
        "c.toml:4: 'share' must be a number, not a boolean\n"
        "c.toml:5: 'wait' must be a duration such as \"250ms\" or a number of seconds, not an "
        "array\n"
        "c.toml:6: 'hosts[0]' must be a string, not a whole number\n"
        "c.toml:7: 'tls' must be a table, not a whole number\n"
        "c.toml:8: 'size' must be a size such as \"64KiB\" or a number of bytes, not a number "
        "with a fraction\n"
        "c.toml:9: 'list' must be an array of strings, not a whole number\n"
        "c.toml:10: 'host' must be an array of tables, not an array");
}

TEST_CASE("numbers out of range are refused, not wrapped") {
  auto toml = reader_of("port = 70000\ncount = -1\nbig = 9223372036854775807\nwait = -1\n");
  uint16_t port = 1;
  unsigned count = 1;
  uint64_t big = 0;
  Duration wait = 1s;
  CHECK(!toml.read("port", port));
  CHECK(!toml.read("count", count));
  CHECK(toml.read("big", big));
  CHECK(!toml.read("wait", wait));
  CHECK(port == 1);
  CHECK(count == 1);
  CHECK(big == INT64_MAX);
  CHECK(wait == 1s);
  const std::string text = toml.finish().error().text();
  CHECK(text.find("c.toml:1: 'port' must be from 0 to 65535, not 70000") != std::string::npos);
  CHECK(text.find("c.toml:2: 'count' must be from 0 to 4294967295, not -1") != std::string::npos);
  CHECK(text.find("c.toml:4: 'wait': '-1' is not a duration") != std::string::npos);
}

TEST_CASE("a number may have limits of its own") {
  auto toml = reader_of("ranks = 8\nport = 0\nhosts = -1\n");
  uint32_t ranks = 1, port = 1, hosts = 1;
  CHECK(toml.read("ranks", ranks, 1, 8));
  CHECK(!toml.read("port", port, 1, 65535));
  CHECK(!toml.read("hosts", hosts, 1, 100));
  CHECK(ranks == 8);
  CHECK(port == 1);
  CHECK(toml.finish().error().text() ==
        "c.toml:2: 'port' must be from 1 to 65535, not 0\n"
        "c.toml:3: 'hosts' must be from 1 to 100, not -1");
}

TEST_CASE("a required key that is absent is a mistake, in an absent table too") {
  auto toml = reader_of("\n[head]\n");
  std::string name;
  int port = 0;
  CHECK(!toml.table("head").require("name", name));
  CHECK(!toml.table("tls").require("port", port));
  CHECK(toml.finish().error().text() ==
        "c.toml: 'tls.port' is missing\nc.toml:2: 'head.name' is missing");
}

TEST_CASE("a choice is one of its names") {
  constexpr std::string_view kModes[] = {"fast", "careful"};
  size_t mode = 9;
  CHECK(reader_of("mode = 'careful'").read_choice("mode", kModes, mode));
  CHECK(mode == 1);
  auto toml = reader_of("mode = 'carefull'");
  CHECK(!toml.read_choice("mode", kModes, mode));
  CHECK(toml.finish().error().text() ==
        "c.toml:1: 'mode' must be one of fast, careful, not 'carefull'; did you mean 'careful'?");
}

TEST_CASE("arrays of tables give one reader each, with their place in the path") {
  auto toml = reader_of("[[host]]\nname = 'a'\n[[host]]\nnmae = 'b'\n");
  std::vector<std::string> names;
  for (auto& host : toml.tables("host")) {
    std::string name = "?";
    host.read("name", name);
    names.push_back(name);
  }
  CHECK(names == std::vector<std::string>{"a", "?"});
  CHECK(toml.finish().error().text() ==
        "c.toml:4: unknown key 'host[1].nmae'; did you mean 'name'?");
}

TEST_CASE("keys are given in order, and a caller may complain about one") {
  auto toml = reader_of("b = 1\na = 2\n");
  CHECK(toml.keys() == std::vector<std::string>{"a", "b"});
  int value = 0;
  for (const auto& key : toml.keys()) toml.read(key, value);
  CHECK(toml.finish());
  toml.complain("a", "is taken");
  CHECK(toml.finish().error().text() == "c.toml:2: 'a' is taken");
}

TEST_CASE("the place of a key is where it was written first, however its table is spelled") {
  auto toml = reader_of(
      "z.inner = 1\n"
      "one = 1\n"
      "line = { b = 1, a = 2 }\n"
      "[kind.late]\n"
      "[other.mid.inner]\n"
      "[kind.early]\n"
      "[other.mid]\n");
  auto line = toml.table("line");
  auto kind = toml.table("kind");
  auto other = toml.table("other");
  CHECK(toml.place("z") < toml.place("one"));
  CHECK(line.place("b") < line.place("a"));
  CHECK(kind.place("late") < other.place("mid"));
  CHECK(other.place("mid") < kind.place("early"));
  CHECK(kind.place("early").line == 6);
  CHECK(kind.place("absent") == TomlReader::Place{});
  CHECK(toml.table("absent").place("x") == TomlReader::Place{});
}

TEST_CASE("a caller may ask what a key holds before it reads it") {
  auto toml = reader_of("text = 'a'\nwhole = 1\n[table]\n");
  CHECK(toml.has_string("text"));
  CHECK(!toml.has_string("whole"));
  CHECK(!toml.has_string("absent"));
  CHECK(toml.has_table("table"));
  CHECK(!toml.has_table("text"));
  CHECK(!toml.has_table("absent"));
}

TEST_CASE("a complaint about an absent key names the line of its table") {
  auto toml = reader_of("\n[head]\n");
  toml.table("head").complain("port", "is needed here");
  CHECK(toml.finish().error().text() == "c.toml:2: 'head.port' is needed here");
}

TEST_CASE("a key that a caller complained about is not unknown besides") {
  auto toml = reader_of("old = 1\n");
  toml.complain("old", "is now 'new'");
  CHECK(toml.finish().error().text() == "c.toml:1: 'old' is now 'new'");
}

TEST_CASE("a file full of mistakes gives a bounded message") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += fmt::format("key{} = 1\n", i);
  const std::string message = reader_of(text).finish().error().text();
  CHECK(std::ranges::count(message, '\n') == 20);
  CHECK(message.ends_with("c.toml: and 80 more"));
}

}  // namespace
}  // namespace tutti
