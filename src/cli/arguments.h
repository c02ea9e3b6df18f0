// The command line of a verb. CLI11 reads it, behind this header: its own takes longer to compile
// than a verb does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tutti::cli {

class Arguments {
 public:
  // What may still be said of an option.
  class Option {
   public:
    explicit Option(CLI::Option* option) : option_(option) {}
    Option required() const;
    Option between(uint32_t least, uint32_t most) const;

   private:
    CLI::Option* option_;
  };

  // `name` is how the verb is called: "tutti jobs".
  explicit Arguments(std::string description, std::string name = "");
  ~Arguments();
  Arguments(Arguments&&) noexcept;

  void name(std::string name);
  void footer(std::string text);
  // `names` as in "-n,--times"; a word without dashes is told by its place. `value` is left alone
  // when nothing is said, and lives until parse() is done. T is std::string, uint32_t, uint64_t, an
  // optional number, or a vector for what may be repeated: arguments.cc lists them.
  template <class T>
  Option add_option(std::string names, T& value, std::string help);
  void add_flag(std::string names, bool& value, std::string help);
  // A verb of the verb. It lives no longer than this.
  Arguments add_subcommand(std::string name, std::string description);

  // Nothing when the command is to go on, else the exit code: 0 after --help, 2 when called
  // wrongly.
  std::optional<int> parse(int argc, char** argv);
  // Whether this subcommand was named.
  bool parsed() const;
  std::string help() const;

 private:
  explicit Arguments(CLI::App* subcommand);

  std::unique_ptr<CLI::App> own_;  // none in a subcommand
  CLI::App* app_;
};

}  // namespace tutti::cli
