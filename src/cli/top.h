// tutti top: the cluster and its jobs on a terminal, live.
#pragma once

namespace tutti::cli {

int top(int argc, char** argv);

}  // namespace tutti::cli
