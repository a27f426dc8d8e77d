#include "supervisor/cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

namespace redrive {
namespace {

// The shells ask redrive for names, because these may change with every recording.
constexpr char kTraceNames[] =
    R"sh(redrive ls --json 2> /dev/null | grep -o '"name":"[^"]*"' | sed 's/.*:"//; s/"$//')sh";
constexpr char kUnitNames[] =
    R"sh(redrive ls --json latest 2> /dev/null | grep -o '"unit":[0-9]*,"name":"[^"]*"' | sed 's/.*:"//; s/"$//')sh";

constexpr char kSessionNames[] =
    R"sh(redrive ps --json 2> /dev/null | grep -o '"name":"[^"]*"' | sed 's/.*:"//; s/"$//')sh";

constexpr char kShells[] = "bash zsh fish";

bool takes(const CommandDescription& command, Names names) {
  return std::find(command.names.begin(), command.names.end(), names) != command.names.end();
}

std::vector<std::string> commands_with(const std::vector<CommandDescription>& commands, Names names) {
  std::vector<std::string> found;
  for (const auto& command : commands) {
    if (takes(command, names)) found.push_back(command.name);
  }
  return found;
}

// A command that ends with the arguments of record, after words of its own.
struct Recording {
  const char* name;
  int own_words;
  const char* first_words;  // what the first of them may be; null: anything
  bool takes_command;
};
constexpr Recording kRecordings[] = {
    {"record", 0, nullptr, true}, {"start", 1, nullptr, true}, {"service", 2, "enable disable", false}};

const Recording* recording_of(const CommandDescription& command) {
  const auto* const found =
      std::ranges::find_if(kRecordings, [&](const auto& each) { return command.name == each.name; });
  return found == std::end(kRecordings) ? nullptr : found;
}

std::string in_quotes(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string bash_script(const std::vector<CommandDescription>& commands) {
  std::vector<std::string> names, options_cases, value_cases, recording_cases, first_words;
  std::set<std::string> with_values;
  for (const auto& command : commands) {
    names.push_back(command.name);
    const Recording* const recording = recording_of(command);
    std::vector<std::string> options;
    for (const auto& option : command.options) {
      options.push_back(option.name);
      if (option.value.empty()) continue;
      if (recording) with_values.insert(option.name);
      std::string action = ":";
      if (!option.choices.empty()) action = fmt::format("list='{}'", fmt::join(option.choices, " "));
      if (option.value == "DIR") action = "_redrive_directories";
      value_cases.push_back(fmt::format("    {}:{}) {} ;;\n", command.name, option.name, action));
    }
    options_cases.push_back(fmt::format("    {}) list='{} --help' ;;\n", command.name, fmt::join(options, " ")));
    if (!recording) continue;
    recording_cases.push_back(fmt::format("    {}) own={}{} ;;\n", command.name, recording->own_words,
                                          recording->takes_command ? " runs=yes" : ""));
    if (recording->first_words)
      first_words.push_back(fmt::format("    {}:0) list='{}' ;;\n", command.name, recording->first_words));
  }
  static constexpr char kScript[] = R"sh(# bash completion for redrive(1), made by `redrive --completion bash`.
_redrive() {{
  local cur prev words cword command=${{COMP_WORDS[1]-}} list= own= runs= seen=0 begin=0
  _redrive_words || return
  if [ "$cword" = 1 ]; then
    COMPREPLY=($(compgen -W '{commands} --help --version --completion' -- "$cur"))
    return
  fi
  case $command in
{recordings}    --completion) COMPREPLY=($(compgen -W '{shells}' -- "$cur")); return ;;
  esac
  local first=$command
  if [ -n "$own" ]; then
    _redrive_walk
    if [ "$begin" != 0 ]; then
      _redrive_command
      return
    fi
    [ "$seen" -lt "$own" ] || command=record
  fi
  local value=yes
  case $command:$prev in
{values}    *) value= ;;
  esac
  if [ -n "$value" ]; then
    [ -z "$list" ] || COMPREPLY=($(compgen -W "$list" -- "$cur"))
    return
  fi
  if [[ $command == record && $cur != -* ]]; then
    begin=$COMP_CWORD
    _redrive_command
    return
  fi
  case $command in
{options}  esac
  if [[ $cur != -* ]]; then
    case $first:$seen in
{first_words}    esac
    case $command in {with_traces}) _redrive_directories; _redrive_names < <({traces}) ;; esac
    case $command in {with_units}) _redrive_names < <({units}) ;; esac
    case $command in {with_sessions}) _redrive_names < <({sessions}) ;; esac
  fi
  COMPREPLY+=($(compgen -W "$list" -- "$cur"))
  if declare -F __ltrim_colon_completions > /dev/null; then __ltrim_colon_completions "$cur"; fi
}}
# The word to be completed, and the one before. Without the package bash-completion, ':' and '=' end words.
_redrive_words() {{
  if declare -F _init_completion > /dev/null; then
    _init_completion -n :
    return
  fi
  cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} cword=$COMP_CWORD
}}
_redrive_directories() {{
  if declare -F _filedir > /dev/null; then _filedir -d; else _redrive_names < <(compgen -d -- "$cur"); fi
}}
# Names from traces and the like, a line each. compgen -W would execute what they hold.
_redrive_names() {{
  local name
  while IFS= read -r name; do
    [[ $name != "$cur"* ]] || COMPREPLY+=("$(printf %q "$name")")
  done
}}
# Looks where the command to be recorded begins: at the first word that is neither an option nor the value of one, nor
# one of the words that come before the arguments of record. Counts these.
_redrive_walk() {{
  local at=2
  while [ "$at" -lt "$COMP_CWORD" ]; do
    case ${{COMP_WORDS[at]}} in
      --) begin=$((at + 1)); return ;;
      {with_values})
        [ "${{COMP_WORDS[at + 1]}}" != = ] || at=$((at + 1))
        at=$((at + 2)) ;;
      -*) at=$((at + 1)) ;;
      *)
        if [ "$seen" = "$own" ]; then
          begin=$at
          return
        fi
        seen=$((seen + 1)) at=$((at + 1)) ;;
    esac
  done
}}
# Completes the command to be recorded as if it stood alone.
_redrive_command() {{
  if [ -z "$runs" ]; then
    return
  elif declare -F _command_offset > /dev/null; then
    _command_offset "$begin"
  elif [ "$begin" = "$COMP_CWORD" ]; then
    _redrive_names < <(compgen -c -- "$cur")
  else
    _redrive_names < <(compgen -f -- "$cur")
  fi
}}
complete -F _redrive redrive
)sh";
  const auto alternatives = [&](Names kind) {
    return fmt::format("{}", fmt::join(commands_with(commands, kind), "|"));
  };
  return fmt::format(
      kScript, fmt::arg("commands", fmt::join(names, " ")), fmt::arg("shells", kShells),
      fmt::arg("recordings", fmt::join(recording_cases, "")), fmt::arg("values", fmt::join(value_cases, "")),
      fmt::arg("options", fmt::join(options_cases, "")), fmt::arg("first_words", fmt::join(first_words, "")),
      fmt::arg("traces", kTraceNames), fmt::arg("units", kUnitNames), fmt::arg("sessions", kSessionNames),
      fmt::arg("with_traces", alternatives(Names::traces)), fmt::arg("with_units", alternatives(Names::units)),
      fmt::arg("with_sessions", alternatives(Names::sessions)), fmt::arg("with_values", fmt::join(with_values, "|")));
}

