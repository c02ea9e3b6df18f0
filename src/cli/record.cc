// tutti record: what processes left in their flight recorders.
#include "cli/record.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/complain.h"
#include "record/dump.h"
#include "record/reader.h"
#include "world/real/real_world.h"
#include "world/real/signals.h"

namespace tutti::cli {
namespace {

constexpr Duration kFollowEvery = 200ms;  // looks live to people, costs a copy of the file

struct DumpWish {
  std::string path;
  bool json = false;
  bool follow = false;
  std::string since;
  std::vector<std::string> kinds;
};

// False when nobody reads what we print any more.
bool print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

class Dump {
 public:
  Dump(World& world, const DumpWish& wish) : world_(world), wish_(wish) {}

  Task<Result<void>> once();
  // Until the recorder is closed, its process is gone, or the strand is cancelled.
  Task<Result<void>> follow();

 private:
  Task<Result<void>> look();
  bool show(Recording now);
  bool finish() const;
  bool over() const;

  World& world_;
  const DumpWish& wish_;
  DumpOptions options_;
  Recording last_;  // what we saw when we last looked
  bool begun_ = false;
  uint64_t seen_ = 0;
};

// A recording that took the place of the one we followed begins anew. "--since 5s" counts back
// from the newest record there is when we begin.
bool Dump::show(Recording now) {
  const bool same = begun_ && now.pid == last_.pid && now.created_ns == last_.created_ns;
  if (!same) {
    last_ = Recording{};
    seen_ = 0;
    if (!print(wish_.json ? dump_heading_json(now) : dump_heading(now))) return false;
  }
  const std::vector<Record> fresh = records_since(last_, now);
  const std::vector<Record> wanted = select_records(now, fresh, options_);
  seen_ += fresh.size();
  begun_ = true;
  last_ = std::move(now);
  return print(wish_.json ? dump_records_json(last_, wanted) : dump_records(last_, wanted));
}

bool Dump::finish() const {
  const uint64_t lost = last_.written() - std::min(last_.written(), seen_);
  return print(wish_.json ? dump_totals_json(last_, lost) : dump_totals(last_, lost));
}

bool Dump::over() const {
  if (last_.closed_ns != 0) return true;
  if (last_.host != world_.host_name()) return false;
  const auto alive = world_.processes().signal(static_cast<pid_t>(last_.pid), 0);
  return !alive && alive.error().code() == Code::not_found;
}

Task<Result<void>> Dump::look() {
  CO_TRY(Recording now, co_await read_recording(world_.disk(), wish_.path));
  if (!begun_ && !wish_.since.empty() && !now.records.empty()) {
    CO_TRY(const Duration since, parse_duration(wish_.since));
    options_.since_ns = now.records.back().time_ns - to_ns(since);
  }
  options_.kinds = wish_.kinds;
  if (!show(std::move(now))) co_return fail(Code::unavailable, "nobody reads the output");
  co_return {};
}

Task<Result<void>> Dump::once() {
  CO_TRY_DO(co_await look());
  if (!finish()) co_return fail(Code::unavailable, "nobody reads the output");
  co_return {};
}

Task<Result<void>> Dump::follow() {
  bool last_look = false;
  while (true) {
    CO_TRY_DO(co_await look());
    if (last_look) break;
    last_look = over();  // what came between our look and its end is shown by one more
    if (last_look) continue;
    auto slept = co_await world_.clock().sleep(kFollowEvery);
    if (!slept) break;
  }
  if (!finish()) co_return fail(Code::unavailable, "nobody reads the output");
  co_return {};
}

Task<void> cancel_on_signal(Signals& signals, Scope& scope) {
  auto number = co_await signals.next();
  if (number) scope.cancel();
}

Task<void> keep(Task<Result<void>> work, Result<void>& result, Scope& watching) {
  result = co_await std::move(work);
  watching.cancel();
}

Task<Result<void>> follow_until_signal(Dump& dump, Signals& signals) {
  Result<void> result;
  Scope watching;
  Scope working;
  working.spawn(keep(dump.follow(), result, watching));
  watching.spawn(cancel_on_signal(signals, working));
  auto worked = co_await working.join();
  auto watched = co_await watching.join();
  static_cast<void>(worked);
  static_cast<void>(watched);
  co_return result;
}

int run_dump(const DumpWish& wish) {
  if (auto since = parse_duration(wish.since.empty() ? "0s" : wish.since); !since) {
    return complain("record", since.error().context("--since"), kCalledWrongly);
  }
  RealWorld world({.spin = 0s});
  Dump dump(world, wish);
  Result<void> done;
  if (wish.follow) {
    constexpr int kNumbers[] = {SIGINT, SIGTERM, SIGPIPE};
    auto signals = Signals::create(world.loop(), kNumbers);
    if (!signals) return complain("record", signals.error());
    done = world.run(follow_until_signal(dump, **signals));
  } else {
    done = world.run(dump.once());
  }
  if (done || done.error().code() == Code::unavailable) return 0;
  return complain("record", done.error());
}

}  // namespace

int record(int argc, char** argv) {
  Arguments app("tutti record: what processes left in their flight recorders", "tutti record");
  app.footer(
      "examples:\n"
      "  tutti record dump /dev/shm/tutti/worker-3.rec            all it holds, as a table\n"
      "  tutti record dump worker-3.rec --since 2s --kind train.  train.step and the like, of the "
      "last two seconds\n"
      "  tutti record dump worker-3.rec --follow --json           events as they happen, for "
      "tools");
  DumpWish wish;
  Arguments dump = app.add_subcommand("dump", "print a recording; its process may live or be dead");
  dump.add_option("FILE", wish.path, "the recording").required();
  dump.add_flag("--json", wish.json, "one JSON object per line");
  dump.add_flag("--follow", wish.follow, "go on until its process is done, or Ctrl-C");
  dump.add_option("--since", wish.since, "only this long before the newest record: 250ms, 2s, 1m");
  dump.add_option("--kind", wish.kinds,
                  "only this kind of event; one that ends in a dot is all that begin so. May be "
                  "repeated");
  if (const auto code = app.parse(argc, argv)) return *code;
  if (dump.parsed()) return run_dump(wish);
  return print(app.help()) ? 0 : kFailed;
}

}  // namespace tutti::cli
