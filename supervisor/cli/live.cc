#include "supervisor/cli/live.h"

#include <fmt/format.h>
#include <signal.h>

#include "base/notice.h"
#include "base/parallel.h"
#include "base/text.h"
#include "supervisor/cli/host.h"
#include "supervisor/cli/shared_options.h"
#include "supervisor/cli/words.h"
#include "supervisor/live/revival.h"

namespace redrive {
namespace {

constexpr CommandText kLiveText{
    "live",
    "redrive live [--files F] [--stopped] [--jobs N] [--interception TIER] [TRACE] UNIT:I | UNIT@EVENT | "
    "--break UNIT@EVENT ... | --deliver UNIT@EVENT=SENDER",
    "make the units of a distributed breakpoint into processes that run on, without a recording",
    "All units are brought to the breakpoint, and become processes with the numbers, memory, threads, files, pipes and "
    "sockets\nthat they had there. Connections to processes that were not recorded come back closed.\n"
    "With --deliver, UNIT receives the message of unit SENDER before those that it races with; then all run on as they "
    "like.\nWhatever cannot be restored is reported before anything runs. The exit status is that of the first "
    "process.\n",
    {kTraceWord,
     {"UNIT", "a number or a name from 'redrive ls TRACE'; all units stand where it begins interval I, or before EVENT",
      Names::units}}};

class LiveCommand : public CommandWith<LiveOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    LiveOptions& o = options_;
    arguments.choice("--files", "F",
                     "from where files are read that are open: real, or trace, which has copies of "
                     "those that were mapped (real)",
                     {"real", "trace"}, [&o](const std::string& files) { o.trace_files = files == "trace"; });
    arguments.flag("--stopped", o.stopped, "leave the processes stopped (SIGSTOP), as for a debugger");
    add_break(arguments, "let all units live where they stand when UNIT is right before EVENT; may be repeated",
              o.breaks);
    arguments.option("--deliver", "UNIT@EVENT=SENDER",
                     "where UNIT receives one of several messages in EVENT, that of unit SENDER comes first",
                     [&o](const std::string& text) -> Result<void> {
                       ASSIGN_OR_RETURN(o.delivery, parse_delivery_spec(text));
                       return {};
                     });
    o.jobs = processor_count();
    add_jobs(arguments, "number of intervals to execute at once (one per processor)", o.jobs);
    add_interception(arguments, o.in_process);
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    LiveOptions& o = options_;
    std::optional<PlaceSpec> place;
    const auto& words = arguments.given_words();
    if (o.delivery && o.stopped)
      return usage("--stopped and --deliver do not go together: a message is received by running");
    if (o.delivery) {
      if (words.size() > 1) return usage("--deliver takes a TRACE, not a UNIT: give other places with --break");
      if (!words.empty()) o.trace = words[0];
      return {};
    }
    if (const auto given = parse_standing(words, o.trace, o.interval, place, o.breaks); !given) {
      return usage(given.error().message);
    }
    if (place) o.breaks.push_back(*place);
    return {};
  }

  Result<int> run() override {
    TRY(prepare_to_trace());
    ASSIGN_OR_RETURN(const std::string directory, find_trace(options_.trace));
    ASSIGN_OR_RETURN(const std::shared_ptr<Trace> trace, Trace::open(directory));
    RevivalOptions how;
    how.files = options_.trace_files ? Files::trace : Files::real;
    how.stopped = options_.stopped;
    how.in_process = options_.in_process;
    how.jobs = options_.jobs;
    if (options_.interval) {
      ASSIGN_OR_RETURN(const Selection selected, select(*trace, *options_.interval));
      how.events = {{selected.unit, trace->intervals(selected.unit).at(selected.first).first_event}};
    } else {
      ASSIGN_OR_RETURN(how.events, find_events(*trace, options_.breaks));
    }
    if (options_.delivery) {
      ASSIGN_OR_RETURN(const auto at, find_events(*trace, {options_.delivery->place}));
      ASSIGN_OR_RETURN(const UnitId sender, trace->find_unit(options_.delivery->sender));
      how.first = FirstWanted{at.front(), sender};
    }
    ASSIGN_OR_RETURN(Revival revival, Revival::make(*trace, how));
    for (const std::string& note : revival.notes()) notice("{}", note);
    for (const auto& process : revival.processes()) {
      notice("unit {} ({}) lives from event {} on: process {}, {} for itself", process.unit,
             printable(trace->unit_name(process.unit)), process.event, process.host_pid, process.pid);
    }
    if (const auto& first = revival.first()) {
      notice("unit {} receives what unit {} sends in event {}; the others wait for that", first->before.unit,
             first->message.unit, first->message.event);
      ASSIGN_OR_RETURN(const bool received, revival.deliver_first());
      if (!received) notice("unit {} has ended without having received that", first->before.unit);
    }
    // What the terminal sends is for the processes.
    for (const int signal : {SIGINT, SIGQUIT}) ::signal(signal, SIG_IGN);
    TRY(revival.let_go());
    return revival.wait();
  }
};

}  // namespace

std::unique_ptr<Command> make_live_command() { return std::make_unique<LiveCommand>(kLiveText); }

}  // namespace redrive
