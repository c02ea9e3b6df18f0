#pragma once

namespace tutti::cli {

int ir(int argc, char** argv);

}  // namespace tutti::cli
