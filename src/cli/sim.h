// `tutti sim`: runs a scenario of sims/ on machines that do not exist.
#pragma once

namespace tutti::cli {

int sim(int argc, char** argv);

}  // namespace tutti::cli
