// One command of redrive: its texts, the arguments that it takes, what is wrong with their combination, and what it
// does. Each is a class in its own file; commands.cc lists them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "supervisor/cli/arguments.h"

namespace redrive {

// Names with which shells complete a word.
enum class Names : uint8_t { none, traces, units, sessions };

// A word of a synopsis, and what it stands for.
struct Word {
  const char* name = nullptr;
  const char* meaning = nullptr;
  Names names = Names::none;
};

// `summary` is shown in the list of commands and, with a full stop, in the command's help.
struct CommandText {
  const char* name;
  const char* synopsis;
  const char* summary;
  const char* details;
  std::array<Word, 4> words;  // those without a name are not there
};

// An error in the use of the command of this name.
Error usage_error(const std::string& command, const std::string& what);

class Command {
 public:
  // The text must outlive the command.
  explicit Command(const CommandText& text) : text_(text) {}
  virtual ~Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  const CommandText& text() const { return text_; }
  // Declares what the command takes. Values are stored in the command, which must outlive `arguments`.
  virtual void declare(Arguments& arguments) = 0;
  // Called when all values have been read. An Error has Status::usage and one line.
  virtual Result<void> finish(const Arguments& arguments) = 0;
  // Writes the result to standard output, and progress and warnings to standard error. Returns the exit status, or the
  // one error that main prints.
  virtual Result<int> run() = 0;
  // Whether redrive ends, with a message, if there is no memory left.
  virtual bool ends_without_memory() const { return true; }

 protected:
  Error usage(const std::string& what) const { return usage_error(text_.name, what); }
  // The only word that was given; empty if none was.
  Result<std::string> only_trace(const Arguments& arguments) const;

 private:
  const CommandText& text_;
};

// A command whose arguments become a struct.
template <typename Options>
class CommandWith : public Command {
 public:
  using Command::Command;
  const Options& options() const { return options_; }

 protected:
  Options options_;
};

}  // namespace redrive
