#include "supervisor/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <span>

#include "base/assert.h"
#include "base/text.h"
#include "supervisor/cli/commands.h"
#include "supervisor/cli/completion.h"

namespace redrive {
namespace {

class PrintCommand : public CommandWith<PrintText> {
 public:
  explicit PrintCommand(std::string text) : CommandWith(kNoText) { options_.text = std::move(text); }

  void declare(Arguments&) override {}
  Result<void> finish(const Arguments&) override { return {}; }
  Result<int> run() override {
    fmt::print("{}", options_.text);
    return 0;
  }

 private:
  static constexpr CommandText kNoText{"", "", "", "", {}};
};

// One line for each word, its meanings below each other.
std::string explain(std::span<const Word> words) {
  const auto there = std::ranges::find_if(words, [](const Word& word) { return !word.name; });
  words = words.first(static_cast<size_t>(there - words.begin()));
  size_t longest = 0;
  for (const Word& word : words) longest = std::max(longest, std::strlen(word.name));
  std::string lines;
  for (const Word& word : words) {
    lines += fmt::format("{:<{}} {}\n", fmt::format("{}:", word.name), longest + 1, word.meaning);
  }
  return lines;
}

// The order for each command: usage, what it does, options, words.
class HelpFormatter : public CLI::Formatter {
 public:
  // `texts`: by the names of the commands.
  explicit HelpFormatter(std::map<std::string, const CommandText*> texts) : texts_(std::move(texts)) {
    column_width(28);
  }
  std::string make_description(const CLI::App*) const override { return ""; }
  std::string make_usage(const CLI::App* app, std::string) const override {
    if (app->get_parent() == nullptr) {
      return fmt::format("usage: redrive COMMAND ...\n\n{}\n", app->get_description());
    }
    const CommandText& text = *texts_.at(app->get_name());
    std::string summary = text.summary;
    summary[0] = static_cast<char>(std::toupper(summary[0]));
    return fmt::format("usage: {}\n\n{}.\n{}", text.synopsis, summary, text.details);
  }
  std::string make_positionals(const CLI::App*) const override { return ""; }
  std::string make_option_name(const CLI::Option* option, bool) const override {
    return fmt::format("{}", fmt::join(CLI::detail::split(option->get_name(false, true), ','), ", "));
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
  std::string make_footer(const CLI::App* app) const override {
    if (app->get_parent() == nullptr) {
      return "'redrive COMMAND --help' describes a command's options; redrive(1) describes everything.\n";
    }
    return explain(texts_.at(app->get_name())->words);
  }

 private:
  std::map<std::string, const CommandText*> texts_;
};

// CLI11's tree, made from the commands.
class Parser {
 public:
  // `name`: that of the command that is parsed. To declare all options of all commands would take longer than to parse.
  explicit Parser(const std::string& name = "");
  Result<std::unique_ptr<Command>> parse(std::vector<std::string> words);
  std::vector<CommandDescription> describe() const;

 private:
  struct Entry {
    Entry(std::unique_ptr<Command> command, CLI::App& app) : command(std::move(command)), arguments(app) {}
    std::unique_ptr<Command> command;
    Arguments arguments;
  };

