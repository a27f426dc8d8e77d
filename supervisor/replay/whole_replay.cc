#include "supervisor/replay/whole_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "base/mutex.h"

namespace redrive {
namespace {

using Clock = std::chrono::steady_clock;

struct Piece {
  UnitId unit = 0;
  IntervalIndex first = 0, last = 0;  // intervals
  EventIndex begin = 0, end = 0;      // events
  std::optional<EventRef> birth;
  uint64_t image_bytes = 0;
  uint64_t arrival = UINT64_MAX;  // the smallest number of a message that it takes part in
  bool goes_on = false;           // the thread that executes it can execute the next one as well
};

// ---- What there is to execute

// Intervals that cannot be reached are in no piece.
std::vector<Piece> pieces_of(const Trace& trace, const Rdg& graph) {
  std::vector<Piece> pieces;
  for (const auto& unit : trace.units()) {
    const auto& records = trace.intervals(unit.unit);
    const auto& intervals = graph.units.at(unit.unit);
    bool reaches = false;  // the last piece ends where the next interval begins
    for (IntervalIndex i = 0; i < intervals.size(); ++i) {
      const Rdg::Interval& interval = intervals[i];
      if (!interval.reachable) {
        reaches = false;
        continue;
      }
      if (interval.startable || interval.birth) {
        // A process continues with memory that only it has changed, so not where units were joined.
        const bool is_next = reaches && records[i].kind == CheckpointKind::image && unit.joined.empty();
        if (is_next) pieces.back().goes_on = true;
        pieces.push_back({unit.unit, i, i, interval.first_event, interval.end_event, interval.birth,
                          trace.stored_bytes(unit.unit, i)});
      } else if (reaches) {
        pieces.back().last = i;
        pieces.back().end = interval.end_event;
      } else {
        continue;
      }
      reaches = i + 1 < intervals.size() && interval.end_event == intervals[i + 1].first_event;
    }
  }
  return pieces;
}

struct Needs {
  std::vector<NeededSend> sends;
  std::vector<uint64_t> arrivals;        // of all receives
  std::vector<uint64_t> first_arrivals;  // by piece
};

// What the pieces receive. `with_arrivals`: of all receives, for the total order.
Needs needs_of(const Trace& trace, const std::vector<Piece>& pieces, size_t jobs, bool with_arrivals) {
  Needs all;
  all.first_arrivals.resize(pieces.size(), UINT64_MAX);
  if (trace.finished() && trace.channels().empty()) return all;
  Mutex mutex;
  std::atomic<size_t> next = 0;
  const auto read = [&] {
    for (size_t p = next++; p < pieces.size(); p = next++) {
      const Piece& piece = pieces[p];
      Needs its;
      uint64_t first_arrival = UINT64_MAX;
      const auto visited =
          trace.for_each_event(piece.unit, piece.begin, piece.end, [&](EventIndex, const Event& event) {
            if (!event.receive) return true;
            first_arrival = std::min(first_arrival, event.receive->arrival);
            if (with_arrivals) its.arrivals.push_back(event.receive->arrival);
            if (event.receive->logged) return true;
            for (const auto& part : event.receive->parts) {
              its.sends.push_back({part.sender, part.offset + part.length, static_cast<uint32_t>(p)});
            }
            return true;
          });
      static_cast<void>(visited);  // the thread that executes the piece finds the damage as well, and reports it
      const Lock lock(mutex);
      all.sends.insert(all.sends.end(), its.sends.begin(), its.sends.end());
      all.arrivals.insert(all.arrivals.end(), its.arrivals.begin(), its.arrivals.end());
      all.first_arrivals[p] = first_arrival;
    }
  };
  std::vector<std::jthread> readers;
  for (size_t i = 0; i < jobs; ++i) readers.emplace_back(read);
  readers.clear();
  return all;
}

// The order in which pieces are started: as they were recorded, as far as their messages show that.
std::vector<size_t> order_of(std::vector<Piece>& pieces, const Needs& needs) {
  std::map<EventRef, size_t> by_first_event;
  for (size_t p = 0; p < pieces.size(); ++p) {
    pieces[p].arrival = needs.first_arrivals[p];
    by_first_event[{pieces[p].unit, pieces[p].begin}] = p;
  }
  const auto holding = [&](EventRef event) -> Piece* {
    const auto after = by_first_event.upper_bound(event);
    if (after == by_first_event.begin()) return nullptr;
    Piece& piece = pieces[std::prev(after)->second];
    return piece.unit == event.unit && event.event < piece.end ? &piece : nullptr;
  };
  for (const auto& send : needs.sends) {
    if (Piece* const sender = holding(send.event)) {
      sender->arrival = std::min(sender->arrival, needs.first_arrivals[send.receiver]);
    }
  }
  for (size_t p = 0; p < pieces.size(); ++p) {
    const bool first = p == 0 || pieces[p - 1].unit != pieces[p].unit;
    const Piece* const before = !first ? &pieces[p - 1] : pieces[p].birth ? holding(*pieces[p].birth) : nullptr;
    const uint64_t earliest = before ? before->arrival : 0;
    pieces[p].arrival = pieces[p].arrival == UINT64_MAX ? earliest : std::max(earliest, pieces[p].arrival);
  }
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return pieces[a].arrival < pieces[b].arrival; });
  return order;
}

// ---- Executing it

// What has become of each interval, as noted by the threads that execute them.
class Outcomes {
 public:
  Outcomes(const SetRun& run, const std::vector<Piece>& pieces, bool verify, const std::function<void()>& advance);

