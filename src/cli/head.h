// tutti head: the head of a cluster, in the foreground, until it is told to end.
#pragma once

namespace tutti::cli {

int head(int argc, char** argv);

}  // namespace tutti::cli