  CLI::App app_{"Records unmodified multi-process programs and re-drives any interval of any process."};
  std::deque<Entry> entries_;  // the tree holds references into them
};

Parser::Parser(const std::string& name) {
  app_.name("redrive");
  app_.set_version_flag("--version", std::string("redrive ") + kVersion, "print the version");
  app_.set_help_flag("-h,--help", "print this help");
  app_.add_option("--completion", "print the completion script for a shell: bash, zsh, fish")->type_name("SHELL");
  app_.require_subcommand(1);
  auto commands = make_commands();
  const auto is_other = [&](const auto& command) { return command->text().name != name; };
  if (!std::all_of(commands.begin(), commands.end(), is_other)) std::erase_if(commands, is_other);
  std::map<std::string, const CommandText*> texts;
  for (const auto& command : commands) texts[command->text().name] = &command->text();
  app_.formatter(std::make_shared<HelpFormatter>(std::move(texts)));  // commands inherit it
  for (auto& command : commands) {
    CLI::App* const app = app_.add_subcommand(command->text().name, command->text().summary)->group("Commands");
    Entry& entry = entries_.emplace_back(std::move(command), *app);
    entry.command->declare(entry.arguments);
  }
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// Says which word is empty, as one of a variable that is not set is; nothing if none is.
std::optional<std::string> empty_word(const std::vector<std::string>& words, const Arguments& arguments) {
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.starts_with("--") && word.ends_with('=')) return word.substr(0, word.size() - 1) + ": its value is empty";
    if (!word.empty()) continue;
    return arguments.takes_value(words[i - 1]) ? words[i - 1] + ": its value is empty" : "an argument is empty";
  }
  return {};
}

// Of an option that was given without its value, or too often.
std::string text_of(const CLI::ArgumentMismatch& mismatch, const CLI::App& app) {
  const std::string text = mismatch.what();  // "-o: 1 required DIR missing"
  const std::string name = text.substr(0, text.find(':'));
  const CLI::Option* const option = app.get_option_no_throw(name);
  return name + (option && option->count() > 0 ? ": give it once" : ": its value is missing");
}

std::unique_ptr<Command> print(std::string text) { return std::make_unique<PrintCommand>(std::move(text)); }

Result<std::unique_ptr<Command>> Parser::parse(std::vector<std::string> words) {
  if (words.empty()) return Error{"no command given (redrive --help lists the commands)", Status::usage};
  const std::string name = words.front();
  if (name == "--completion") {
    ASSIGN_OR_RETURN(std::string script, completion_script(words.size() == 2 ? words[1] : "", describe()));
    return print(std::move(script));
  }
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& each) { return each.command->text().name == name; });
  if (is_option(name)) {
    if (name != "--help" && name != "-h" && name != "--version") {
      return Error{fmt::format("unknown option '{}' (redrive --help)", printable(name)), Status::usage};
    }
  } else if (entry == entries_.end()) {
    return Error{fmt::format("unknown command '{}' (redrive --help lists the commands)", printable(name)),
                 Status::usage};
  } else {
    entry->arguments.cut_rest(words);
    if (const auto empty = empty_word(words, entry->arguments)) return usage_error(name, *empty);
  }

  std::reverse(words.begin(), words.end());  // in the order that CLI11 expects
  try {
    app_.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return print(app_.help());
  } catch (const CLI::CallForVersion& version) {
    return print(std::string(version.what()) + "\n");
  } catch (const CLI::ExtrasError& error) {
    const std::string text = error.what();  // "The following argument was not expected: --x"
    return usage_error(name, fmt::format("unknown option '{}'", text.substr(text.find(": ") + 2)));
  } catch (const CLI::ArgumentMismatch& error) {
    return usage_error(name, text_of(error, *app_.get_subcommand(name)));
  } catch (const CLI::ParseError& error) {
    return usage_error(name, error.what());
  }
  ASSERT(entry != entries_.end());
  TRY(entry->command->finish(entry->arguments));
  return std::move(entry->command);
}

std::vector<CommandDescription> Parser::describe() const {
  std::vector<CommandDescription> all;
  for (const Entry& entry : entries_) {
    const CommandText& text = entry.command->text();
    std::vector<Names> names;
    for (const Word& word : text.words) names.push_back(word.names);
    all.push_back({text.name, text.synopsis, text.summary, std::move(names), entry.arguments.describe()});
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<Command>> parse_command_line(std::vector<std::string> words) {
  const std::string name = words.empty() ? "" : words.front();
  return Parser(name).parse(std::move(words));
}

std::vector<CommandDescription> describe_commands() { return Parser().describe(); }

}  // namespace redrive
