#include "supervisor/tier/end_state.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include "base/bytes.h"
#include "checkpoint/unit_state.h"

namespace redrive {
namespace {

constexpr uint64_t kStackPages = 4;
constexpr uint64_t kPages = 32;        // in addition to these; reading and hashing one takes half a microsecond
constexpr uint64_t kMostPages = 1024;  // for which a trace can ask

bool overlaps(const std::vector<AddressRange>& ranges, Address page) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const AddressRange& range) { return range.start < page + kPageSize && page < range.end; });
}

// Few pages at a time, because new memory may cost more than to read and hash what comes into it.
std::optional<uint64_t> hash_pages(const Memory& memory, std::span<const Address> pages) {
  constexpr size_t kAtOnce = 4;
  std::array<uint8_t, kAtOnce * kPageSize> contents;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  while (!pages.empty()) {
    const size_t count = std::min(kAtOnce, pages.size());
    std::vector<MemoryPiece> pieces;
    for (size_t i = 0; i < count; ++i) pieces.push_back({pages[i], contents.data() + i * kPageSize, kPageSize});
    if (!memory.read(pieces)) return std::nullopt;
    XXH3_64bits_update(hash.get(), contents.data(), count * kPageSize);
    pages = pages.subspan(count);
  }
  return XXH3_64bits_digest(hash.get());
}

}  // namespace

Bytes encode(const EndState& state) {
  Encoder out;
  out.fixed64(state.registers);
  out.fixed64(state.extended);
  out.u(state.extended_size);
  out.fixed64(state.memory);
  out.u(state.pages.size());
  uint64_t last = 0;
  for (const Address page : state.pages) out.u(page / kPageSize - std::exchange(last, page / kPageSize));
  return out.take();
}

std::optional<EndState> decode_end_state(std::span<const uint8_t> encoded) {
  Decoder in(encoded);
  EndState state;
  state.registers = in.fixed64();
  state.extended = in.fixed64();
  state.extended_size = in.u();
  state.memory = in.fixed64();
  const size_t pages = in.count();
  if (pages > kMostPages) return std::nullopt;
  state.pages.resize(pages);
  uint64_t last = 0;
  for (Address& page : state.pages) page = (last += in.u()) * kPageSize;
  return in.ok() && in.at_end() ? std::optional(std::move(state)) : std::nullopt;
}

std::optional<EndState> read_end_state(const user_regs_struct& regs, const Bytes& xstate, const Memory& memory,
                                       std::vector<Address> pages) {
  EndState state;
  const auto values = comparable_registers(regs);
  state.registers = XXH3_64bits(values.data(), sizeof values);
  const Bytes extended = comparable_xstate(xstate);
  state.extended = XXH3_64bits(extended.data(), extended.size());
  state.extended_size = extended.size();
  state.pages = std::move(pages);
  if (extended.empty()) return std::nullopt;
  const auto hash = hash_pages(memory, state.pages);
  if (!hash) return std::nullopt;
  state.memory = *hash;
  return state;
}

std::vector<Address> sample_pages(pid_t pid, Address sp, const std::vector<AddressRange>& except) {
  const std::vector<PageRun> runs = private_pages(pid);
  uint64_t total = 0;
  for (const auto& run : runs) total += run.pages;
  const uint64_t step = total / kPages + 1;
  const Address stack = sp & ~(kPageSize - 1);
  std::set<Address> pages;
  uint64_t next = 0, before = 0;  // the next page of the sample; pages before this run
  for (const auto& run : runs) {
    for (; next < before + run.pages; next += step) pages.insert(run.start + (next - before) * kPageSize);
    before += run.pages;
    const Address end = run.start + run.pages * kPageSize;
    for (Address page = std::max(stack, run.start); page < std::min(end, stack + kStackPages * kPageSize);
         page += kPageSize) {
      pages.insert(page);
    }
  }
  std::erase_if(pages, [&](Address page) { return overlaps(except, page); });
  return {pages.begin(), pages.end()};
}

}  // namespace redrive
