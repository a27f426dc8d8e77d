#include "supervisor/record/code/trap_replacement.h"

#include <fcntl.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <utility>

#include "base/elf_file.h"
#include "base/fd.h"
#include "interceptors/trapped_instructions.h"

namespace redrive {
namespace {

// The contents of a file; empty if it cannot be read.
Bytes contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  Bytes contents(static_cast<size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(contents.data()), static_cast<std::streamsize>(contents.size()));
  contents.resize(static_cast<size_t>(file.gcount()));
  return contents;
}

// Whether the file still holds the instructions that are known of it.
bool holds(const std::string& path, const std::vector<TrapSite>& sites) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ReadFile read = read_from(file.get());
  return std::all_of(sites.begin(), sites.end(), [&](const TrapSite& site) {
    uint8_t code[3] = {};
    read(site.offset, code);
    const auto found = decode_trapped(code);
    return found && found->instruction == site.instruction;
  });
}

}  // namespace

const std::vector<TrapSite>* TrapReplacement::sites_of(const MappedFile& file) {
  const auto known = known_.find(file.version);
  if (known != known_.end()) return &known->second.sites;
  FileFacts* const facts = cache_ ? cache_->of(file.path, file.version) : nullptr;
  auto found = facts ? decode_trap_sites(facts->trap_sites) : std::nullopt;
  if (!found || found->traps != traps_ || !holds(file.path, found->sites)) {
    const Bytes contents = contents_of(file.path);
    if (contents.empty()) return nullptr;
    found = FoundTrapSites{traps_, trap_sites(contents, traps_), {}};
    if (facts) facts->trap_sites = encode(*found);
  }
  return &known_.emplace(file.version, std::move(*found)).first->second.sites;
}

std::span<const CpuidQuestion> TrapReplacement::questions(const FileVersion& file) const {
  const auto known = known_.find(file);
  return known == known_.end() ? std::span<const CpuidQuestion>() : known->second.questions;
}

void TrapReplacement::add_question(const MappedFile& file, const CpuidQuestion& question) {
  const auto known = known_.find(file.version);
  if (known == known_.end()) return;
  auto& questions = known->second.questions;
  if (questions.size() == gate::kMaxAnswers ||
      std::find(questions.begin(), questions.end(), question) != questions.end())
    return;
  questions.push_back(question);
  if (FileFacts* const facts = cache_ ? cache_->of(file.path, file.version) : nullptr) {
    facts->trap_sites = encode(known->second);
  }
}

std::vector<uint8_t> TrapReplacement::front(const FileVersion& file, uint64_t offset) const {
  const auto known = known_.find(file);
  if (known == known_.end()) return {};
  const auto& sites = known->second.sites;
  const auto site =
      std::find_if(sites.begin(), sites.end(), [&](const TrapSite& each) { return each.offset == offset; });
  return site == sites.end() ? std::vector<uint8_t>() : site->front;
}

std::optional<TrapReplacement::Replaced> TrapReplacement::replace(const Memory& memory, const Mapping& mapping,
                                                                  const MappedFile* file) {
  const auto* const sites = file ? sites_of(*file) : nullptr;
  if (!sites) return {};
  std::deque<Bytes> stand_ins;
  std::vector<MemoryPiece> pieces;
  Replaced replaced;
  for (const auto& site : *sites) {
    const auto instruction = *trapped_instruction(site.instruction);
    const uint64_t offset = site.offset - mapping.offset;
    const auto length = static_cast<uint64_t>(instruction.length);
    if (site.offset < mapping.offset || offset > mapping.length() - length) continue;
    Bytes& bytes = stand_ins.emplace_back(stand_in(instruction.length));
    pieces.push_back({mapping.start + offset, bytes.data(), bytes.size()});
    replaced.sites.emplace(mapping.start + offset, instruction);
  }
  uint8_t byte = 0;  // none if the process was killed
  replaced.failed = !memory.patch(pieces) && memory.get(mapping.start, byte);
  return replaced;
}

}  // namespace redrive
