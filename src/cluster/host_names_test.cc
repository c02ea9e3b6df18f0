#include "cluster/host_names.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace tutti {
namespace {

using Names = std::vector<std::string>;

std::string fold(const Names& names) {
  FoldedNames folded;
  for (const std::string& name : names) folded.add(name);
  return folded.text();
}
Names unfold(std::string_view text) { return unfold_names(text, 100'000).value(); }

TEST_CASE("numbered hosts fold, others stand for themselves") {
  CHECK(fold({}) == "");
  CHECK(fold({"head"}) == "head");
  CHECK(fold({"node7"}) == "node7");
  CHECK(fold({"node1", "node2", "node3", "node4", "node7", "head"}) == "node[1-4,7],head");
  CHECK(fold({"head", "node2", "gpu1", "node1", "gpu2"}) == "head,node[1-2],gpu[1-2]");
}

TEST_CASE("the number is at the end of the first part of a name") {
  CHECK(fold({"node1.lab", "node2.lab"}) == "node[1-2].lab");
  CHECK(fold({"node1.lab", "node2.home"}) == "node1.lab,node2.home");
  CHECK(fold({"rack3-node1", "rack3-node2"}) == "rack3-node[1-2]");
  CHECK(fold({"17", "18"}) == "17,18");  // may be an address
}

TEST_CASE("leading zeros are kept") {
  CHECK(fold({"node08", "node09"}) == "node[08-09]");
  CHECK(fold({"node001", "node003"}) == "node[001,003]");
  CHECK(unfold(fold({"node0", "node00", "node000"})) == Names{"node0", "node00", "node000"});
  CHECK(unfold("node[08-11]") == Names{"node08", "node09", "node10", "node11"});
}

TEST_CASE("addresses are not counted with") {
  const Names addresses = {"10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3"};
  CHECK(fold(addresses) == "10.0.0.1:7000,10.0.0.2:7000,10.0.0.3");
  CHECK(unfold(fold(addresses)) == addresses);
}

TEST_CASE("numbers too long to count with are part of a name") {
  const Names names = {"node12345678901", "node12345678902", "node99999999999999999999"};
  Names back = unfold(fold(names));
  std::ranges::sort(back);
  CHECK(back == names);
}

TEST_CASE("what was folded unfolds to the same hosts") {
  const Names prefixes = {"node", "gpu-", "r7n", "x.y", ""};
  const Names suffixes = {"", ".lab", ".a.b"};
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 draw(seed);
    Names names;
    for (uint32_t i = 0; i < draw() % 40; ++i) {
      std::string number = std::to_string(draw() % 30);
      if (draw() % 3 == 0) number = std::string(draw() % 3, '0') + number;
      names.push_back(prefixes[draw() % prefixes.size()] + number +
                      suffixes[draw() % suffixes.size()]);
    }
    std::ranges::sort(names);
    names.erase(std::ranges::unique(names).begin(), names.end());
    Names shuffled = names;
    std::ranges::shuffle(shuffled, draw);
    Names back = unfold(fold(shuffled));
    std::ranges::sort(back);
    INFO("seed ", seed, ": ", fold(shuffled));
    CHECK(back == names);
  }
}

TEST_CASE("people's lists are read") {
  CHECK(unfold("") == Names{});
  CHECK(unfold("a,b[1-2]x,c") == Names{"a", "b1x", "b2x", "c"});
  CHECK(unfold("n[1,3,5-6]") == Names{"n1", "n3", "n5", "n6"});
}

TEST_CASE("lists that make no sense, or name too many, are refused") {
  for (const char* text : {"node[1-4", "node]1[", "node[1-x]", "node[4-1]", "node[]"}) {
    INFO(std::string(text));
    CHECK_FALSE(unfold_names(text, 100).has_value());
  }
  CHECK(unfold_names("n[1-100]", 100).has_value());
  CHECK_FALSE(unfold_names("n[0-100]", 100).has_value());
  CHECK_FALSE(unfold_names("n[1-100],m", 100).has_value());
  CHECK_FALSE(unfold_names("n[0-4294967295]", 100).has_value());
}

}  // namespace
}  // namespace tutti
