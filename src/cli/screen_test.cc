#include "cli/screen.h"

#include <doctest/doctest.h>

namespace tutti::cli {
namespace {

TEST_CASE("only lines that changed are written again") {
  Screen screen;
  CHECK(screen.frame({"one", "two", "three"}) ==
        "\033[2J\033[1;1Hone\033[K\033[2;1Htwo\033[K\033[3;1Hthree\033[K");
  CHECK(screen.frame({"one", "two", "three"}).empty());
  CHECK(screen.frame({"one", "2", "three"}) == "\033[2;1H2\033[K");
  CHECK(screen.frame({"one"}) == "\033[2;1H\033[K\033[3;1H\033[K");
  screen.forget();
  CHECK(screen.frame({"one"}) == "\033[2J\033[1;1Hone\033[K");
}

TEST_CASE("text is cut and filled by letters, not by bytes") {
  CHECK(width_of("für") == 3);
  CHECK(clipped("größer", 6) == "größer");
  CHECK(clipped("größer", 4) == "grö…");
  CHECK(clipped("abc", 0).empty());
  CHECK(padded("für", 5) == "für  ");
  CHECK(padded("7", 3, true) == "  7");
}

TEST_CASE("text of others cannot move the cursor") {
  CHECK(harmless("a\033[2Jb\nc\177") == "a [2Jb c ");
  CHECK(harmless("x\302\233y für") == "x??y für");
}

}  // namespace
}  // namespace tutti::cli
