#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "world/real/errors.h"
#include "world/real/terminal.h"
#include "world/real/this_process.h"

namespace tutti {
namespace {

// The other screen, no cursor; and back, with whatever colour was on switched off.
constexpr std::string_view kEnter = "\033[?1049h\033[?25l\033[2J";
constexpr std::string_view kLeave = "\033[0m\033[?25h\033[?1049l";
// What ends a process that has a bug.
constexpr int kCrashes[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS};

// Where a signal handler finds it.
termios before{};
std::atomic<bool> entered = false;

// Only what a signal handler may call.
void restore() {
  if (!entered.exchange(false)) return;
  const ssize_t written = write(kStandardOutput, kLeave.data(), kLeave.size());
  static_cast<void>(written);
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
}

void restore_and_crash(int number) {
  restore();
  std::signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

TerminalSize terminal_size(int number) {
  winsize size{};
  if (ioctl(number, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

Result<std::unique_ptr<FullScreen>> FullScreen::open() {
  if (!is_terminal(STDIN_FILENO) || !is_terminal(kStandardOutput))
    return fail(Code::unsupported, "standard input and output are no terminal");
  if (tcgetattr(STDIN_FILENO, &before) != 0) return fail_errno(errno, "read the terminal's modes");
  static const bool registered = std::atexit(restore) == 0;
  static_cast<void>(registered);
  for (const int number : kCrashes) std::signal(number, restore_and_crash);
  std::unique_ptr<FullScreen> screen(new FullScreen);
  screen->enter();
  return screen;
}

FullScreen::~FullScreen() {
  leave();
  for (const int number : kCrashes) std::signal(number, SIG_DFL);
}

void FullScreen::leave() { restore(); }

void FullScreen::enter() {
  if (entered.exchange(true)) return;
  termios raw = before;
  raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL | INLCR | IGNCR | ISTRIP);
  raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
  const ssize_t written = write(kStandardOutput, kEnter.data(), kEnter.size());
  static_cast<void>(written);
}

}  // namespace tutti
