#pragma once

namespace tutti::cli {

int train(int argc, char** argv);

}  // namespace tutti::cli
