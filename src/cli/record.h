#pragma once

namespace tutti::cli {

int record(int argc, char** argv);

}  // namespace tutti::cli
