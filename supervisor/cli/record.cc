// redrive record: checks the user's request, creates the trace, runs the recorder, and reports what was refused.
#include "supervisor/cli/record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <sstream>
#include <thread>

#include "base/notice.h"
#include "base/parallel.h"
#include "base/path_search.h"
#include "base/text.h"
#include "base/units.h"
#include "checkpoint/criu.h"
#include "checkpoint/spawn_cost.h"
#include "interceptors/trapped_instructions.h"
#include "logstore/file_cache.h"
#include "logstore/home.h"
#include "logstore/trace_additions.h"
#include "logstore/trace_files.h"
#include "supervisor/cli/bound_keeping.h"
#include "supervisor/cli/host.h"
#include "supervisor/cli/join_text.h"
#include "supervisor/cli/recorded_session.h"
#include "supervisor/cli/self_check.h"
#include "supervisor/cli/shared_options.h"
#include "supervisor/cli/triggered_snapshots.h"
#include "supervisor/plan/certificate.h"
#include "supervisor/plan/tuning.h"
#include "supervisor/record/attach/attachable.h"
#include "supervisor/record/attach/guard.h"
#include "supervisor/record/criu_cost.h"
#include "supervisor/record/front/exit_status.h"
#include "supervisor/record/front/front.h"
#include "supervisor/record/front/interrupts.h"
#include "supervisor/record/front/launcher.h"
#include "supervisor/record/front/lifeline.h"
#include "supervisor/record/kernel/process_status.h"
#include "supervisor/record/kernel/ptrace_tracer.h"
#include "supervisor/record/recorder.h"
#include "supervisor/record/settings/transport.h"
#include "supervisor/session/run_directory.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {
namespace {

// How far apart virtual checkpoints are, in CPU time. A bound that needs them closer cannot be prepared.
constexpr double kVirtualPeriod_s = 0.1;

constexpr uint64_t kLeastKept = 1 << 20;  // bytes

TuningRequest wanted_tuning(const RecordOptions& options, const PolicyInfo& policy) {
  const bool for_processors = (policy.parameters & kCores) != 0;
  const bool for_path = (policy.parameters & kCriticalPath) != 0;
  return {options.tuning, for_processors, for_path, options.critical_path_s, options.checkpoint_period_s};
}

Result<Tuning> tuning_of(const RecordOptions& options, const PolicyInfo& policy) {
  if (!options.virtual_checkpoints) {
    const TuningRequest wanted = wanted_tuning(options, policy);
    ASSIGN_OR_RETURN(const double restore_s, measure_spawn_s());
    if (auto tuning = tune(wanted, options.bound_s, restore_s)) return tuning;
    // Other programs may have had the processors meanwhile.
    ASSIGN_OR_RETURN(const double again_s, measure_spawn_s());
    return tune(wanted, options.bound_s, std::min(restore_s, again_s));
  }
  Tuning tuning;
  tuning.period_s = options.checkpoint_period_s.value_or(kVirtualPeriod_s);
  return tuning;
}

// The interpreter that a script names in its first line; empty if it names none (execve(2)).
std::string interpreter_of(std::string_view script) {
  constexpr std::string_view kSpace = " \t";
  std::string_view line = script.substr(0, script.find('\n'));
  line.remove_prefix(std::min(line.find_first_not_of(kSpace, 2), line.size()));
  return std::string(line.substr(0, line.find_first_of(kSpace)));
}

// The file that a shell would run, or an error that says why there is none.
Result<std::string> find_program(const std::string& name) {
  std::string found = name.find('/') == std::string::npos ? find_in_path(name) : name;
  if (found.empty()) return Error{name + ": command not found", kNotFound};
  struct stat info {};
  if (stat(found.c_str(), &info) != 0) {
    return Error{errno_error(found).message, errno == ENOENT ? kNotFound : kCannotExecute};
  }
  if (S_ISDIR(info.st_mode)) return Error{found + ": is a directory", kCannotExecute};
  if (!is_executable_file(found)) return Error{found + ": not executable (see chmod(1))", kCannotExecute};
  if (would_gain(getpid(), found, info)) {
    return Error{found +
                 ": set-user-ID and set-group-ID programs can be recorded only by the user and group that they "
                 "run as, because a traced program gains no privileges"};
  }
  const Fd file(open(found.c_str(), O_RDONLY | O_CLOEXEC));
  char head[256] = {};  // as much of a script's first line as the kernel reads (execve(2))
  if (!file) return Error{errno_error(found + " cannot be read, so it cannot be recorded").message};
  const ssize_t size = read(file.get(), head, sizeof head - 1);
  const std::string interpreter = std::string_view(head).starts_with("#!") ? interpreter_of(head) : std::string();
  if (!interpreter.empty()) {
    if (is_executable_file(interpreter)) return found;
    return Error{fmt::format("{}: its interpreter '{}' cannot be executed", found, interpreter),
                 access(interpreter.c_str(), F_OK) == 0 ? kCannotExecute : kNotFound};
  }
  if (size < 5 || std::string_view(head, 4) != "\177ELF")
    return Error{found + ": neither a program nor a script that begins with #! and its interpreter", kCannotExecute};
  if (head[4] != 2) return Error{found + ": 32-bit programs cannot be recorded"};
  return found;
}

std::string host_description() {
  utsname name{};
  uname(&name);
  return fmt::format("{} ({} {} {})", name.nodename, name.sysname, name.release, name.machine);
}

// Reports at the end of a recording what was refused, in which units and how often (`stats` has the whole list), and
// where a replay may fail.
void report(const Recorder& recorder) {
  for (const auto& [what, refused] : recorder.findings().refused()) {
    std::string units = fmt::format("{}", fmt::join(refused.first, ", "));
    if (refused.units > refused.first.size()) {
      units += fmt::format(" and {} more", refused.units - refused.first.size());
    }
    notice("refused {} {} time{}, in unit {}", what, refused.count, refused.count == 1 ? "" : "s", units);
  }
  for (const auto& unsure : recorder.findings().unsure()) {
    notice("a replay of unit {} may diverge from event {} on: {}", unsure.unit, unsure.event, unsure.reason);
  }
}

// Of the variables that were set in the environment, reports those that a recorded program may have used.
void report(const std::vector<const TransportVariable*>& asked, const Trace& trace) {
  std::string set;
  for (const TransportVariable* variable : asked) {
    const bool used = std::any_of(trace.files().begin(), trace.files().end(), [&](const auto& file) {
      const std::string& path = file.second.path;
      return path.compare(path.rfind('/') + 1, std::strlen(variable->library), variable->library) == 0;
    });
    if (used) set += fmt::format(" {}={}", variable->name, variable->value);
  }
  if (!set.empty()) notice("sockets instead of shared memory (see --transport):{}", set);
}

// The program has ended. Ctrl-C and its like end what is done for the trace from now on; it keeps what it has.
class EndedBySignals {
 public:
  explicit EndedBySignals(int exit_status)
      : thread_([exit_status](const std::stop_token& over) {
          take_interrupts();
          const unsigned before = times();
          while (!over.stop_requested()) {
            std::this_thread::sleep_for(kTick);
            take_interrupts();
            if (times() == before) continue;
            notice("interrupted after the program had ended: not all was done for the trace; see redrive prepare");
            _exit(exit_status);
          }
        }) {}

