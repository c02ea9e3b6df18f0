#include "cli/top_model.h"

#include <doctest/doctest.h>

#include "cli/screen.h"
#include "cli/top_view.h"

namespace tutti::cli {
namespace {

using Kind = Key::Kind;
using Act = TopAction::Kind;

Key key(Kind kind) { return {kind, ""}; }
Key letter(const char* text) { return {Kind::text, text}; }

void add_job(Look& look, uint64_t number, const char* name, uint32_t processes) {
  cluster::JobInfo& job = look.jobs.emplace_back();
  job.set_job(number);
  job.set_name(name);
  job.set_state(cluster::RUNNING);
  job.set_processes(processes);
  job.set_why("because of \033[2J");
}

Look three_jobs() {
  Look look;
  look.status.set_cluster("c");
  add_job(look, 3, "train", 8);
  add_job(look, 2, "evaluate", 64);
  add_job(look, 1, "Serve", 2);
  return look;
}

void add_process(Look& look, uint32_t node, uint32_t index, const char* state, uint64_t step,
                 double cpu_percent) {
  SeenProcess seen;
  seen.cpu_percent = cpu_percent;
  cluster::ProcessInfo& info = seen.info;
  info.set_job(3);
  info.set_process(1 + index);  // behind the process of role data
  info.set_index(index);
  info.set_role("worker");
  info.set_state(state);
  info.set_step(step);
  info.set_pid(100 + index);
  info.set_epoch(uint64_t{1} << 32 | 2);
  info.set_memory_bytes(1 << 20);
  look.hosts[node].push_back(seen);
}

// Job 3: role data on host 1, four workers on hosts 1 and 2.
Look inside_job() {
  Look look = three_jobs();
  look.job = look.jobs[0];
  for (const char* name : {"data", "worker"}) {
    cluster::RoleInfo& role = *look.job->add_roles();
    role.set_name(name);
    role.set_count(name[0] == 'w' ? 4 : 1);
    role.set_place(name[0] == 'w' ? 1 : 0);
    cluster::Segment& segment = *look.job->add_layout();
    segment.set_role(role.place());
    segment.set_first_node(1);
    segment.set_last_node(name[0] == 'w' ? 2 : 1);
    segment.set_per_node(name[0] == 'w' ? 2 : 1);
    segment.set_count(role.count());
  }
  for (uint32_t node = 1; node <= 2; ++node) {
    cluster::HostAbout& host = *look.job->add_members();
    host.set_node(node);
    host.set_name(node == 1 ? "one" : "two");
  }
  add_process(look, 1, 0, "running", 7, 50);
  add_process(look, 1, 1, "running", 7, 100);
  add_process(look, 2, 2, "exited", 5, 0);
  return look;
}

std::vector<std::string> column(const TopModel& model, size_t index) {
  std::vector<std::string> texts;
  for (const TopRow& row : model.table().rows) texts.push_back(row.cells[index].text);
  return texts;
}
using Texts = std::vector<std::string>;

TopModel at(Level level) {
  TopModel model(3);
  model.set_height(10);
  model.take(inside_job());
  for (int i = 1; i < static_cast<int>(level); ++i) {
    if (i == 1) model.press(key(Kind::down));  // from data to worker
    model.press(key(Kind::enter));
  }
  return model;
}

TEST_CASE("jobs are sorted by the column that was chosen, numbers as numbers") {
  TopModel model;
  model.take(three_jobs());
  CHECK(column(model, 0) == Texts{"3", "2", "1"});
  model.press(letter("r"));
  CHECK(column(model, 0) == Texts{"1", "2", "3"});
  for (int i = 0; i < 3; ++i) model.press(key(Kind::right));
  CHECK(column(model, 3) == Texts{"2", "8", "64"});
  for (int i = 0; i < 4; ++i) model.press(key(Kind::left));
  CHECK(model.sorted_by() == model.table().columns.size() - 1);
}

TEST_CASE("the selected row stays selected wherever it goes") {
  TopModel model;
  model.take(three_jobs());
  model.press(key(Kind::down));
  CHECK(model.table().rows[model.selected()].job == 2);
  Look more = three_jobs();
  add_job(more, 9, "new", 1);
  model.take(more);
  CHECK(model.table().rows[model.selected()].job == 2);
  model.press(letter("r"));
  CHECK(model.table().rows[model.selected()].job == 2);
  Look fewer;
  add_job(fewer, 3, "train", 8);
  model.take(fewer);
  CHECK(model.selected() == 0);
  model.take(Look());
  CHECK(model.press(key(Kind::enter)).kind == Act::none);
  CHECK(model.press(letter("k")).kind == Act::none);
}

TEST_CASE("only rows with the text are shown, in whatever case") {
  TopModel model;
  model.take(three_jobs());
  model.press(letter("/"));
  for (const char* text : {"s", "e", "r", "q"}) model.press(letter(text));
  CHECK(model.table().rows.empty());
  model.press(key(Kind::backspace));
  CHECK(column(model, 1) == Texts{"Serve"});
  model.press(key(Kind::enter));
  CHECK_FALSE(model.filtering());
  CHECK(model.press(key(Kind::escape)).kind == Act::none);
  CHECK(model.table().rows.size() == 3);
}

TEST_CASE("a job opens into roles, hosts and processes, and closes again") {
  TopModel model;
  model.set_height(10);
  model.take(inside_job());
  CHECK(model.wish().job == 0);
  CHECK(model.press(key(Kind::enter)).kind == Act::look);
  CHECK(model.wish().job == 3);
  CHECK_FALSE(model.wish().hosts);
  CHECK(column(model, 0) == Texts{"data", "worker"});
  CHECK(column(model, 4) == Texts{"-", "exited 1, running 2"});
  CHECK(column(model, 5) == Texts{"-", "150"});
  model.press(key(Kind::down));
  model.press(key(Kind::enter));
  CHECK(model.trail() == Texts{"jobs", "3 train", "worker"});
  CHECK(column(model, 0) == Texts{"one", "two"});
  CHECK(column(model, 1) == Texts{"0-1", "2-3"});
  CHECK(model.wish().hosts->text() == "1-2");
  model.press(key(Kind::enter));
  CHECK(model.wish().hosts->text() == "1");
  CHECK(model.trail().back() == "one");
  for (const Level level : {Level::hosts, Level::roles, Level::jobs, Level::jobs}) {
    model.press(key(Kind::escape));
    CHECK(model.level() == level);
    if (level == Level::roles) CHECK(model.selected() == 1);
  }
}

TEST_CASE("processes that are alike are one row, which opens") {
  TopModel model = at(Level::processes);
  CHECK(column(model, 0) == Texts{"0-1"});
  CHECK(column(model, 3) == Texts{"75"});
  CHECK(column(model, 7) == Texts{"1.2"});
  model.press(key(Kind::enter));
  CHECK(column(model, 0) == Texts{"0", "1"});
  CHECK(model.press(key(Kind::enter)).kind == Act::none);
  model.press(key(Kind::escape));
  CHECK(model.level() == Level::processes);
  model.press(letter("f"));
  CHECK(column(model, 0) == Texts{"0", "1"});
}

TEST_CASE("nothing is ended without a yes") {
  TopModel model;
  model.take(three_jobs());
  CHECK(model.press(letter("k")).kind == Act::none);
  CHECK(model.question() == "end job 3, with its grace? y/n");
  CHECK(model.press(key(Kind::enter)).kind == Act::none);
  CHECK_FALSE(model.question());
  model.press(letter("k"));
  const TopAction action = model.press(letter("y"));
  CHECK(action.kind == Act::kill_job);
  CHECK(action.job == 3);
  TopModel inside = at(Level::processes);
  inside.press(letter("k"));
  CHECK(inside.question() == "send SIGTERM to 2 processes of job 3? y/n");
  CHECK(inside.press(letter("y")).processes.text() == "1-2");
}

TEST_CASE("only hosts on the screen are asked") {
  TopModel model = at(Level::hosts);
  model.set_height(1);
  CHECK(model.wish().hosts->text() == "1");
  model.press(key(Kind::down));
  CHECK(model.first() == 1);
  CHECK(model.wish().hosts->text() == "2");
}

TEST_CASE("a screen has as many lines as the terminal, none of them too wide") {
  for (size_t columns = 0; columns < 130; columns += 3)
    for (size_t lines = 1; lines < 30; lines += 4)
      for (const Level level : {Level::roles, Level::hosts, Level::processes}) {
        const TopModel model = at(level);
        const auto screen = top_screen(model, {.columns = columns, .rows = lines}, "a notice");
        CHECK(screen.size() >= lines);
        for (const std::string& line : screen)
          CHECK(width_of(line) <= std::max<size_t>(columns, 2));
      }
}

TEST_CASE("what jobs say cannot reach the terminal as commands") {
  const std::string text = top_text(three_jobs(), jobs_table(three_jobs()), {.columns = 200});
  CHECK(text.find('\033') == std::string::npos);
  CHECK(text.find("because of  [2J") != std::string::npos);
}

TEST_CASE("processor time is told in percent of the time between two looks") {
  CpuMeter meter;
  cluster::HostInfo host;
  cluster::ProcessInfo process;
  host.set_sampled_ns(5'000'000'000);
  process.set_age_ns(2'000'000'000);
  process.set_cpu_ns(1'000'000'000);
  CHECK(meter.percent(host, process) == doctest::Approx(50));  // of its life so far
  meter.end_look();
  host.set_sampled_ns(6'000'000'000);
  process.set_cpu_ns(3'000'000'000);
  CHECK(meter.percent(host, process) == doctest::Approx(200));
  meter.end_look();
  host.set_sampled_ns(6'000'000'001);
  CHECK(meter.percent(host, process) == doctest::Approx(200));
  process.set_pid(77);  // another process: its own time counts
  process.set_cpu_ns(0);
  CHECK(meter.percent(host, process) == doctest::Approx(0));
}

}  // namespace
}  // namespace tutti::cli
