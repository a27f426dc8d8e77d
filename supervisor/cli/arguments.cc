#include "supervisor/cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/text.h"
#include "base/units.h"

namespace redrive {
namespace {

// Reports a wrong value in the way that CLI11 expects.
void check(const char* name, const Result<void>& read) {
  if (!read) throw CLI::ValidationError(name, read.error().message);
}

}  // namespace

Result<uint64_t> read_number(const std::string& text, uint64_t least, uint64_t most) {
  const auto number = parse_number(text);
  if (!number || *number < least || *number > most) {
    return Error{fmt::format("'{}' is not a number from {} to {}", text, least, most), Status::usage};
  }
  return *number;
}

Result<double> read_duration(const std::string& text) {
  ASSIGN_OR_RETURN(const double seconds, parse_duration(text));
  if (seconds <= 0) return Error{"must be greater than 0", Status::usage};
  return seconds;
}

void Arguments::flag(const char* name, bool& flag, const std::string& help) {
  app_.add_flag(name, flag, help)->disable_flag_override();  // no --flag=value
}

void Arguments::option(const char* name, const char* value, const std::string& help, const Read& read) {
  const auto take = [name, read](const std::string& text) { check(name, read(text)); };
  app_.add_option_function<std::string>(name, take, help)->type_name(value);
}

void Arguments::list(const char* name, const char* value, const std::string& help, const Read& read) {
  const auto take = [name, read](const std::string& text) {
    for (const auto& word : CLI::detail::split(text, ',')) check(name, read(word));
  };
  app_.add_option_function<std::string>(name, take, help)->type_name(value);
}

void Arguments::each(const char* name, const char* value, const std::string& help, const Read& read) {
  // An option for a vector would take every word that follows.
  const CLI::callback_t take = [name, read](const CLI::results_t& texts) {
    for (const auto& text : texts) check(name, read(text));
    return true;
  };
  app_.add_option(name, take, help)->type_name(value)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Arguments::choice(const char* name, const char* value, const std::string& help,
                       const std::vector<std::string>& choices, const std::function<void(const std::string&)>& set) {
  const auto take = [name, choices, set](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      throw CLI::ValidationError(name,
                                 fmt::format("unknown value '{}' (choose from {})", text, fmt::join(choices, ", ")));
    }
    set(text);
  };
  choices_[app_.add_option_function<std::string>(name, take, help)->type_name(value)] = choices;
}

void Arguments::number(const char* name, const char* value, uint64_t least, uint64_t most, const std::string& help,
                       const std::function<void(uint64_t)>& set) {
  option(name, value, help, [least, most, set](const std::string& text) -> Result<void> {
    ASSIGN_OR_RETURN(const uint64_t number, read_number(text, least, most));
    set(number);
    return {};
  });
}

void Arguments::duration(const char* name, const char* value, const std::string& help,
                         const std::function<void(double)>& set) {
  option(name, value, help, [set](const std::string& text) -> Result<void> {
    ASSIGN_OR_RETURN(const double seconds, read_duration(text));
    set(seconds);
    return {};
  });
}

void Arguments::words() { app_.add_option("words", words_); }

size_t Arguments::count(const char* name) const { return app_.count(name); }

std::vector<OptionDescription> Arguments::describe() const {
  std::vector<OptionDescription> options;
  for (const CLI::Option* option : app_.get_options()) {
    const bool takes_value = option->get_items_expected_max() > 0;
    OptionDescription described{"",
                                takes_value ? option->get_type_name() : "",
                                option->get_description(),
                                option->get_items_expected_max(),
                                {}};
    if (const auto known = choices_.find(option); known != choices_.end()) described.choices = known->second;
    for (const auto& name : option->get_snames()) options.emplace_back(described).name = "-" + name;
    for (const auto& name : option->get_lnames()) options.emplace_back(described).name = "--" + name;
  }
  std::erase_if(options, [](const auto& option) { return option.name == "-h" || option.name == "--help"; });
  return options;
}

bool Arguments::takes_value(const std::string& option) const {
  const CLI::Option* const found = app_.get_option_no_throw(option);
  return found != nullptr && found->get_items_expected_max() > 0;
}

// CLI11 would take a misspelt option for the first of these words.
void Arguments::cut_rest(std::vector<std::string>& words) const {
  if (!rest_) return;
  const auto is_option = [](const std::string& word) { return word.size() > 1 && word[0] == '-'; };
  auto at = words.begin() + 1;
  while (at != words.end() && is_option(*at) && *at != "--") {
    at += takes_value(*at) && at + 1 != words.end() ? 2 : 1;
  }
  rest_->assign(at, words.end());
  words.erase(at, words.end());
  if (!rest_->empty() && rest_->front() == "--") rest_->erase(rest_->begin());
}

}  // namespace redrive