  void piece_begins(size_t piece) { places_[piece] = {pieces_[piece].first, Clock::now()}; }
  // The piece's execution passes the end of an interval.
  void interval_ends(size_t piece);
  void piece_ends(size_t piece, const ReplaySession::Outcome& outcome);

  std::vector<RedrivenOnce> take() { return std::move(intervals_); }

 private:
  struct Place {
    IntervalIndex interval = 0;
    Clock::time_point since;
  };
  RedrivenOnce& at(UnitId unit, IntervalIndex interval) { return intervals_[first_of_unit_.at(unit) + interval]; }
  RedrivenOnce& stop_clock(size_t piece);

  const std::vector<Piece>& pieces_;
  const bool verify_;
  const std::function<void()>& advance_;
  std::map<UnitId, size_t> first_of_unit_;
  std::vector<RedrivenOnce> intervals_;  // of the trace; each thread writes to those of its piece
  std::vector<Place> places_;            // where the pieces' executions are
};

Outcomes::Outcomes(const SetRun& run, const std::vector<Piece>& pieces, bool verify,
                   const std::function<void()>& advance)
    : pieces_(pieces), verify_(verify), advance_(advance), places_(pieces.size()) {
  for (const auto& unit : run.trace.units()) {
    first_of_unit_[unit.unit] = intervals_.size();
    for (const auto& record : run.trace.intervals(unit.unit)) {
      RedrivenOnce& its = intervals_.emplace_back();
      its.unit = unit.unit;
      its.interval = record.interval;
      if (!run.graph.rdg().units.at(unit.unit)[record.interval].reachable) {  // reported as cut
        if (verify_) its.unverified = kUnreachable;
        continue;
      }
      its.error = Error{"the trace holds no checkpoint that leads to it"};
    }
  }
  for (const auto& piece : pieces_) {
    for (IntervalIndex i = piece.first; i <= piece.last; ++i) at(piece.unit, i).error.reset();
  }
}

// Notes how long the interval that is executed has taken.
RedrivenOnce& Outcomes::stop_clock(size_t piece) {
  Place& place = places_[piece];
  const auto now = Clock::now();
  RedrivenOnce& its = at(pieces_[piece].unit, place.interval);
  its.seconds = std::chrono::duration<double>(now - std::exchange(place.since, now)).count();
  return its;
}

void Outcomes::interval_ends(size_t piece) {
  RedrivenOnce& its = stop_clock(piece);
  if (verify_) its.unverified = kNoImageAtEnd;
  ++places_[piece].interval;
  advance_();
}

void Outcomes::piece_ends(size_t piece, const ReplaySession::Outcome& outcome) {
  const Piece& ended = pieces_[piece];
  const IntervalIndex interval = places_[piece].interval;
  RedrivenOnce& its = stop_clock(piece);
  if (outcome && !outcome->divergence) {
    its.verified = outcome->verified;
    its.unverified = outcome->unverified;
    return advance_();
  }
  if (!outcome) {
    its.error = outcome.error();
  } else {
    its.divergence = outcome->divergence;
    its.divergence->interval = interval;
  }
  for (IntervalIndex i = interval + 1; i <= ended.last; ++i) {
    at(ended.unit, i).error =
        Error{fmt::format("interval {} before it, which leads to it, was not re-driven to its end", interval)};
  }
  for (IntervalIndex i = interval; i <= ended.last; ++i) advance_();
}

// The pieces as a session executes them.
std::vector<ReplaySession::Piece> for_session(const SetRun& run, const std::vector<Piece>& pieces, bool verify) {
  std::vector<ReplaySession::Piece> all;
  for (const Piece& piece : pieces) {
    ReplaySession::Piece& its = all.emplace_back();
    its.what = {piece.unit, piece.first, piece.last, piece.end, 0};
    its.birth = piece.birth;
    its.how.verify = verify;
    for (IntervalIndex i = piece.first; i < piece.last; ++i) {
      its.passes.push_back(run.graph.rdg().units.at(piece.unit)[i].end_event);
    }
    its.goes_on = piece.goes_on && !verify;
    its.image_bytes = piece.image_bytes;
  }
  return all;
}

}  // namespace

Result<WholeOutcome> redrive_once(const SetRun& run, bool verify, const std::function<void()>& advance) {
  std::vector<Piece> pieces = pieces_of(run.trace, run.graph.rdg());
  Outcomes outcomes(run, pieces, verify, advance);
  Needs needs = needs_of(run.trace, pieces, run.processors.size(), run.total_order);
  const std::vector<size_t> order = order_of(pieces, needs);
  std::vector<ExecutedEvents> executed;
  std::set<EventRef> births;
  for (const Piece& piece : pieces) {
    executed.push_back({piece.unit, piece.begin, piece.end});
    if (piece.birth) births.insert(*piece.birth);
  }
  ASSIGN_OR_RETURN(auto made, MessageStore::make(executed, std::move(needs.sends), std::move(births)));
  MessageStore& store = *made;
  if (run.total_order) store.keep_order_of(std::move(needs.arrivals));
  ReplaySession session(
      for_session(run, pieces, verify), std::move(made), run.processors, replayers(run, store),
      {[&](size_t piece) { outcomes.piece_begins(piece); }, [&](size_t piece) { outcomes.interval_ends(piece); },
       [&](size_t piece, const auto& outcome) { outcomes.piece_ends(piece, outcome); }});
  session.run_all(order);
  return WholeOutcome{outcomes.take(), store.turns_taken()};
}

}  // namespace redrive
