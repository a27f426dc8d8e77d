// The arguments of one command: what it takes, and where the values go. Only arguments.cc and command_line.cc know the
// library that parses them (CLI11).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace redrive {

// The parser's description of an option. Completions are made from it, and a test compares it with the man page and
// --help.
struct OptionDescription {
  std::string name;   // "-o", "--bound"; never --help
  std::string value;  // "DIR", "D"; empty if it takes none
  std::string help;
  int most_values = 0;               // words that it may take each time it is given
  std::vector<std::string> choices;  // its values, if only these are allowed
};

// A number from `least` to `most`, or a duration greater than 0. An Error says what is wrong with the text.
Result<uint64_t> read_number(const std::string& text, uint64_t least, uint64_t most);
Result<double> read_duration(const std::string& text);

class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(app) {}
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // What a command takes, in the order of its help. All strings except `help` must outlive the parser.

  void flag(const char* name, bool& flag, const std::string& help);
  // Reads an option's value. An Error says what is wrong with it, without the option's name.
  using Read = std::function<Result<void>(const std::string&)>;
  void option(const char* name, const char* value, const std::string& help, const Read& read);
  // Takes values separated by commas: `read` gets one at a time.
  void list(const char* name, const char* value, const std::string& help, const Read& read);
  // May be given several times, with one value each.
  void each(const char* name, const char* value, const std::string& help, const Read& read);
  // Takes one of a few words as its value.
  void choice(const char* name, const char* value, const std::string& help, const std::vector<std::string>& choices,
              const std::function<void(const std::string&)>& set);
  void number(const char* name, const char* value, uint64_t least, uint64_t most, const std::string& help,
              const std::function<void(uint64_t)>& set);
  void duration(const char* name, const char* value, const std::string& help, const std::function<void(double)>& set);
  void json(bool& flag) { this->flag("--json", flag, "write JSON"); }
  // Words that are not options.
  void words();
  // Takes all words from the first on that is neither an option nor an option's value, whatever they look like.
  void rest(std::vector<std::string>& words) { rest_ = &words; }

  // What was given.

  size_t count(const char* name) const;
  bool has_words() const { return !words_.empty(); }
  const std::vector<std::string>& given_words() const { return words_; }

  // For the parser.

  std::vector<OptionDescription> describe() const;
  bool takes_value(const std::string& option) const;  // false if there is none of this name
  // Removes the words for rest() from `words`, which begin with the command's name.
  void cut_rest(std::vector<std::string>& words) const;

 private:
  CLI::App& app_;
  std::vector<std::string> words_;
  std::vector<std::string>* rest_ = nullptr;
  std::map<const CLI::Option*, std::vector<std::string>> choices_;
};

}  // namespace redrive
