// Follows the events of a recording, and knows from them what the kernel held for each process.
//
// In memory only. Events of one unit must be applied in their order; those of several units about as they happened, a
// birth before anything of what was born.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "supervisor/live/kernel_objects.h"
#include "supervisor/live/signal_log.h"

namespace redrive {

// Whether two sockets are the ends of one connection, as far as bytes have gone through it or addresses tell.
bool belong_together(const OpenObject& a, const OpenObject& b);

// A call that a thread has entered and not left.
struct OngoingCall {
  EventRef entered;
  Event event;
};

class KernelModel {
 public:
  using ProcessName = std::pair<UnitId, ProcessSerial>;
  using ThreadName = std::pair<UnitId, ThreadSerial>;

  // A process that the recording has started, with standard streams from outside.
  void start(UnitId unit, int32_t pid);
  void apply(UnitId unit, EventIndex index, const Event& event);

  const std::vector<OpenObject>& objects() const { return objects_; }
  const std::map<ProcessName, ProcessModel>& processes() const { return processes_; }
  const std::map<ThreadName, ThreadModel>& threads() const { return threads_; }

  // The same object as one of another model of the recording.
  std::optional<ObjectNumber> find(const OpenObject& object) const;
  // ... or, if this one does not have it, the given one.
  const OpenObject& same(const OpenObject& object) const;

  // A thread is in a call there whose end has not come.
  const OngoingCall* call_of(ThreadName thread) const;

  // FIFOs that the program has made (mknod(2)), and the directories in which their paths begin.
  const std::vector<std::pair<PastCall, DirectoryRef>>& fifos() const { return fifos_; }
  void note_fifo(const PastCall& call, const DirectoryRef& base) { fifos_.emplace_back(call, base); }

  // What has happened to names of files, in order.
  const std::vector<NameChange>& name_changes() const { return name_changes_; }
  void note_name_change(NameChange change) { name_changes_.push_back(std::move(change)); }
  const SignalLog& signals() const { return signals_; }

  // For the functions that know what single calls do.
  std::vector<OpenObject>& objects() { return objects_; }
  std::map<ProcessName, ProcessModel>& processes() { return processes_; }
  std::map<ThreadName, ThreadModel>& threads() { return threads_; }
  ProcessModel* process_of(int32_t pid);  // that has not ended and was not waited for; also by a thread's number
  ThreadModel* thread_numbered(int32_t tid);
  // The event that is applied has sent a signal to a process or thread, of this number. `ended`: by the end of this
  // process.
  void note_signal(int number, int32_t to, bool to_thread, int32_t ended = 0) {
    signals_.sent.push_back({now_, time_, number, to, to_thread, ended});
  }
  // The event that is applied has returned a process that had ended.
  void note_wait(int32_t pid);
  // A signal has arrived, at a handler or by a call: it is not pending any more.
  void take_signal(ThreadModel& thread, ProcessModel& process, int number);

 private:
  void repeat_calls(UnitId unit, EventIndex index, const Event& event);
  void finish_call(UnitId unit, EventIndex index, const Event& call);
  void bear(UnitId unit, EventIndex index, const Event& call, bool returns_later);
  void number_child(UnitId unit, const Event& call, int32_t number);
  void execute(UnitId unit, const Event& call);
  void end_thread(UnitId unit, const Event& call);
  void end_process(const ProcessName& name, int32_t status);
  void deliver(UnitId unit, const Event& signal);
  ProcessModel inherited(const ProcessName& parent, int32_t pid, uint64_t flags);

  std::vector<OpenObject> objects_;
  std::vector<std::pair<PastCall, DirectoryRef>> fifos_;
  std::vector<NameChange> name_changes_;
  std::map<ProcessName, ProcessModel> processes_;
  std::map<ThreadName, ThreadModel> threads_;
  std::map<ThreadName, OngoingCall> in_calls_;
  std::map<UnitId, ProcessSerial> next_process_;
  std::map<UnitId, std::vector<Event>> recent_;  // the last events, of which a series may be
  SignalLog signals_;
  EventRef now_;  // the event that is applied, and its time
  EventTime time_;
};

// SOCK_STREAM and so on; 0 if it is not a socket. `object`: one of the model.
int socket_type(const KernelModel& model, const OpenObject& object);

}  // namespace redrive
