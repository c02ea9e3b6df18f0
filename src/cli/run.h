#pragma once

namespace tutti::cli {

int run(int argc, char** argv);

}  // namespace tutti::cli
