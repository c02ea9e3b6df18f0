#pragma once

namespace tutti::cli {

int plot(int argc, char** argv);

}  // namespace tutti::cli
