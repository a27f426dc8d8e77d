#include "supervisor/cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace redrive {
namespace {

// The shells ask redrive for names, because these may change with every recording.
constexpr char kTraceNames[] =
    R"sh(redrive ls --json 2> /dev/null | grep -o '"name":"[^"]*"' | sed 's/.*:"//; s/"$//')sh";
constexpr char kUnitNames[] =
    R"sh(redrive ls --json latest 2> /dev/null | grep -o '"unit":[0-9]*,"name":"[^"]*"' | sed 's/.*:"//; s/"$//')sh";

bool takes_units(const CommandDescription& command) { return command.synopsis.find(" UNIT") != std::string::npos; }

std::string in_quotes(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string bash_script(const std::vector<CommandDescription>& commands) {
  std::vector<std::string> names, options_cases, value_cases;
  for (const auto& command : commands) {
    names.push_back(command.name);
    std::vector<std::string> options;
    for (const auto& option : command.options) {
      options.push_back(option.name);
      if (option.value.empty()) continue;
      std::string action = ":";
      if (!option.choices.empty()) action = fmt::format("list='{}'", fmt::join(option.choices, " "));
      if (option.value == "DIR") action = "_filedir -d";
      value_cases.push_back(fmt::format("    {}:{}) {} ;;\n", command.name, option.name, action));
    }
    options_cases.push_back(fmt::format("    {}) list='{} --help' ;;\n", command.name, fmt::join(options, " ")));
  }
  std::vector<std::string> with_units, with_values;
  for (const auto& command : commands) {
    if (takes_units(command)) with_units.push_back(command.name);
    for (const auto& option : command.options) {
      if (command.name == "record" && !option.value.empty()) with_values.push_back(option.name);
    }
  }
  static constexpr char kScript[] = R"sh(# bash completion for redrive(1), made by `redrive --completion bash`.
_redrive() {{
  local cur prev words cword command=${{COMP_WORDS[1]-}} list=
  _init_completion -n : || return
  if [ "$cword" = 1 ]; then
    COMPREPLY=($(compgen -W '{commands} --help --version' -- "$cur"))
    return
  fi
  case $command:$prev in
{values}    *) command=$command: ;;
  esac
  if [[ $command != *: ]]; then
    [ -z "$list" ] || COMPREPLY=($(compgen -W "$list" -- "$cur"))
    return
  fi
  command=${{command%:}}
  if [[ $command == record && $cur != -* ]]; then
    _command_offset "$(_redrive_command)"
    return
  fi
  case $command in
{options}  esac
  if [[ $cur != -* ]]; then
    _filedir -d
    _redrive_names < <({traces})
    case $command in {with_units}) _redrive_names < <({units}) ;; esac
  fi
  COMPREPLY+=($(compgen -W "$list" -- "$cur"))
  __ltrim_colon_completions "$cur"
}}
# Names from traces, a line each. compgen -W would execute what they hold.
_redrive_names() {{
  local name
  while IFS= read -r name; do
    [[ $name != "$cur"* ]] || COMPREPLY+=("$(printf %q "$name")")
  done
}}
# Where record's command begins: at the first word that is neither an option nor the value of one.
_redrive_command() {{
  local at=2
  while [ "$at" -lt "$COMP_CWORD" ]; do
    case ${{COMP_WORDS[at]}} in
      --) at=$((at + 1)); break ;;
      {with_values}) at=$((at + 2)) ;;
      -*) at=$((at + 1)) ;;
      *) break ;;
    esac
  done
  echo "$at"
}}
complete -F _redrive redrive
)sh";
  return fmt::format(
      kScript, fmt::arg("commands", fmt::join(names, " ")), fmt::arg("values", fmt::join(value_cases, "")),
      fmt::arg("options", fmt::join(options_cases, "")), fmt::arg("traces", kTraceNames), fmt::arg("units", kUnitNames),
      fmt::arg("with_units", fmt::join(with_units, "|")), fmt::arg("with_values", fmt::join(with_values, "|")));
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

std::string zsh_script(const std::vector<CommandDescription>& commands) {
  std::string list, cases;
  for (const auto& command : commands) {
    list += "      " + in_quotes(command.name + ":" + zsh_escaped(command.summary)) + "\n";
    std::string specs;
    for (const auto& option : command.options) specs += " \\\n        '*'" + zsh_option(option);
    specs += " \\\n        '--help[print help]'";
    const char* words = command.name == "record"
                            ? " \\\n        '(-)1:command: _command_names -e' '*::argument:_normal'"
                        : takes_units(command) ? " \\\n        '*:trace or unit:_redrive_units'"
                                               : " \\\n        '*:trace:_redrive_traces'";
    cases += fmt::format("    {})\n      _arguments -s -S{}{} ;;\n", command.name, specs, words);
  }
  static constexpr char kScript[] = R"sh(#compdef redrive
# zsh completion for redrive(1), made by `redrive --completion zsh`.
_redrive_traces() {{
  compadd -- ${{(f)"$({traces})"}}
  _files -/
}}
_redrive_units() {{
  compadd -- ${{(f)"$({units})"}}
  _redrive_traces
}}
_redrive() {{
  local context state line
  _arguments -C '1:command:->command' '*::argument:->argument'
  case $state in
  command)
    local -a commands=(
{commands}    )
    _describe command commands
    compadd -- --help --version ;;
  argument)
    case $words[1] in
{cases}    esac ;;
  esac
}}
_redrive "$@"
)sh";
  return fmt::format(kScript, fmt::arg("commands", list), fmt::arg("cases", cases), fmt::arg("traces", kTraceNames),
                     fmt::arg("units", kUnitNames));
}

std::string fish_script(const std::vector<CommandDescription>& commands) {
  std::string out = "# fish completion for redrive(1), made by `redrive --completion fish`.\ncomplete -c redrive -f\n";
  out += "complete -c redrive -n __fish_use_subcommand -l help -d 'print help'\n";
  out += "complete -c redrive -n __fish_use_subcommand -l version -d 'print the version'\n";
  for (const auto& command : commands) {
    out += fmt::format("complete -c redrive -n __fish_use_subcommand -a {} -d {}\n", command.name,
                       in_quotes(command.summary));
    const std::string begin = fmt::format("complete -c redrive -n '__fish_seen_subcommand_from {}'", command.name);
    for (const auto& option : command.options) {
      const bool is_long = option.name.starts_with("--");
      out += fmt::format("{} -{} {} -d {}", begin, is_long ? 'l' : 's', option.name.substr(is_long ? 2 : 1),
                         in_quotes(option.help));
      if (!option.value.empty()) out += option.value == "DIR" ? " -r -F" : " -x";
      if (!option.choices.empty()) out += " -a " + in_quotes(fmt::format("{}", fmt::join(option.choices, " ")));
      out += "\n";
    }
    if (command.name == "record") {
      out += begin + " -a '(__fish_complete_subcommand)'\n";
    } else {
      out += begin + " -a " + in_quotes(fmt::format("({})", kTraceNames)) + " -d trace\n";
      if (takes_units(command)) out += begin + " -a " + in_quotes(fmt::format("({})", kUnitNames)) + " -d unit\n";
    }
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
