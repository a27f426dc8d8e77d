// From the past of a cut, and the states of the units that stand there, to what is to be made. Refuses what cannot live
// again.
//
// Whether a process was stopped or continued by a signal is not known. One whose stop is pending stops, any other runs,
// and a wait for such a change (WUNTRACED, WCONTINUED) may not end; check_continued() refuses where the recording shows
// that it would not.
#pragma once

#include <functional>

#include "checkpoint/unit_state.h"
#include "supervisor/live/file_specs.h"
#include "supervisor/live/live_spec.h"
#include "supervisor/live/past.h"
#include "supervisor/live/race.h"
#include "supervisor/live/wanted_inputs.h"

namespace redrive {

class SpecMaker {
 public:
  // `later`: the past of the recording's end, which tells whose ends of connections belong together.
  // `first`: the message that is to be received before all others; null: none is.
  // `only`: the one unit that is to live; none: all are.
  SpecMaker(const Trace& trace, const Past& past, const Past& later, const Places& places, Files files,
            const Delivery* first, std::optional<UnitId> only)
      : trace_(trace),
        past_(past),
        later_(later),
        places_(places),
        first_(first),
        only_(only),
        file_specs_(trace, past, later, needed_, files) {}

  // An Error names what cannot live again.
  Result<void> check();
  // What calls have read that make_spec() needs.
  Result<void> want_inputs(WantedInputs& inputs);
  FileSpecs& files() { return file_specs_; }  // which want more when those were found
  Result<LiveSpec> make_spec(const WantedInputs& inputs, const std::map<UnitId, UnitState>& states);

 private:
  bool lives(const KernelModel::ProcessName& name, const ProcessModel& process) const {
    return !process.ended && (!only_ || name.first == *only_);
  }
  Result<void> check_continued() const;
  void find_needed();
  uint64_t pipes_to_others() const;
  void pair_sockets();
  bool is_held(ObjectNumber number) const;
  void pair(ObjectNumber a, ObjectNumber b);
  Result<std::vector<InFlight::Piece>> arriving(ObjectNumber at) const;
  std::vector<InFlight::Piece> packets_between(const OpenObject& sender, const OpenObject& receiver,
                                               uint64_t channel) const;
  std::vector<InFlight::Piece> sent_ahead(ObjectNumber from) const;

  void want_object(const OpenObject& object, WantedInputs& inputs) const;
  void want_process(const ProcessModel& process, WantedInputs& inputs) const;

  Result<void> add_objects(const WantedInputs& inputs, LiveSpec& spec);
  Result<void> add_messages(ObjectNumber number, const WantedInputs& inputs, LiveSpec& spec) const;
  Result<LiveMessage> message(const InFlight::Piece& piece, const WantedInputs& inputs) const;
  bool withheld(const InFlight::Piece& piece) const;
  bool received_by_first(ObjectNumber number) const;
  Result<void> add_socket(const OpenObject& object, const WantedInputs& inputs, LiveObject& out);
  Result<void> add_special(const OpenObject& object, const WantedInputs& inputs, LiveObject& out) const;
  Result<void> add_processes(const WantedInputs& inputs, const std::map<UnitId, UnitState>& states, LiveSpec& spec);
  void note_lost(LiveSpec& spec) const;
  Result<LiveThread> thread_of(KernelModel::ThreadName name, const ThreadModel& model, const ThreadState& state,
                               const WantedInputs& inputs) const;
  Result<std::optional<int64_t>> result_to_come(KernelModel::ThreadName name, const Event& entered) const;

  const Trace& trace_;
  const Past& past_;
  const Past& later_;
  const Places& places_;
  const Delivery* const first_;
  const std::optional<UnitId> only_;
  std::map<ObjectNumber, std::optional<ObjectNumber>> needed_;  // with the other end
  std::map<ObjectNumber, std::vector<ObjectNumber>> queued_;    // by listening socket
  std::map<ObjectNumber, uint64_t> ahead_;                      // those of queued_: the channels that they send into
  uint64_t closed_ = 0;                                         // connections and pipes to outside
  FileSpecs file_specs_;
};

}  // namespace redrive
