// What a command needs of Linux beside a World: its standard streams, environment and limits.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "world/real/loop.h"
#include "world/stream.h"

namespace tutti {

// A closed 0, 1 or 2 would be given to the next thing we open, and printed into. Call first.
void fill_missing_standard_streams();

constexpr int kStandardInput = 0;
constexpr int kStandardOutput = 1;
constexpr int kStandardError = 2;
bool is_terminal(int number);
// Whether two descriptors are one file, pipe or terminal.
bool same_file(int number, int other);

// A stream of what 0, 1 or 2 is. A write waits where a terminal or pipe is full; a regular file's
// never does. The descriptor stays as it is for those we share it with.
Result<std::unique_ptr<Stream>> open_standard_stream(Loop& loop, int number);

// Makes room for so many more open files, if this process may have them; else the error names the
// limit. Gives the limit there was, for children that did not ask for more.
Result<uint64_t> allow_open_files(uint64_t more);

// As many as this process may have. Gives the limit there was, as above.
uint64_t allow_most_open_files();

// For good, also for what this process executes; children that a World starts ignore nothing.
void ignore_signals(std::span<const int> numbers);

std::vector<std::string> own_environment();  // "KEY=value"
uint64_t host_memory_bytes();                // of the machine
unsigned usable_cores();                     // at least 1
uint64_t memory_in_use();                    // bytes that were allocated and not freed

// The file this process executes; nothing when another has taken its place.
std::optional<std::string> own_program();

// Begins this program anew, with the same arguments, unless the variable is set already. Comes back
// only then, or where it cannot.
void restart_with(const char* variable, const char* value);

// Goes on as another program, with the same descriptors and environment; the first argument is
// looked up in PATH. Comes back only with why it cannot.
Error become(const std::vector<std::string>& arguments);

// How ps and top call this process.
void name_this_process(const char* name);

}  // namespace tutti
