// tutti up: head and agent on this machine, in the background. tutti down: ends them.
#pragma once

namespace tutti::cli {

int up(int argc, char** argv);
int down(int argc, char** argv);

}  // namespace tutti::cli
