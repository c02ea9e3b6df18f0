#pragma once

namespace tutti::cli {

int generate(int argc, char** argv);

}  // namespace tutti::cli