// In a zsh specification ':', '[' and ']' separate fields.
std::string zsh_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_option(const OptionDescription& option) {
  std::string spec = option.name + (option.value.empty() ? "" : option.name.starts_with("--") ? "=" : "+");
  spec += "[" + zsh_escaped(option.help) + "]";
  if (!option.value.empty()) {
    spec += ":" + zsh_escaped(option.value) + ":";
    if (!option.choices.empty()) spec += fmt::format("({})", fmt::join(option.choices, " "));
    if (option.value == "DIR") spec += "_files -/";
  }
  return in_quotes(spec);
}

// What zsh completes a command's words with.
std::string zsh_words(const CommandDescription& command) {
  constexpr char kNext[] = " \\\n        ";
  if (const Recording* const recording = recording_of(command)) {
    if (recording->own_words == 0)
      return kNext + std::string("'(-)1:command: _command_names -e' '*::argument:_normal'");
    std::string words;
    for (int i = 1; i <= recording->own_words; ++i) {
      const bool chosen = i == 1 && recording->first_words;
      words += fmt::format("{}'(-){}:word:{}'", kNext, i, chosen ? fmt::format("({})", recording->first_words) : " ");
    }
    return words + kNext + "'*::: :_redrive_record'";
  }
  std::string actions;
  for (const auto& [names, function] : {std::pair(Names::sessions, "_redrive_sessions"),
                                        {Names::units, "_redrive_units"},
                                        {Names::traces, "_redrive_traces"}}) {
    if (takes(command, names)) actions += std::string(function) + "; ";
  }
  return actions.empty() ? "" : fmt::format("{}'*:name:{{ {}}}'", kNext, actions);
}

std::string zsh_arguments(const CommandDescription& command) {
  std::string specs = "_arguments -s -S";
  for (const auto& option : command.options) specs += " \\\n        '*'" + zsh_option(option);
  return specs + " \\\n        '--help[print help]'" + zsh_words(command);
}

