#pragma once

namespace tutti::cli {

// Not for people: what `tutti run` and agents start, with a Unix stream as number 3.
int keeper(int argc, char** argv);

}  // namespace tutti::cli
