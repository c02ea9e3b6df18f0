#include "cli/run_options.h"

#include <algorithm>
#include <charconv>

#include "base/suggest.h"
#include "cluster/gang.h"

namespace tutti::cli {

const std::string_view kRunHelp =
    R"(tutti run: start a gang of processes and end it as one

usage: tutti run [-n RANKS] [options] [--] COMMAND [ARGUMENTS…]
       tutti run JOB.toml [options]

Where a cluster runs (see `tutti up`), it runs there as a job; else on this machine, as a child of
this command. For a job file without a cluster one is begun, for this run alone.

  -n RANKS          how many to start (1); a job file says it itself
  --timeout TIME    end everything after this long, with exit code 124: 90s, 10m, 1h30m
  --grace TIME      between SIGTERM and SIGKILL when ranks are ended (5s)
  --env KEY=VALUE   set for every rank; may be repeated
  --cwd DIR         the folder the ranks start in
  --no-prefix       print what ranks print, without [rank] before each line
  --json            print events (start, output, exit, verdict) as JSON lines
  --local           on this machine, as a child of this command, cluster or not
  --cluster         as a job of the cluster, or not at all
  --no-cgroup       keep track of processes without a cgroup; only of a child of this command

Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as from
torchrun; its standard input is /dev/null. When one fails, the others are ended and you are told
which was first, and why; its exit code is the command's. Nothing a rank started outlives the
command.

examples:
  tutti run -n 4 -- python train.py --epochs 3
  tutti run -n 8 --timeout 10m --env NCCL_DEBUG=INFO -- ./step
  tutti run -n 2 --json -- python train.py | jq 'select(.event == "exit")'
)";

namespace {

constexpr std::string_view kOptionNames[] = {
    "-n",          "--timeout",   "--grace", "--env",     "--cwd",   "--json", "--help",
    "--no-prefix", "--no-cgroup", "--local", "--cluster", "--array", "--wait"};
constexpr std::string_view kWorkers = "--workers";
constexpr std::string_view kMesh = "--mesh";
constexpr std::string_view kRestarts = "--restarts";
constexpr std::string_view kSpares = "--spares";
// What other launchers call -n.
constexpr std::string_view kRanksElsewhere[] = {"-np", "--np", "--nproc", "--nproc-per-node",
                                                "--nproc_per_node"};
// Some are added up, and to what a clock says: the sum stays within a Duration.
constexpr Duration kLongestTime = 24h * 3650;

class Parser {
 public:
  Parser(std::span<char* const> words, std::string_view verb)
      : words_(words), verb_(verb), submitting_(verb == "submit") {}

  Result<RunOptions> parse() {
    while (next_ < words_.size()) {
      const std::string_view word = words_[next_];
      if (word == "--") {
        ++next_;
        break;
      }
      if (word.starts_with('-') && word != "-") {
        ++next_;
        TRY_DO(option(word));
        continue;
      }
      // What follows a command is its own; what follows a job file is ours.
      if (verb_ == "train" || !word.ends_with(".toml")) break;
      options_.command.emplace_back(word);
      ++next_;
    }
    if (!options_.command.empty()) TRY_DO(check_job_files());
    if (verb_ == "train") {
      TRY_DO(take_trained());
    } else {
      for (; next_ < words_.size(); ++next_) options_.command.emplace_back(words_[next_]);
    }
    if (options_.local && options_.cluster)
      return fail(Code::invalid, "--local and --cluster exclude each other");
    if (options_.command.empty() && !options_.help && verb_ == "train")
      return fail(Code::invalid, "no file to train with: tutti train examples/gpt.py --steps=100");
    if (options_.command.empty() && !options_.help)
      return fail(Code::invalid,
                  "no command to run; write it after --: tutti {} -n 4 -- python train.py", verb_);
    return std::move(options_);
  }

 private:
  Result<void> check_job_files() const {
    if (next_ < words_.size())
      return fail(Code::invalid,
                  "'{}' after job file {}: a job file takes no arguments; to run a command of that "
                  "name, write it after --",
                  words_[next_], options_.command.back());
    if (options_.command.size() > 1 && !submitting_)
      return fail(Code::invalid,
                  "{} job files, and one is run at a time; `tutti submit` takes many",
                  options_.command.size());
    if (options_.says_ranks)
      return fail(Code::invalid, "-n: {} says how many there are; change `count` in it",
                  options_.command.front());
    return {};
  }

