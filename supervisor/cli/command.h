// One command of redrive: its texts, the arguments that it takes, what is wrong with them together, and what it does.
// Each is a class in a file of its own, which commands.cc lists.
#pragma once

#include <string>

#include "base/result.h"
#include "supervisor/cli/arguments.h"

namespace redrive {

// `summary` begins a list's line and, with a full stop, the command's help. `words` says what the synopsis' words are.
struct CommandText {
  const char* name;
  const char* synopsis;
  const char* summary;
  const char* details;
  const char* words;
};

// In the use of a command, which has this name.
Error usage_error(const std::string& command, const std::string& what);

class Command {
 public:
  // The text has to outlive the command.
  explicit Command(const CommandText& text) : text_(text) {}
  virtual ~Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  const CommandText& text() const { return text_; }
  // Says what the command takes. Values go into the command, which has to outlive `arguments`.
  virtual void declare(Arguments& arguments) = 0;
  // Takes what was given, all values read. An Error is Status::usage and one line.
  virtual Result<void> finish(const Arguments& arguments) = 0;
  // Writes the result to standard output, progress and warnings to standard error. The exit status, or the one error
  // that main prints.
  virtual Result<int> run() = 0;
  // Whether redrive ends where there is no memory left, and says so.
  virtual bool ends_without_memory() const { return true; }

 protected:
  Error usage(const std::string& what) const { return usage_error(text_.name, what); }
  // The only word that was given; empty if none was.
  Result<std::string> only_trace(const Arguments& arguments) const;

 private:
  const CommandText& text_;
};

// One whose arguments become a struct.
template <typename Options>
class CommandWith : public Command {
 public:
  using Command::Command;
  const Options& options() const { return options_; }

 protected:
  Options options_;
};

}  // namespace redrive
