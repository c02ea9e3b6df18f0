#pragma once

namespace tutti::cli {

int runs(int argc, char** argv);

}  // namespace tutti::cli
