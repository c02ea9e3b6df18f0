// tutti token: on the head's machine, lets another machine join. tutti join: on that machine.
#pragma once

namespace tutti::cli {

int token(int argc, char** argv);
int join(int argc, char** argv);

}  // namespace tutti::cli