std::string zsh_script(const std::vector<CommandDescription>& commands) {
  std::string list, cases, record;
  for (const auto& command : commands) {
    list += "      " + in_quotes(command.name + ":" + zsh_escaped(command.summary)) + "\n";
    if (command.name == kRecordings[0].name) record = zsh_arguments(command);
    cases += fmt::format("    {})\n      {} ;;\n", command.name, zsh_arguments(command));
  }
  static constexpr char kScript[] = R"sh(#compdef redrive
# zsh completion for redrive(1), made by `redrive --completion zsh`.
_redrive_traces() {{
  compadd -- ${{(f)"$({traces})"}}
  _files -/
}}
_redrive_units() {{
  compadd -- ${{(f)"$({units})"}}
}}
_redrive_sessions() {{
  compadd -- ${{(f)"$({sessions})"}}
}}
# The arguments of record, after the words of another command.
_redrive_record() {{
  words=(record $words)
  (( ++CURRENT ))
  {record}
}}
_redrive() {{
  local context state line
  _arguments -C '1:command:->command' '*::argument:->argument'
  case $state in
  command)
    local -a commands=(
{commands}    )
    _describe command commands
    compadd -- --help --version --completion ;;
  argument)
    case $words[1] in
    --completion) compadd -- {shells} ;;
{cases}    esac ;;
  esac
}}
_redrive "$@"
)sh";
  return fmt::format(kScript, fmt::arg("commands", list), fmt::arg("shells", kShells), fmt::arg("record", record),
                     fmt::arg("cases", cases), fmt::arg("traces", kTraceNames), fmt::arg("units", kUnitNames),
                     fmt::arg("sessions", kSessionNames));
}

std::string fish_option(const OptionDescription& option) {
  const bool is_long = option.name.starts_with("--");
  std::string out =
      fmt::format(" -{} {} -d {}", is_long ? 'l' : 's', option.name.substr(is_long ? 2 : 1), in_quotes(option.help));
  if (!option.value.empty()) out += option.value == "DIR" ? " -r -F" : " -x";
  if (!option.choices.empty()) out += " -a " + in_quotes(fmt::format("{}", fmt::join(option.choices, " ")));
  return out + "\n";
}

std::string fish_script(const std::vector<CommandDescription>& commands) {
  std::string out = "# fish completion for redrive(1), made by `redrive --completion fish`.\ncomplete -c redrive -f\n";
  out += "complete -c redrive -n __fish_use_subcommand -l help -d 'print help'\n";
  out += "complete -c redrive -n __fish_use_subcommand -l version -d 'print the version'\n";
  out += fmt::format("complete -c redrive -n __fish_use_subcommand -l completion -x -a '{}' -d {}\n", kShells,
                     in_quotes("print the completion script for a shell"));
  // How many words that are no options the command line has, without the one that is completed.
  out += "function __redrive_words\n  count (string match -v -- '-*' (commandline -opc))\nend\n";
  std::string record;
  for (const auto& command : commands) {
    out += fmt::format("complete -c redrive -n __fish_use_subcommand -a {} -d {}\n", command.name,
                       in_quotes(command.summary));
    const auto when = [&](const std::string& more) {
      return fmt::format("complete -c redrive -n '__fish_seen_subcommand_from {}{}'", command.name, more);
    };
    const std::string begin = when("");
    for (const auto& option : command.options) out += begin + fish_option(option);
    for (const auto& [names, source, meaning] : {std::tuple(Names::traces, kTraceNames, "trace"),
                                                 {Names::units, kUnitNames, "unit"},
                                                 {Names::sessions, kSessionNames, "session"}}) {
      if (takes(command, names))
        out += fmt::format("{} -a {} -d {}\n", begin, in_quotes(fmt::format("({})", source)), meaning);
    }
    const Recording* const recording = recording_of(command);
    if (!recording) continue;
    // The program and the command are words too.
    const std::string after = when(fmt::format("; and test (__redrive_words) -ge {}", recording->own_words + 2));
    if (recording->first_words) {
      out += fmt::format("{} -a {}\n", when("; and test (__redrive_words) -eq 2"), in_quotes(recording->first_words));
    }
    if (recording->own_words == 0) {
      for (const auto& option : command.options) record += fish_option(option);
    } else {
      std::istringstream options(record);
      for (std::string option; std::getline(options, option);) out += after + option + "\n";
    }
    if (recording->takes_command) out += after + " -a '(__fish_complete_subcommand)'\n";
  }
  return out;
}

}  // namespace

Result<std::string> completion_script(const std::string& shell, const std::vector<CommandDescription>& commands) {
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  if (shell == "fish") return fish_script(commands);
  return Error{fmt::format("--completion: unknown shell '{}' (choose from bash, zsh, fish)", shell), Status::usage};
}

}  // namespace redrive