  // A file and its own options; among which what is said of workers is ours, wherever it stands,
  // and the mesh is both's: it says how many there are.
  Result<void> take_trained() {
    if (next_ < words_.size()) options_.command.emplace_back(words_[next_++]);
    while (next_ < words_.size()) {
      const std::string_view word = words_[next_++];
      const std::string_view name = word.substr(0, word.find('='));
      if (name == kWorkers || name == kMesh || name == kRestarts || name == kSpares) {
        TRY_DO(option(word));
      } else {
        options_.command.emplace_back(word);
      }
    }
    if (mesh_.empty()) return {};
    if (!options_.command.empty()) options_.command.push_back(fmt::format("{}={}", kMesh, mesh_));
    const auto size = size_of_mesh(mesh_);
    if (!size) return {};  // who trains says what is wrong with it
    if (!options_.says_ranks) options_.ranks = *size;
    if (options_.ranks == *size) return {};
    return fail(Code::invalid, "the mesh {} is of {} workers, not {}: --workers {} --mesh {}",
                mesh_, *size, options_.ranks, *size, mesh_);
  }

  // The product of its axes: of "dp=2,tp=2" four.
  static std::optional<uint32_t> size_of_mesh(std::string_view mesh) {
    uint64_t size = 1;
    while (!mesh.empty()) {
      const std::string_view axis = mesh.substr(0, mesh.find(','));
      mesh.remove_prefix(std::min(mesh.size(), axis.size() + 1));
      const std::string_view digits = axis.substr(std::min(axis.size(), axis.find('=') + 1));
      uint32_t count = 0;
      const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), count);
      if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || count == 0)
        return std::nullopt;
      size *= count;
      if (size > kMostProcesses) return std::nullopt;
    }
    return static_cast<uint32_t>(size);
  }

  Result<void> option(std::string_view word) {
    name_ = word;
    attached_.reset();
    const size_t equals = word.find('=');
    if (word.starts_with("--") && equals != std::string_view::npos) {
      name_ = word.substr(0, equals);
      attached_ = word.substr(equals + 1);
    }
    if (std::ranges::find(kRanksElsewhere, name_) != std::end(kRanksElsewhere))
      return fail(Code::invalid, "there is no option '{}'; the number of ranks is given as: -n 4",
                  name_);
    if (word.starts_with("-n") && word.size() > 2) {
      name_ = "-n";
      attached_ = word.substr(2);
    }
    if (name_ == "-h" || name_ == "--help") return flag(options_.help, true);
    if (name_ == "--json") return flag(options_.json, true);
    if (name_ == "--no-prefix") return flag(options_.prefix, false);
    if (name_ == "--no-cgroup") return flag(options_.use_group, false);
    if (name_ == "--local") return flag(options_.local, true);
    if (name_ == "--cluster") return flag(options_.cluster, true);
    if ((name_ == "--array" || name_ == "--wait") && !submitting_)
      return fail(Code::invalid, "{} is an option of `tutti submit`", name_);
    if (name_ == "--wait") return flag(options_.wait, true);
    return option_with_value();
  }

  Result<void> option_with_value() {
    if (name_ == "-n") return ranks();
    if (verb_ == "train" && name_ == kWorkers) return ranks();
    if (verb_ == "train" && name_ == kMesh) {
      TRY(mesh_, value("axes"));
      return {};
    }
    if (verb_ == "train" && name_ == kRestarts) return number(options_.restarts.emplace(), 10'000);
    if (verb_ == "train" && name_ == kSpares) return number(options_.spares, 256);
    if (name_ == "--array") return array();
    if (name_ == "--timeout") {
      options_.timeout.emplace();
      TRY_DO(duration(*options_.timeout, "10m"));
      if (*options_.timeout > 0s) return {};
      return fail(Code::invalid,
                  "--timeout 0 leaves no time to run; without --timeout there is no limit");
    }
    if (name_ == "--grace") {
      options_.says_grace = true;
      return duration(options_.grace, "5s");
    }
    if (name_ == "--env") return setting();
    if (name_ == "--cwd") {
      TRY(options_.folder, value("a folder"));
      return {};
    }
    const auto meant = suggest(name_, kOptionNames);
    return fail(Code::invalid, "there is no option '{}'; {}", name_,
                meant ? fmt::format("did you mean {}?", *meant)
                      : fmt::format("see: tutti {} --help", verb_));
  }

  Result<void> flag(bool& which, bool state) const {
    if (attached_) return fail(Code::invalid, "{} takes no value", name_);
    which = state;
    return {};
  }

  Result<std::string> value(std::string_view what) {
    if (attached_) return std::string(*attached_);
    if (next_ == words_.size()) return fail(Code::invalid, "{} needs {} after it", name_, what);
    return std::string(words_[next_++]);
  }

  Result<void> ranks() {
    TRY(const std::string text, value("a number"));
    uint32_t count = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), count);
    const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
    if (!whole || count == 0 || count > kMostProcesses)
      return fail(Code::invalid, "{0} {1}: write how many to start, 1 to {2}: {0} 4", name_, text,
                  kMostProcesses);
    options_.ranks = count;
    options_.says_ranks = true;
    return {};
  }

  Result<void> number(uint32_t& into, uint32_t most) {
    TRY(const std::string text, value("a number"));
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), into);
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && into <= most)
      return {};
    return fail(Code::invalid, "{0} {1}: write a number, 0 to {2}: {0} 1", name_, text, most);
  }

  Result<void> array() {
    TRY(const std::string text, value("numbers"));
    auto parsed = RangeSet::parse(text);
    if (!parsed || parsed->empty())
      return fail(Code::invalid, "--array {}: write the numbers of the jobs: --array 0-99", text);
    if (parsed->size() > kMostInArray)
      return fail(Code::invalid, "--array {}: {} jobs, and {} can be submitted at once", text,
                  parsed->size(), kMostInArray);
    options_.array = std::move(*parsed);
    return {};
  }

  Result<void> duration(Duration& into, std::string_view example) {
    TRY(const std::string text, value("a time"));
    auto parsed = parse_duration(text);
    if (!parsed)
      return fail(Code::invalid, "{}; {} {}, for instance", parsed.error().text(), name_, example);
    if (*parsed < 0s || *parsed > kLongestTime)
      return fail(Code::invalid, "{} {}: too {}; write a time up to {}: {} {}", name_, text,
                  *parsed < 0s ? "short" : "long", format_duration(kLongestTime), name_, example);
    into = *parsed;
    return {};
  }

  Result<void> setting() {
    TRY(std::string text, value("KEY=VALUE"));
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      return fail(Code::invalid, "--env {}: write it as KEY=VALUE", text);
    const std::string_view start = std::string_view(text).substr(0, equals + 1);
    const std::string_view value = std::string_view(text).substr(equals + 1);
    if (start == "MASTER_PORT=") return master_port(value);
    for (const std::string& own : rank_environment(0, 1))
      if (own.starts_with(start))
        return fail(Code::invalid, "--env {}: every rank gets its own {} from tutti, see -n", text,
                    text.substr(0, equals));
    if (start == "MASTER_ADDR=") {
      options_.master_address = value;
    } else {
      options_.environment.push_back(std::move(text));
    }
    return {};
  }

  Result<void> master_port(std::string_view text) {
    const auto parsed =
        std::from_chars(text.data(), text.data() + text.size(), options_.master_port);
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() &&
        options_.master_port != 0)
      return {};
    return fail(Code::invalid, "--env MASTER_PORT={}: write a port, 1 to 65535", text);
  }

  std::span<char* const> words_;
  std::string_view verb_;
  bool submitting_;
  size_t next_ = 0;
  std::string_view name_;
  std::optional<std::string_view> attached_;
  std::string mesh_;
  RunOptions options_;
};

}  // namespace

Result<RunOptions> parse_run_options(std::span<char* const> words) {
  return Parser(words, "run").parse();
}

Result<RunOptions> parse_submit_options(std::span<char* const> words) {
  return Parser(words, "submit").parse();
}

Result<RunOptions> parse_train_options(std::span<char* const> words) {
  return Parser(words, "train").parse();
}

}  // namespace tutti::cli
