#include "cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/complain.h"

namespace tutti::cli {

namespace {

// "Could not convert: JOB = abc" leaves open what would do; only numbers are converted.
std::string in_our_words(const CLI::ParseError& error) {
  std::string words = error.what();
  constexpr std::string_view kNoNumber = "Could not convert: ";
  const size_t value = words.find(" = ");
  if (words.starts_with(kNoNumber) && value != std::string::npos)
    return fmt::format("{}: '{}' is not a number",
                       words.substr(kNoNumber.size(), value - kNoNumber.size()),
                       words.substr(value + 3));
  return words;
}

}  // namespace

Arguments::Option Arguments::Option::required() const { return Option(option_->required()); }

Arguments::Option Arguments::Option::between(uint32_t least, uint32_t most) const {
  return Option(option_->check(CLI::Range(least, most)));
}

Arguments::Arguments(std::string description, std::string name)
    : own_(std::make_unique<CLI::App>(std::move(description), std::move(name))), app_(own_.get()) {}
Arguments::Arguments(CLI::App* subcommand) : app_(subcommand) {}
Arguments::Arguments(Arguments&&) noexcept = default;
Arguments::~Arguments() = default;

void Arguments::name(std::string name) { app_->name(std::move(name)); }
void Arguments::footer(std::string text) { app_->footer(std::move(text)); }

template <class T>
Arguments::Option Arguments::add_option(std::string names, T& value, std::string help) {
  return Option(app_->add_option(std::move(names), value, std::move(help)));
}
template Arguments::Option Arguments::add_option(std::string, std::string&, std::string);
template Arguments::Option Arguments::add_option(std::string, uint32_t&, std::string);
template Arguments::Option Arguments::add_option(std::string, uint64_t&, std::string);
template Arguments::Option Arguments::add_option(std::string, std::optional<uint32_t>&,
                                                 std::string);
template Arguments::Option Arguments::add_option(std::string, std::optional<int64_t>&, std::string);
template Arguments::Option Arguments::add_option(std::string, std::vector<uint64_t>&, std::string);
template Arguments::Option Arguments::add_option(std::string, std::vector<std::string>&,
                                                 std::string);

void Arguments::add_flag(std::string names, bool& value, std::string help) {
  app_->add_flag(std::move(names), value, std::move(help));
}

Arguments Arguments::add_subcommand(std::string name, std::string description) {
  return Arguments(app_->add_subcommand(std::move(name), std::move(description)));
}

std::optional<int> Arguments::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help
    return app_->exit(done);
  } catch (const CLI::ParseError& error) {
    const std::string name = app_->get_name();
    fmt::print(stderr, "{0}: {1}; {0} --help says what there is\n", name, in_our_words(error));
    return kCalledWrongly;
  }
  return {};
}

bool Arguments::parsed() const { return app_->parsed(); }
std::string Arguments::help() const { return app_->help(); }

}  // namespace tutti::cli
