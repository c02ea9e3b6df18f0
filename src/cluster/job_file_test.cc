#include "cluster/job_file.h"

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/units.h"
#include "cluster/job_limits.h"

namespace tutti {
namespace {

using Words = std::vector<std::string>;

Words words_of(const auto& repeated) { return {repeated.begin(), repeated.end()}; }

job::Spec job_of(std::string_view text) {
  auto parsed = parse_job_file(text, "j.toml");
  if (!parsed) FAIL(parsed.error().text());
  CHECK(check_job(*parsed));
  return *std::move(parsed);
}

std::string mistakes_of(std::string_view text) {
  const auto parsed = parse_job_file(text, "j.toml");
  if (parsed) return "";
  CHECK(parsed.error().code() == Code::invalid);
  return parsed.error().text();
}

std::map<job::ErrorClass, uint32_t> restarts_of(const job::Role& role) {
  std::map<job::ErrorClass, uint32_t> restarts;
  for (const job::Budget& budget : role.budgets()) restarts[budget.error()] = budget.restarts();
  return restarts;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("every key arrives") {
  const job::Spec spec = job_of(R"(
name = "gpt-small"
folder = "/data/gpt-small"
environment = { OMP_NUM_THREADS = "1", A = "b=c" }
grace = "10s"
timeout = "2h"
notice = 45
notice_signal = "SIGUSR1"
open_files = 65536
strategy = "rest_for_one"

[gang.worker]
count = 8
per_host = 4
slots = 2
command = ["python", "train.py", "--lr", "3e-4"]
environment = { LEVEL = "2" }
folder = "sub"
needs = ["data"]
strategy = "one_for_one"
spares = 1
preload = ["numpy", "torch.nn"]
hang_after = "30s"
restarts = { killed = 7, period = "2h", delay = "3s", longest_delay = "4m" }

[service.data]
command = "python serve.py | tee log"
health = { port = 8080, path = "/health", every = "3s", timeout = "1s", failures = 4, start = 30 }

[sidecar.watcher]
beside = "worker"
command = ["watch"]
)");
  CHECK(spec.name() == "gpt-small");
  CHECK(spec.folder() == "/data/gpt-small");
  CHECK(words_of(spec.environment()) == Words{"A=b=c", "OMP_NUM_THREADS=1"});
  CHECK(spec.grace_ns() == to_ns(10s));
  CHECK(spec.timeout_ns() == to_ns(2h));
  CHECK(spec.notice_ns() == to_ns(45s));
  CHECK(spec.notice_signal() == SIGUSR1);
  CHECK(spec.open_files() == 65536);
  CHECK(spec.strategy() == job::REST_FOR_ONE);
  REQUIRE(spec.roles_size() == 3);

  const job::Role& worker = spec.roles(0);
  CHECK(worker.kind() == job::Role::GANG);
  CHECK(worker.name() == "worker");
  CHECK(worker.count() == 8);
  CHECK(worker.per_host() == 4);
  CHECK(worker.slots() == 2);
  CHECK(words_of(worker.command()) == Words{"python", "train.py", "--lr", "3e-4"});
  CHECK(words_of(worker.environment()) == Words{"LEVEL=2"});
  CHECK(worker.folder() == "sub");
  CHECK(words_of(worker.needs()) == Words{"data"});
  CHECK(worker.strategy() == job::ONE_FOR_ONE);
  CHECK(worker.spares() == 1);
  CHECK(words_of(worker.preload()) == Words{"numpy", "torch.nn"});
  CHECK(worker.hang_after_ns() == to_ns(30s));
  for (const job::Budget& budget : worker.budgets()) {
    CHECK(budget.period_ns() == to_ns(2h));
    CHECK(budget.delay_ns() == to_ns(3s));
    CHECK(budget.longest_delay_ns() == to_ns(4min));
  }
  CHECK(restarts_of(worker).at(job::KILLED) == 7);

  const job::Health& health = spec.roles(1).health();
  CHECK(words_of(spec.roles(1).command()) == Words{"sh", "-c", "python serve.py | tee log"});
  CHECK(health.port() == 8080);
  CHECK(health.path() == "/health");
  CHECK(health.every_ns() == to_ns(3s));
  CHECK(health.timeout_ns() == to_ns(1s));
  CHECK(health.failures() == 4);
  CHECK(health.start_ns() == to_ns(30s));

  CHECK(spec.roles(2).kind() == job::Role::SIDECAR);
  CHECK(spec.roles(2).beside() == "worker");
}

TEST_CASE("what is not said has a default") {
  const job::Spec spec = job_of(R"(
name = "a"
[gang.g]
command = "x"
[service.s]
command = "x"
health.command = ["true"]
[task.t]
command = "x"
[sidecar.c]
beside = "g"
command = "x"
)");
  CHECK(spec.folder().empty());
  CHECK(spec.environment().empty());
  CHECK(spec.strategy() == job::ONE_FOR_ONE);
  CHECK(spec.grace_ns() == to_ns(5s));
  CHECK(spec.timeout_ns() == 0);
  CHECK(spec.notice_ns() == to_ns(30s));
  CHECK(!spec.has_user());
  const job::Role &gang = spec.roles(0), &service = spec.roles(1), &task = spec.roles(2),
                  &sidecar = spec.roles(3);
  CHECK(gang.strategy() == job::ONE_FOR_ALL);
  for (const job::Role* role : {&service, &task, &sidecar})
    CHECK(role->strategy() == job::ONE_FOR_ONE);
  for (const job::Role* role : {&gang, &service, &task}) {
    CHECK(role->count() == 1);
    CHECK(role->slots() == 1);
    CHECK(role->per_host() == 0);
  }
  CHECK(sidecar.count() == 0);
  CHECK(sidecar.slots() == 0);

  const std::map<job::ErrorClass, uint32_t> of_work = {
      {job::KILLED, 3}, {job::OUT_OF_MEMORY, 1}, {job::HOST_LOST, 10}, {job::HANG, 3}};
  CHECK(restarts_of(gang) == of_work);
  CHECK(restarts_of(task) == of_work);
  CHECK(gang.budgets(0).period_ns() == to_ns(1h));
  CHECK(gang.budgets(0).delay_ns() == to_ns(1s));
  CHECK(gang.budgets(0).longest_delay_ns() == to_ns(1min));
  CHECK(restarts_of(service) == restarts_of(sidecar));
  CHECK(restarts_of(service).at(job::NONE) == kAlwaysRestart);
  CHECK(restarts_of(service).at(job::NOT_STARTED) == 3);
  CHECK(restarts_of(service).size() == job::ErrorClass_ARRAYSIZE);
  CHECK(service.budgets(0).delay_ns() == to_ns(500ms));
  CHECK(service.budgets(0).longest_delay_ns() == to_ns(30s));
  CHECK(service.health().every_ns() == to_ns(5s));
  CHECK(service.health().failures() == 3);
}

TEST_CASE("roles keep the order in which they were written, across kinds") {
  const job::Spec spec = job_of(R"(
name = "a"
[service.zebra]
command = "x"
[gang.walrus]
command = "x"
[service.ant]
command = "x"
[gang.bee.environment]
A = "1"
[task.yak]
command = "x"
[gang.bee]
command = "x"
)");
  Words names;
  for (const job::Role& role : spec.roles()) names.push_back(role.name());
  CHECK(names == Words{"zebra", "walrus", "ant", "bee", "yak"});
}

TEST_CASE("what is said of restarts replaces the default of that class alone") {
  const auto restarts = [](std::string_view table) {
    return restarts_of(
        job_of(fmt::format("name = 'a'\n[gang.g]\ncommand = 'x'\nrestarts = {}\n", table))
            .roles(0));
  };
  CHECK(restarts("{ user_error = 2 }") ==
        std::map<job::ErrorClass, uint32_t>{{job::USER_ERROR, 2},
                                            {job::KILLED, 3},
                                            {job::OUT_OF_MEMORY, 1},
                                            {job::HOST_LOST, 10},
                                            {job::HANG, 3}});
  CHECK(!restarts("{ killed = 0 }").contains(job::KILLED));
  CHECK(restarts("{ killed = 'always' }").at(job::KILLED) == kAlwaysRestart);
}

TEST_CASE("a long delay alone makes the longest as long") {
  const job::Spec spec =
      job_of("name = 'a'\n[gang.g]\ncommand = 'x'\nrestarts = { delay = '5m' }\n");
  CHECK(spec.roles(0).budgets(0).longest_delay_ns() == to_ns(5min));
}

TEST_CASE("unknown keys are refused everywhere, with the one that was meant") {
  CHECK(mistakes_of(R"(nmae = "a"
name = "a"
[gagn.x]
[gang.worker]
comand = "x"
command = "x"
health = { prot = 1 }
restarts = { kiled = 1 }
)") == "j.toml:1: unknown key 'nmae'; did you mean 'name'?\n"
       "j.toml:3: unknown key 'gagn'; did you mean 'gang'?\n"
       "j.toml:5: unknown key 'gang.worker.comand'; did you mean 'command'?\n"
       "j.toml:7: unknown key 'gang.worker.health.prot'; did you mean 'port'?\n"
       "j.toml:8: unknown key 'gang.worker.restarts.kiled'; did you mean 'killed'?");
}

TEST_CASE("values that cannot be are refused with their lines, all at once") {
  CHECK(mistakes_of(R"(name = "a"
grace = "-1s"
notice_signal = "SIGKILL"
open_files = -1
[gang.worker]
count = 0
per_host = 5000
slots = -1
spares = 1000
command = 3
strategy = "one_for_al"
environment = { A = 1, "B=C" = "2" }
restarts = { killed = -1, hang = "allways" }
[service.data]
command = "x"
health = { port = 65536, failures = 0 }
[task]
count = 2
)") == "j.toml:2: 'grace': '-1s' is not a duration; write it like 250ms, 1.5s, 2m30s or 1h\n"
       "j.toml:3: 'notice_signal' must be one of SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, "
       "SIGUSR2, not 'SIGKILL'\n"
       "j.toml:4: 'open_files' must be from 0 to 1073741824, not -1\n"
       "j.toml:6: 'gang.worker.count' must be from 1 to 10000000, not 0\n"
       "j.toml:7: 'gang.worker.per_host' must be from 0 to 4096, not 5000\n"
       "j.toml:8: 'gang.worker.slots' must be from 0 to 4096, not -1\n"
       "j.toml:9: 'gang.worker.spares' must be from 0 to 256, not 1000\n"
       "j.toml:10: 'gang.worker.command' must be text for a shell or an array of strings\n"
       "j.toml:11: 'gang.worker.strategy' must be one of one_for_all, one_for_one, rest_for_one, "
       "not 'one_for_al'; did you mean 'one_for_all'?\n"
       "j.toml:12: 'gang.worker.environment.A' must be a string, not a whole number\n"
       "j.toml:12: 'gang.worker.environment.B=C' has a '=' in its name, which the environment "
       "cannot hold\n"
       "j.toml:13: 'gang.worker.restarts.killed' must be from 0 to 10000, not -1\n"
       "j.toml:13: 'gang.worker.restarts.hang' must be one of always, not 'allways'; did you mean "
       "'always'?\n"
       "j.toml:16: 'service.data.health.port' must be from 1 to 65535, not 65536\n"
       "j.toml:16: 'service.data.health.failures' must be from 1 to 1000, not 0\n"
       "j.toml:18: 'task.count' must be the name of one role, with its keys below [task.NAME]");
}

TEST_CASE("broken rules are told with the lines of what breaks them") {
  CHECK(mistakes_of(R"(name = "my job"
folder = "here"
[gang.worker]
needs = ["dta"]
health = { port = 1 }
[service.data]
command = ""
spares = 1
health = { every = "1s" }
[sidecar.data]
beside = "other"
command = []
environment = { RANK = "0" }
[sidecar.other]
beside = "data"
command = "x"
slots = 2
[gang."odd name"]
command = "x"
restarts = { delay = "1m", longest_delay = "1s" }
)") == "j.toml:1: 'name' must be 1 to 63 letters, digits, '-', '_' or '.', of which the first is "
       "a letter or digit\n"
       "j.toml:2: 'folder' must begin with '/'; left out, it is where the job is submitted\n"
       "j.toml:3: 'gang.worker.command' is missing; write: command = [\"python\", \"train.py\"]\n"
       "j.toml:4: 'gang.worker.needs' names \"dta\", but no role has that name; did you mean "
       "'data'?\n"
       "j.toml:5: 'gang.worker.health' is for services; watch a gang or task with 'hang_after'\n"
       "j.toml:7: 'service.data.command' is missing; write: command = [\"python\", "
       "\"train.py\"]\n"
       "j.toml:8: 'service.data.spares' is for gangs; a service starts afresh\n"
       "j.toml:9: 'service.data.health' needs either a port or a command\n"
       "j.toml:10: 'sidecar.data' has the name of another role; give each its own\n"
       "j.toml:11: 'sidecar.data.beside' names a sidecar; write the role that 'other' is beside\n"
       "j.toml:12: 'sidecar.data.command' is missing; write: command = [\"python\", "
       "\"train.py\"]\n"
       "j.toml:13: 'sidecar.data.environment.RANK' is different in every process and set by "
       "tutti\n"
       "j.toml:17: 'sidecar.other.slots' is not for sidecars: they take no slots of their own; let "
       "the processes of their role take as many more\n"
       "j.toml:18: 'gang.odd name' needs another name: 1 to 63 letters, digits, '-', '_' or '.', "
       "of which the first is a letter or digit\n"
       "j.toml:20: 'gang.odd name.restarts.longest_delay' must not be shorter than 'delay'");
}

TEST_CASE("a role escalates as it says, the narrowest first, and mistakes have their lines") {
  const job::Spec spec = job_of(R"(name = "a"
[gang.g]
command = "x"
escalate = { job = 1, role = 0, host = 3 }
)");
  REQUIRE(spec.roles(0).escalate_size() == 2);
  CHECK(spec.roles(0).escalate(0).scope() == job::HOST);
  CHECK(spec.roles(0).escalate(0).restarts() == 3);
  CHECK(spec.roles(0).escalate(1).scope() == job::JOB);
  CHECK(mistakes_of(R"(name = "a"
[gang.g]
command = "x"
[gang.g.escalate]
role = -1
hots = 1
)") == "j.toml:5: 'gang.g.escalate.role' must be from 0 to 10000, not -1\n"
       "j.toml:6: unknown key 'gang.g.escalate.hots'; did you mean 'host'?");
  CHECK(mistakes_of(R"(name = "a"
[gang.g]
command = "x"
restarts = { killed = 0, out_of_memory = 0, host_lost = 0, hang = 0 }
escalate = { role = 1 }
)") == "j.toml:5: 'gang.g.escalate' comes after 'restarts', and nothing of this role is restarted; "
       "allow that there");
}

TEST_CASE("needs that go round are named, with the line of one of them") {
  CHECK(mistakes_of(R"(name = "a"
[gang.one]
command = "x"
needs = ["two"]
[task.two]
command = "x"
needs = ["one"]
)") == "j.toml:4: 'gang.one.needs' go round, so that none could start: one → two → one; take out "
       "one of them");
}

TEST_CASE("a file without a name or a role says what to write") {
  CHECK(mistakes_of("[gang.a]\ncommand = 'x'\n").ends_with("'name' is missing"));
  CHECK(mistakes_of("name = 'a'\n") ==
        "j.toml: the job has no role; add one, as [gang.worker] with a command");
}

TEST_CASE("a role is one table, not one of several") {
  CHECK(mistakes_of("name = 'a'\n[[gang.worker]]\ncommand = 'x'\n") ==
        "j.toml:2: 'gang.worker' must be the name of one role, with its keys below [gang.NAME]");
}

TEST_CASE("a file that is too large is not even parsed") {
  CHECK(mistakes_of(std::string(kMostJobBytes + 1, '[')) ==
        "j.toml: has 1.0 MiB; a job file has 1.0 MiB at most: keep large values elsewhere");
}

TEST_CASE("the examples are jobs") {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("examples/jobs")) {
    CAPTURE(entry.path().string());
    const auto parsed = parse_job_file(read_text(entry.path()), entry.path().string());
    CHECK_MESSAGE(parsed, (parsed ? "" : parsed.error().text()));
    ++files;
  }
  CHECK(files >= 3);
}

TEST_CASE("what the manual shows are jobs, and its whole example is the file it names") {
  const std::string manual = read_text("docs/jobs.md");
  constexpr std::string_view kBegin = "```toml\n";
  Words shown;
  for (size_t at = manual.find(kBegin); at != std::string::npos; at = manual.find(kBegin, at + 1)) {
    const size_t begin = at + kBegin.size();
    shown.push_back(manual.substr(begin, manual.find("```", begin) - begin));
    CHECK(mistakes_of(shown.back()) == "");
  }
  REQUIRE(!shown.empty());
  CHECK(shown.back() == read_text("examples/jobs/train.toml"));
}

}  // namespace
}  // namespace tutti
