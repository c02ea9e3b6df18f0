#pragma once

namespace tutti::cli {

int sweep(int argc, char** argv);

}  // namespace tutti::cli
