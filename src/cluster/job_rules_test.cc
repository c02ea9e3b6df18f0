#include "cluster/job_rules.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "cluster/job_defaults.h"
#include "cluster/job_file.h"
#include "cluster/job_limits.h"

namespace tutti {
namespace {

using namespace std::string_literals;

job::Role& add_role(job::Spec& spec, job::Role::Kind kind, std::string name) {
  job::Role& role = *spec.add_roles();
  role = default_role(kind);
  role.set_name(std::move(name));
  role.add_command("true");
  return role;
}

// worker (gang), data (service), prepare (task), watcher (sidecar)
job::Spec good_job() {
  job::Spec spec = default_job();
  spec.set_name("good");
  add_role(spec, job::Role::GANG, "worker");
  job::Health& health = *add_role(spec, job::Role::SERVICE, "data").mutable_health();
  health = default_health();
  health.set_port(80);
  add_role(spec, job::Role::TASK, "prepare");
  add_role(spec, job::Role::SIDECAR, "watcher").set_beside("worker");
  return spec;
}

// What is wrong with a good job after one change.
std::string mistakes_after(const std::function<void(job::Spec&)>& change) {
  job::Spec spec = good_job();
  change(spec);
  const auto checked = check_job(spec);
  return checked ? "" : checked.error().text();
}

std::string worker_after(const std::function<void(job::Role&)>& change) {
  return mistakes_after([&](job::Spec& spec) { change(*spec.mutable_roles(0)); });
}

std::string data_after(const std::function<void(job::Role&)>& change) {
  return mistakes_after([&](job::Spec& spec) { change(*spec.mutable_roles(1)); });
}

std::string watcher_after(const std::function<void(job::Role&)>& change) {
  return mistakes_after([&](job::Spec& spec) { change(*spec.mutable_roles(3)); });
}

TEST_CASE("a job made of the defaults keeps the rules") {
  CHECK(mistakes_after([](job::Spec&) {}).empty());
}

TEST_CASE("names are short and plain") {
  for (const std::string& name :
       {""s, "my job"s, "-a"s, "a/b"s, "ü"s, "a\n"s, "a\0"s, std::string(64, 'a')}) {
    CAPTURE(name);
    CHECK(mistakes_after([&](job::Spec& spec) {
            spec.set_name(name);
          }).starts_with("'name' must be 1"));
    CHECK(worker_after([&](job::Role& role) { role.set_name(name); }).find("needs another name") !=
          std::string::npos);
  }
  for (const std::string& name : {"a"s, "7B"s, "gpt-small_v1.5"s, std::string(63, 'a')})
    CHECK(mistakes_after([&](job::Spec& spec) { spec.set_name(name); }).empty());
}

TEST_CASE("a name that is refused cannot act upon the terminal, nor fill it") {
  const std::string text =
      worker_after([](job::Role& role) { role.set_name("\x1b[2J" + std::string(10'000, 'a')); });
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.size() < 1000);
}

TEST_CASE("two roles of one name are refused") {
  CHECK(data_after([](job::Role& role) { role.set_name("worker"); }) ==
        "role \"worker\" has the name of another role; give each its own");
}

TEST_CASE("sizes have limits") {
  const auto wrong = "role \"worker\": 'count' must be from 1 to 10000000, not "s;
  CHECK(worker_after([](job::Role& role) { role.set_count(0); }) == wrong + "0");
  CHECK(worker_after([](job::Role& role) { role.set_count(10'000'001); }) == wrong + "10000001");
  CHECK(worker_after([](job::Role& role) { role.set_per_host(4097); }) ==
        "role \"worker\": 'per_host' must be from 0 to 4096, not 4097");
  CHECK(worker_after([](job::Role& role) { role.set_slots(0); }) ==
        "role \"worker\": 'slots' must be from 1 to 4096, not 0");
  CHECK(worker_after([](job::Role& role) {
          role.set_command(0, "python");
          role.add_command("train.py");
          role.set_spares(257);
        }) == "role \"worker\": 'spares' must be from 0 to 256, not 257");
  CHECK(mistakes_after([](job::Spec& spec) {
          spec.set_open_files(UINT64_MAX);
        }).starts_with("'open_files' must be from 0 to 1073741824"));
}

TEST_CASE("a service may be too light for a slot") {
  CHECK(data_after([](job::Role& role) { role.set_slots(0); }).empty());
}

TEST_CASE("all roles together have no more processes than one may have") {
  CHECK(worker_after([](job::Role& role) { role.set_count(4'999'999); }).empty());
  CHECK(worker_after([](job::Role& role) { role.set_count(5'000'000); }) ==
        "the job has 10000002 processes; 10000000 is the most");
}

TEST_CASE("times are neither negative nor endless") {
  CHECK(mistakes_after([](job::Spec& spec) { spec.set_grace_ns(-1); }) ==
        "'grace' must be a time that is not negative, up to 87600h");
  CHECK(mistakes_after([](job::Spec& spec) {
          spec.set_timeout_ns(INT64_MAX);
        }).starts_with("'timeout' must be a time"));
  CHECK(
      mistakes_after([](job::Spec& spec) { spec.set_notice_ns(-1); }).starts_with("'notice' must"));
  CHECK(worker_after([](job::Role& role) { role.set_hang_after_ns(-1); }) ==
        "role \"worker\": 'hang_after' must be a time that is not negative, up to 87600h");
}

TEST_CASE("a command has a first word and no NUL") {
  for (const auto& command : {std::vector<std::string>{}, {""}, {"", "a"}}) {
    const std::string text = worker_after([&](job::Role& role) {
      role.clear_command();
      for (const std::string& word : command) role.add_command(word);
    });
    CHECK(text.starts_with("role \"worker\": 'command' is missing; write: command = ["));
  }
  CHECK(worker_after([](job::Role& role) {
          role.add_command("a\0b"s);
        }).starts_with("role \"worker\": 'command' has a NUL byte"));
  CHECK(worker_after([](job::Role& role) { role.add_command(""); }).empty());
}

TEST_CASE("environment entries are KEY=value, once, and not those that tutti sets") {
  const auto with = [](std::string entry) {
    return worker_after([&](job::Role& role) {
      role.add_environment("A=1");
      role.add_environment(entry);
    });
  };
  CHECK(with("B==x=").empty());
  CHECK(with("B=").empty());
  CHECK(with("B") ==
        "role \"worker\": 'environment' has \"B\"; write a name and a value: KEY=value");
  CHECK(with("=b").starts_with("role \"worker\": 'environment' has \"=b\""));
  CHECK(with("B=\0"s).starts_with("role \"worker\": \"B\" in 'environment' has a NUL byte"));
  CHECK(with("A=2") == "role \"worker\": \"A\" in 'environment' is set twice; leave one");
  CHECK(with("RANK=0").starts_with("role \"worker\": \"RANK\" in 'environment' is different in"));
  CHECK(mistakes_after([](job::Spec& spec) {
          spec.add_environment("B");
        }).starts_with("'environment' has \"B\""));
}

TEST_CASE("folders are paths, that of the job from the root") {
  CHECK(mistakes_after([](job::Spec& spec) { spec.set_folder("/a"); }).empty());
  CHECK(mistakes_after([](job::Spec& spec) {
          spec.set_folder("a");
        }).starts_with("'folder' must begin with '/'"));
  CHECK(mistakes_after([](job::Spec& spec) { spec.set_folder("/a\0"s); }).starts_with("'folder'"));
  CHECK(worker_after([](job::Role& role) { role.set_folder("a"); }).empty());
  CHECK(worker_after([](job::Role& role) { role.set_folder("a\0"s); }).find("'folder' has a NUL") !=
        std::string::npos);
}

TEST_CASE("what a role needs is there") {
  CHECK(worker_after([](job::Role& role) { role.add_needs("prepare"); }).empty());
  CHECK(worker_after([](job::Role& role) { role.add_needs("prepar"); }) ==
        "role \"worker\": 'needs' names \"prepar\", but no role has that name; did you mean "
        "'prepare'?");
  CHECK(worker_after([](job::Role& role) { role.add_needs("watcher"); }) ==
        "role \"worker\": 'needs' names a sidecar; write the role that 'watcher' is beside");
}

TEST_CASE("needs that go round are named") {
  CHECK(mistakes_after([](job::Spec& spec) {
          spec.mutable_roles(0)->add_needs("data");
          spec.mutable_roles(1)->add_needs("prepare");
          spec.mutable_roles(2)->add_needs("worker");
        }) ==
        "role \"worker\": 'needs' go round, so that none could start: worker → data → prepare → "
        "worker; take out one of them");
}

TEST_CASE("a sidecar is beside one role that is no sidecar, and as many as that") {
  CHECK(watcher_after([](job::Role& role) { role.clear_beside(); }) ==
        "role \"watcher\": 'beside' is missing; write the role that this is beside");
  CHECK(watcher_after([](job::Role& role) {
          role.set_beside("workr");
        }).ends_with("no role has that name; did you mean 'worker'?"));
  CHECK(watcher_after([](job::Role& role) {
          role.set_beside("watcher");
        }).find("names a sidecar") != std::string::npos);
  CHECK(worker_after([](job::Role& role) { role.set_beside("data"); }) ==
        "role \"worker\": 'beside' is for sidecars; write [sidecar.worker] instead");
  CHECK(watcher_after([](job::Role& role) {
          role.set_count(1);
        }).find("'count' is not for sidecars") != std::string::npos);
  CHECK(watcher_after([](job::Role& role) {
          role.set_per_host(1);
        }).find("'per_host' is not for") != std::string::npos);
  CHECK(watcher_after([](job::Role& role) {
          role.set_slots(2);
        }).find("'slots' is not for sidecars: they take no slots") != std::string::npos);
  CHECK(watcher_after([](job::Role& role) { role.add_needs("data"); }).find("'needs' is not for") !=
        std::string::npos);
}

TEST_CASE("health is for services, by a port or by a command") {
  using Change = std::function<void(job::Health&)>;
  const auto with = [](const Change& change) {
    return data_after([&](job::Role& role) { change(*role.mutable_health()); });
  };
  CHECK(worker_after([](job::Role& role) { role.mutable_health()->set_port(80); }) ==
        "role \"worker\": 'health' is for services; watch a gang or task with 'hang_after'");
  CHECK(watcher_after([](job::Role& role) { role.mutable_health()->set_port(80); }) ==
        "role \"watcher\": 'health' is for services");
  const auto neither = "role \"data\": 'health' needs either a port or a command";
  CHECK(with([](job::Health& health) { health.set_port(0); }) == neither);
  CHECK(with([](job::Health& health) { health.add_command("true"); }) == neither);
  CHECK(with([](job::Health& health) { health.set_port(65536); }) ==
        "role \"data\": \"port\" in 'health' must be from 1 to 65535, not 65536");
  CHECK(with([](job::Health& health) { health.set_path("/health?deep=1"); }).empty());
  for (const char* path : {"health", "/a b", "/a\r\nHost: b", "/ü"})
    CHECK(with([&](job::Health& health) { health.set_path(path); }).find("must begin with '/'") !=
          std::string::npos);
  CHECK(with([](job::Health& health) {
          health.set_port(0);
          health.add_command("true");
          health.set_path("/a");
        }) == "role \"data\": \"path\" in 'health' needs a port to ask at");
  CHECK(with([](job::Health& health) { health.set_every_ns(0); }) ==
        "role \"data\": \"every\" in 'health' must be a time longer than 0, up to 87600h");
  CHECK(with([](job::Health& health) { health.set_timeout_ns(0); }).find("\"timeout\"") !=
        std::string::npos);
  CHECK(with([](job::Health& health) { health.set_start_ns(-1); }).find("\"start\"") !=
        std::string::npos);
  CHECK(with([](job::Health& health) { health.set_failures(0); }).find("\"failures\"") !=
        std::string::npos);
}

TEST_CASE("spares are for gangs, and modules for spares") {
  const auto spares = [](job::Role& role) {
    role.clear_command();
    role.add_command("/usr/bin/python3");
    role.add_command("train.py");
    role.set_spares(1);
    role.add_preload("torch.nn");
  };
  CHECK(worker_after(spares).empty());
  CHECK(data_after(spares) == "role \"data\": 'spares' is for gangs; a service starts afresh");
  CHECK(worker_after([](job::Role& role) {
          role.add_preload("numpy");
        }).ends_with("'preload' is what spares import, and there are none; add: spares = 1"));
  CHECK(worker_after([](job::Role& role) { role.set_spares(1); }) ==
        "role \"worker\": 'spares' is for Python programs, whose command begins with \"python\"");
  for (const char* module : {"", "1a", "a..b", ".a", "a.", "a-b", "os; evil()", "a.1"}) {
    CAPTURE(module);
    CHECK(worker_after([&](job::Role& role) {
            spares(role);
            role.add_preload(module);
          }).find("no name of a Python module") != std::string::npos);
  }
}

TEST_CASE("hangs are looked for in gangs and tasks") {
  CHECK(worker_after([](job::Role& role) { role.set_hang_after_ns(1); }).empty());
  CHECK(data_after([](job::Role& role) { role.set_hang_after_ns(1); }) ==
        "role \"data\": 'hang_after' is for gangs and tasks; a service is watched with 'health'");
}

TEST_CASE("budgets are one for each class, bounded, and of sound pace") {
  using Change = std::function<void(job::Budget&)>;
  const auto with = [](const Change& change) {
    return worker_after([&](job::Role& role) { change(*role.mutable_budgets(0)); });
  };
  CHECK(with([](job::Budget& budget) { budget.set_error(job::USER_ERROR); }).empty());
  CHECK(with([](job::Budget& budget) { budget.set_restarts(kAlwaysRestart); }).empty());
  CHECK(with([](job::Budget& budget) { budget.set_restarts(10'001); }) ==
        "role \"worker\": \"killed\" in 'restarts' must be from 0 to 10000, not 10001");
  CHECK(with([](job::Budget& budget) { budget.set_error(job::HANG); }) ==
        "role \"worker\": \"hang\" in 'restarts' is there twice; leave one");
  CHECK(with([](job::Budget& budget) { budget.set_error(job::NONE); }) ==
        "role \"worker\": \"finished\" in 'restarts' is for services and sidecars; a gang that "
        "finished is done");
  CHECK(with([](job::Budget& budget) { budget.set_period_ns(-1); }).find("\"period\"") !=
        std::string::npos);
  CHECK(with([](job::Budget& budget) { budget.set_longest_delay_ns(1); }) ==
        "role \"worker\": \"longest_delay\" in 'restarts' must not be shorter than 'delay'");
  CHECK(worker_after([](job::Role& role) {
          role.mutable_budgets(3)->set_delay_ns(-1);
        }).find("\"delay\" in 'restarts' must be a time") != std::string::npos);
}

TEST_CASE("a notice is a signal that can be heard") {
  for (const int signal : {0, SIGUSR1, SIGINT})
    CHECK(mistakes_after([&](job::Spec& spec) { spec.set_notice_signal(signal); }).empty());
  for (const int signal : {-1, 65, SIGKILL, SIGSTOP})
    CHECK(mistakes_after([&](job::Spec& spec) {
            spec.set_notice_signal(signal);
          }).starts_with("'notice_signal' must be a signal"));
}

TEST_CASE("numbers of a newer version are refused") {
  CHECK(mistakes_after([](job::Spec& spec) { spec.set_strategy(job::Strategy(9)); }) ==
        "'strategy' must be one of one_for_all, one_for_one, rest_for_one");
  CHECK(worker_after([](job::Role& role) {
          role.set_strategy(job::Strategy(9));
        }).starts_with("role \"worker\": 'strategy' must be one of"));
  CHECK(worker_after([](job::Role& role) {
          role.set_kind(job::Role::Kind(9));
        }).starts_with("role \"worker\" is of kind 9"));
  CHECK(worker_after([](job::Role& role) {
          role.mutable_budgets(0)->set_error(job::ErrorClass(9));
        }) == "role \"worker\": 'restarts' has error class 9, which this version does not know");
}

TEST_CASE("a job has roles, but not too many, and is not too large") {
  CHECK(mistakes_after([](job::Spec& spec) { spec.clear_roles(); }) ==
        "the job has no role; add one, as [gang.worker] with a command");
  CHECK(mistakes_after([](job::Spec& spec) {
          for (int i = 0; i < 253; ++i) add_role(spec, job::Role::TASK, fmt::format("t{}", i));
        }) == "the job has 257 roles; 256 is the most: one role may have many processes");
  CHECK(mistakes_after([](job::Spec& spec) {
          spec.add_environment("A=" + std::string(kMostJobBytes, 'a'));
        }) == "the job takes 1.0 MiB; 1.0 MiB is the most: keep large values in files");
}

TEST_CASE("all mistakes are told, up to a bound") {
  const std::string text = mistakes_after([](job::Spec& spec) {
    spec.set_name("");
    for (int i = 0; i < 30; ++i) spec.add_environment(fmt::format("E{}", i));
  });
  CHECK(std::ranges::count(text, '\n') == 20);
  CHECK(text.ends_with("\nand 11 more"));
}

}  // namespace
}  // namespace tutti
