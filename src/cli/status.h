// tutti status: the cluster and its hosts. tutti ps: what runs on them.
#pragma once

namespace tutti::cli {

int status(int argc, char** argv);
int forget(int argc, char** argv);
int ps(int argc, char** argv);

}  // namespace tutti::cli