 private:
  static unsigned times() {
    return times_interrupted_by(SIGINT) + times_interrupted_by(SIGTERM) + times_interrupted_by(SIGHUP) +
           times_interrupted_by(SIGQUIT);
  }

  std::jthread thread_;
};

// Says what the self-check has found. False if not all was re-driven as it was recorded.
bool is_as_recorded(SelfCheck& self_check, const Trace& trace) {
  const auto checked = self_check.finish();
  if (!checked) {
    notice("self-check: the trace could not be re-driven: {}", checked.error().message);
    return false;
  }
  if (checked->divergences) {
    notice("self-check: {}: see redrive replay --all --verify {}", counted(checked->divergences, "divergence"),
           printable(shell_quoted(trace.directory())));
    return false;
  }
  notice("self-check: {} re-driven as recorded, {} of them compared at their ends, {} while the program ran",
         counted(checked->intervals, "interval"), checked->compared, checked->followed);
  return true;
}

// What is done for the trace when the program has ended. Returns the exit status.
int look_after(const Trace& trace, const RecordOptions& options, SelfCheck* self_check, int exit_status) {
  const bool promises = trace.settings().keeps_bound() && !certify_sum(trace);
  if (!promises && !self_check) return exit_status;
  const bool required = options.require_bound || self_check;
  const EndedBySignals ended(required ? static_cast<int>(kCannotRecord) : exit_status);
  const bool replays = !self_check || is_as_recorded(*self_check, trace);
  const bool repairs = !options.no_repair && options.tuning == TuningRule::promise;
  const bool kept =
      !promises ||
      keep_bound_or_say({processor_count(), options.in_process, repairs, isatty(STDERR_FILENO) != 0}, trace);
  return !replays || (options.require_bound && !kept) ? static_cast<int>(kCannotRecord) : exit_status;
}

// The file for what the program and redrive write. None if that goes where redrive writes.
Result<Fd> output_file(const RecordOptions& options) {
  if (options.output.empty()) return Fd();
  Fd file(open(options.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file) return errno_error(options.output);
  return file;
}

// What is left of a bound for memory, if T follows from it (RecorderLimits).
double restore_budget_s(const RecordOptions& options, double bound_s, const Tuning& tuning) {
  const bool promises = options.tuning == TuningRule::promise && options.promises_bound;
  return promises && !options.checkpoint_period_s ? bound_s - tuning.restore_s : 0;
}

// Changes the bound of a recording. `settings` is what its trace will say.
Result<void> change_bound(Recorder& recorder, const RecordOptions& options, double bound_s, Settings& settings) {
  if (options.virtual_checkpoints) return Error{"it records with --virtual: give the bound to redrive prepare"};
  if (options.policy == "none") return Error{"its policy keeps nothing, whatever the bound is"};
  ASSIGN_OR_RETURN(const PolicyInfo* policy, find_policy(options.policy));
  ASSIGN_OR_RETURN(const Tuning tuning, tune(wanted_tuning(options, *policy), bound_s, settings.restore_cost_s));
  Settings changed = settings;
  changed.bound_s = bound_s;
  changed.critical_path_s = tuning.critical_path_s;
  changed.checkpoint_period_s = tuning.period_s;
  TRY(recorder.live().set_limits(changed, restore_budget_s(options, bound_s, tuning)));
  settings = changed;
  return {};
}

// Null if none is wanted, or none is possible.
Result<std::unique_ptr<RecordedSession>> session_for(const RecordOptions& options) {
  if (options.session.empty()) return std::unique_ptr<RecordedSession>();
  return RecordedSession::claim(options.session);
}

// Makes the recording's session answer. `settings`: as in change_bound().
Result<void> begin_session(RecordedSession& session, Recorder& recorder, const RecordOptions& options,
                           const std::string& directory, Settings& settings) {
  SessionStatus status;
  status.command = settings.command;
  status.trace = std::filesystem::absolute(directory).string();
  status.started_unix_us = settings.started_unix_ns / 1000;
  status.bound_s = settings.bound_s;
  status.checkpoint_period_s = settings.checkpoint_period_s;
  status.keep_s = options.keep_s;
  status.keep_bytes = options.keep_bytes;
  return session.begin(recorder, status, [&](double bound_s, SessionStatus& now) -> Result<void> {
    TRY(change_bound(recorder, options, bound_s, settings));
    now.bound_s = settings.bound_s;
    now.checkpoint_period_s = settings.checkpoint_period_s;
    return {};
  });
}

// The bound was changed while the trace was recorded.
Result<std::shared_ptr<Trace>> replace_settings(const std::string& directory, const Settings& settings) {
  ASSIGN_OR_RETURN(const auto trace, Trace::open(directory));
  ASSIGN_OR_RETURN(const auto additions, TraceAdditions::begin(*trace));
  TRY(additions->finish(settings));
  return Trace::open(directory);
}

// Ends the trace. `settings`: null if it keeps those that it was begun with.
Result<std::shared_ptr<Trace>> complete_trace(std::unique_ptr<TraceWriter> writer, const RecordingEnd& end,
                                              FileCache* cache, const Settings* settings) {
  const std::string directory = writer->directory();
  if (const auto finished = writer->finish(end); !finished) {
    return Error{"the trace is incomplete: " + finished.error().message};
  }
  writer.reset();
  if (cache) cache->keep(TraceFiles{directory}.files());
  return settings ? replace_settings(directory, *settings) : Trace::open(directory);
}

// The program has ended, and with it what the user waits for; the rest is recorded in the background.
void go_on_behind(const LeftBehind& left, const std::string& directory) {
  const bool one = left.processes == 1;
  notice(
      "the program has ended; {} process{} that it left behind {} still being recorded to {}; `kill {}` ends {} (see "
      "--wait)",
      left.processes, one ? "" : "es", one ? "is" : "are", directory, getpid(), one ? "it" : "them");
  release_front(left.exit_status);
}

// What is recorded: a program that is run, or a process that runs already.
struct RecordedCommand {
  std::string program;  // its path
  std::vector<std::string> command;
};

Result<RecordedCommand> recorded_command(const RecordOptions& options) {
  if (options.pid) {
    std::istringstream words(command_of(options.pid));
    const std::vector<std::string> command{std::istream_iterator<std::string>(words), {}};
    return RecordedCommand{command.empty() ? std::string() : command.front(), command};
  }
  ASSIGN_OR_RETURN(const std::string program, find_program(options.command.front()));
  return RecordedCommand{program, options.command};
}

// Nothing was recorded.
void discard(TraceWriter& writer, const std::string& directory) {
  static_cast<void>(static_cast<bool>(writer.finish({})));
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

Result<CheckpointEngine> checkpoint_engine_of(CheckpointEngine::Kind kind) {
  if (kind == CheckpointEngine::Kind::criu) {
    if (const auto found = Criu::find("checkpoints by CRIU"); !found) return found.error();
  }
  return CheckpointEngine{kind, kind == CheckpointEngine::Kind::automatic ? kept_criu_cost() : std::nullopt};
}

// The in-process tier. Null: every call stops.
std::unique_ptr<GateArena> make_arena(const RecordOptions& options) {
  if (!options.in_process || options.pid) return nullptr;
  auto arena = GateArena::make();
  if (arena) return std::move(*arena);
  notice("{}; every system call will stop", arena.error().message);
  return nullptr;
}

// A trace that is not `latest` can be asked for by its name.
void make_latest(const std::string& directory) {
  if (const auto linked = set_latest(directory); !linked) notice("{}", linked.error().message);
}

// Runs in the process that stand_in_front() or guard_recorder() has made the recorder.
Result<int> record(const RecordOptions& options, const Fd& output) {
  // By default each thread has memory of its own for what it allocates (malloc(3), arenas). What is allocated in one
  // and freed in another leaves gaps in all of them, and a recording that goes on for hours would grow.
  constexpr int kArenas = 2;
  if (options.keeps_window()) mallopt(M_ARENA_MAX, kArenas);
  ASSIGN_OR_RETURN(const RecordedCommand subject, recorded_command(options));
  const std::string& program = subject.program;
  ASSIGN_OR_RETURN(const PolicyInfo* info, find_policy(options.policy));
  // This host is measured while what does not depend on that is made ready.
  auto measured =
      std::async(std::launch::async | std::launch::deferred, tuning_of, std::cref(options), std::cref(*info));
  ASSIGN_OR_RETURN(const CheckpointEngine checkpoint_engine, checkpoint_engine_of(options.checkpoint_engine));
  const auto cache = FileCache::open(FileCache::home());
  auto arena = make_arena(options);
  ASSIGN_OR_RETURN(const Launcher::Filter filter, Launcher::filter(arena.get()));
  ASSIGN_OR_RETURN(const Tuning tuning, measured.get());
  PolicyParameters parameters = options.parameters;
  parameters.critical_path_ns = nanoseconds(tuning.critical_path_s);
  parameters.checkpoint_period_ns = nanoseconds(tuning.period_s);
  const std::unique_ptr<Policy> policy = info->make(parameters);
  ASSIGN_OR_RETURN(const std::unique_ptr<RecordedSession> session, session_for(options));
  std::string directory = options.directory;
  Fd name_lock;
  if (directory.empty()) {
    ASSIGN_OR_RETURN(name_lock, lock_trace_names());
    ASSIGN_OR_RETURN(directory, new_trace_directory(program.substr(program.rfind('/') + 1)));
  }
  Settings settings;
  settings.policy = policy_text(*info, parameters);
  settings.critical_path_s = tuning.critical_path_s;
  settings.checkpoint_period_s = tuning.period_s;
  settings.bound_s = options.promises_bound ? options.bound_s : 0;
  settings.restore_cost_s = tuning.restore_s;
  settings.command = subject.command;
  if (char* cwd = getcwd(nullptr, 0)) {
    settings.working_directory = cwd;
    std::free(cwd);
  }
  settings.host = host_description();
  settings.started_unix_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  ASSIGN_OR_RETURN(auto writer, TraceWriter::create(directory, settings, disk(), cache.get(), options.keeps_window()));
  if (options.directory.empty() && !options.pid) make_latest(directory);
  name_lock = Fd();  // from now on others may create traces

  std::vector<const TransportVariable*> asked;
  if (options.transport == Transport::sockets && !options.pid) asked = ask_for_sockets(options.command);

  std::optional<SelfCheck> self_check;
  if (options.self_check) self_check.emplace(directory, options.in_process);
  RecordingEnd end;
  const double bound_s = settings.bound_s;
  {
    RecorderLimits limits;
    limits.checkpoint_period_ns = parameters.checkpoint_period_ns;
    limits.spawn_s = tuning.restore_s;
    limits.restore_budget_s = restore_budget_s(options, options.bound_s, tuning);
    limits.attached = options.pid != 0;
    limits.attached_for_s = options.attached_for_s;
    limits.independent_checkpoints = options.independent_checkpoints;
    limits.checkpoint_engine = checkpoint_engine;
    limits.processors = options.processors;
    limits.processors_seen = options.processors_seen;
    limits.virtual_checkpoints = options.virtual_checkpoints;
    limits.keep_ns = nanoseconds(options.keep_s);
    limits.keep_bytes = options.keep_bytes;
    limits.triggers = options.triggers;
    catch_interrupts();
    limits.traps = trap_own_instructions();
    PtraceTracer tracer(limits.attached ? PtraceTracer::Calls::all : PtraceTracer::Calls::filtered);
    Recorder recorder(tracer, *writer, *policy, limits, std::move(arena), cache.get());
    if (output) dup2(output.get(), STDOUT_FILENO), dup2(output.get(), STDERR_FILENO);
    if (limits.attached) {
      if (const auto attached = recorder.attach(options.pid); !attached) {
        discard(*writer, directory);
        return attached.error();
      }
      if (options.directory.empty()) make_latest(directory);
    } else {
      constexpr unsigned long kAsk = 0xffffffff;
      personality(static_cast<unsigned long>(personality(kAsk)) | ADDR_NO_RANDOMIZE);
      TRY(recorder.launch(program, options.command, filter));
    }
    if (session) TRY(begin_session(*session, recorder, options, directory, settings));
    std::optional<TriggeredSnapshots> snapshots;
    if (!options.triggers.empty()) {
      snapshots.emplace(recorder.live(), std::filesystem::absolute(directory).string(), options.snapshots);
    }
    Recorder::Tell tell;
    tell.left_behind = [&](const LeftBehind& left) {
      if (!options.wait && !limits.attached) go_on_behind(left, directory);
    };
    tell.triggered = [&](const Triggers::Happened& happened) { snapshots->take(happened); };
    end = recorder.run(tell);
    if (snapshots) snapshots->end();
    if (session) session->ended();
    report(recorder);
  }
  release_lifeline();
  const bool bound_changed = settings.bound_s != bound_s;
  const auto completed = complete_trace(std::move(writer), end, cache.get(), bound_changed ? &settings : nullptr);
  if (session) session->complete(end.exit_status, completed ? Result<void>() : completed.error());
  ASSIGN_OR_RETURN(const auto trace, completed);
  report(asked, *trace);
  const auto joins = describe_joins(*trace);
  for (const auto& join : joins) notice("{}", join);
  if (!joins.empty()) notice("for how to keep units apart, see redrive(1), SHARED MEMORY");
  const int exit_status = look_after(*trace, options, self_check ? &*self_check : nullptr, end.exit_status);
  if (isatty(STDERR_FILENO)) notice("recorded to {}", directory);
  return exit_status;
}

Result<int> record_behind_guard(const RecordOptions& options) {
  ASSIGN_OR_RETURN(const AttachableTree tree, attachable_tree(options.pid));
  std::string others;
  for (const pid_t root : tree.roots) {
    if (root != options.pid) others += (others.empty() ? "" : ", ") + describe_process(root);
  }
  if (!others.empty()) notice("also records {}, with which the process shares memory", others);
  ASSIGN_OR_RETURN(const Fd output, output_file(options));
  ASSIGN_OR_RETURN(const std::optional<int> ended, guard_recorder(tree));
  if (ended) return *ended;
  auto recorded = record(options, output);
  release_lifeline();
  return recorded;
}

Result<int> record_behind_front(const RecordOptions& options) {
  TRY(prepare_to_trace());
  if (options.pid) return record_behind_guard(options);
  ASSIGN_OR_RETURN(const Fd output, output_file(options));
  // Until the program starts, what is wrong is said where redrive was started.
  ASSIGN_OR_RETURN(const std::optional<int> ended, stand_in_front(output ? output.get() : STDERR_FILENO));
  return ended ? *ended : record(options, output);
}

constexpr CommandText kRecordText{
    "record",
    "redrive record [-o DIR] [--bound D | --virtual] [--tuning RULE] [--policy P] [--critical-path C] "
    "[--checkpoint-period T] [--checkpoint-engine E] [--placement P] [--set-bound N] [--multiplicity M] "
    "[--approximate] [--cores J] "
    "[--processors N] "
    "[--processors-seen N] [--interception TIER] [--transport T] [--no-repair] [--require-bound] [--self-check] "
    "[--wait] [--keep W] [--keep-size SIZE] [--trigger WHEN] [--snapshots N] [--session NAME] [--output FILE] (--pid "
    "PID "
    "[--for D] | [--] CMD ...)",
    "run a command, or attach to a process, and record it with everything it starts",
    "Options end at the first word that is not an option. The exit status is the command's.\n"
    "Without -o, the trace is created in $REDRIVE_TRACE_DIR, or else in ~/.local/share/redrive.\n",
    {{"D, C, T", "durations such as 500ms, 2s or 10m"}}};

class RecordCommand : public CommandWith<RecordOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    RecordOptions& o = options_;
    arguments.rest(o.command);
    arguments.option("-o", "DIR", "create the trace in this directory, which must not exist",
                     [&o](const std::string& text) -> Result<void> {
                       o.directory = text;
                       return {};
                     });
    arguments.duration("--bound", "D", "longest time that a replay of one interval may take (10s)",
                       [&o](double s) { o.bound_s = s; });
    add_tuning(arguments, o.tuning);
    arguments.duration("--critical-path", "C",
                       "what the policy promises: longest replay, or longest chain in it (0.8 or 0.3 of the bound)",
                       [&o](double s) { o.critical_path_s = s; });
    arguments.duration("--checkpoint-period", "T", "longest CPU time between checkpoints of a unit (C/2)",
                       [&o](double s) { o.checkpoint_period_s = s; });
    arguments.choice("--placement", "P", "how units take checkpoints: aligned, independent (aligned)",
                     {"aligned", "independent"},
                     [&o](const std::string& text) { o.independent_checkpoints = text == "independent"; });
    arguments.choice("--checkpoint-engine", "E", "who reads processes for checkpoints: auto, criu, own (auto)",
                     {"auto", "criu", "own"}, [&o](const std::string& text) {
                       using enum CheckpointEngine::Kind;
                       o.checkpoint_engine = text == "auto" ? automatic : text == "criu" ? criu : own;
                     });
    add_policy(arguments, o.policy, o.policy, o.parameters);
    arguments.flag("--virtual", o.virtual_checkpoints,
                   "only note checkpoints and keep no payloads; redrive prepare does the rest");
    arguments.number("--processors", "N", 1, CPU_SETSIZE, "number of processors that the programs may run on (all)",
                     [&o](uint64_t processors) { o.processors = static_cast<unsigned>(processors); });
    arguments.number("--processors-seen", "N", 1, CPU_SETSIZE,
                     "number of processors that the programs see (those that exist)",
                     [&o](uint64_t processors) { o.processors_seen = static_cast<unsigned>(processors); });
    add_interception(arguments, o.in_process);
    arguments.flag("--no-repair", o.no_repair, "if replays would take longer than the bound, only say so");
    arguments.flag("--require-bound", o.require_bound,
                   "exit with status 125 if a replay would take longer than the bound");
    arguments.flag("--self-check", o.self_check,
                   "re-drive the trace while it is recorded; exit with status 125 if it diverges");
    arguments.number("--pid", "PID", 1, INT_MAX,
                     "record this process and its descendants, and let them run on afterwards",
                     [&o](uint64_t pid) { o.pid = static_cast<pid_t>(pid); });
    arguments.duration("--for", "D", "let the process of --pid run on after this time (when it ends, or at Ctrl-C)",
                       [&o](double s) { o.attached_for_s = s; });
    arguments.flag("--wait", o.wait, "also wait for processes that the program leaves behind");
    arguments.duration("--keep", "W", "keep only the last part of the recording, of this length (all)",
                       [&o](double s) { o.keep_s = s; });
    arguments.option("--keep-size", "SIZE", "the same, of this size, such as 500M or 2G (all)",
                     [&o](const std::string& text) -> Result<void> {
                       ASSIGN_OR_RETURN(o.keep_bytes, parse_size(text));
                       if (o.keep_bytes >= kLeastKept) return {};
                       return Error{fmt::format("'{}' is too little: give at least 1M", text)};
                     });
    arguments.each("--trigger", "WHEN",
                   "take a snapshot when this happens: exit=N, exit!=N, crash, killed, killed=SIGNAL, file=PATH, "
                   "signal=SIGNAL, reply>D, writes=REGEX; may be repeated; with --keep or --keep-size",
                   [&o](const std::string& text) -> Result<void> {
                     ASSIGN_OR_RETURN(Trigger trigger, parse_trigger(text));
                     o.triggers.push_back(std::move(trigger));
                     return {};
                   });
    arguments.number("--snapshots", "N", 1, UINT32_MAX, "take at most so many of these (5)",
                     [&o](uint64_t most) { o.snapshots = most; });
    arguments.option("--session", "NAME", "let others see and control the recording under this name (redrive ps)",
                     [&o](const std::string& text) -> Result<void> {
                       TRY(check_session_name(text));
                       o.session = text;
                       return {};
                     });
    arguments.option("--output", "FILE", "append what the program and redrive write to this file",
                     [&o](const std::string& text) -> Result<void> {
                       o.output = text;
                       return {};
                     });
    arguments.option("--transport", "T", "how the processes of MPI programs communicate: sockets, as-is (sockets)",
                     [&o](const std::string& text) -> Result<void> {
                       if (text != "sockets" && text != "as-is") {
                         return Error{fmt::format("unknown value '{}' (choose from sockets, as-is)", text)};
                       }
                       o.transport = text == "sockets" ? Transport::sockets : Transport::as_is;
                       return {};
                     });
  }

  Result<void> finish(const Arguments& arguments) override {
    if (options_.pid && !options_.command.empty()) return usage("--pid cannot be combined with a command");
    if (!options_.pid && options_.command.empty()) return usage("no command to record");
    if (!options_.pid && options_.command.front().empty()) return usage("the name of the command is empty");
    if (!options_.pid && arguments.count("--for") > 0) return usage("--for needs --pid");
    for (const char* option : {"--wait", "--transport", "--processors-seen", "--interception"}) {
      if (options_.pid && arguments.count(option) > 0) {
        return usage(fmt::format("{} cannot be combined with --pid", option));
      }
    }
    // A policy that keeps nothing promises nothing, unless somebody asks for it.
    const bool asked = arguments.count("--bound") + arguments.count("--require-bound") > 0;
    options_.promises_bound = !options_.virtual_checkpoints && (options_.policy != "none" || asked);
    if (options_.virtual_checkpoints) {
      for (const char* option :
           {"--bound", "--policy", "--critical-path", "--tuning", "--no-repair", "--require-bound"}) {
        if (arguments.count(option) > 0)
          return usage(fmt::format("{} cannot be combined with --virtual: give it to redrive prepare", option));
      }
      options_.policy = "none";
    }
    if (options_.keeps_window() && (options_.virtual_checkpoints || options_.self_check)) {
      return usage(fmt::format("--keep and --keep-size cannot be combined with {}",
                               options_.self_check ? "--self-check" : "--virtual"));
    }
    if (!options_.keeps_window() && arguments.count("--trigger") + arguments.count("--snapshots") > 0) {
      return usage("triggers need a window: give --keep or --keep-size");
    }
    if (const auto fits = check_policy(arguments, options_.policy); !fits) {
      return usage(fits.error().message);
    }
    return {};
  }

  // Status 1 would look like the program's own.
  Result<int> run() override {
    try {
      auto status = record_behind_front(options_);
      if (status || status.error().status >= kCannotRecord) return status;
      return Error{status.error().message, kCannotRecord};
    } catch (const std::exception& failure) {
      return Error{describe(failure), kCannotRecord};
    }
  }

  // The program continues.
  bool ends_without_memory() const override { return false; }
};

}  // namespace

std::unique_ptr<Command> make_record_command() { return std::make_unique<RecordCommand>(kRecordText); }

}  // namespace redrive
