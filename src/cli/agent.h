// tutti agent: the agent of this machine, in the foreground, until it is told to end.
#pragma once

namespace tutti::cli {

int agent(int argc, char** argv);

}  // namespace tutti::cli
