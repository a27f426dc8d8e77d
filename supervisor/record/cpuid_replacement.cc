#include "supervisor/record/cpuid_replacement.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "interceptors/trapped_instructions.h"

namespace redrive {
namespace {

// A file, whole; empty if it cannot be read.
Bytes contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  Bytes contents(static_cast<size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(contents.data()), static_cast<std::streamsize>(contents.size()));
  contents.resize(static_cast<size_t>(file.gcount()));
  return contents;
}

bool all_hold_cpuid(const std::string& path, const std::vector<CpuidSite>& sites) {
  std::ifstream file(path, std::ios::binary);
  return std::all_of(sites.begin(), sites.end(), [&](const CpuidSite& site) {
    char code[2] = {};
    file.seekg(static_cast<std::streamoff>(site.offset));
    return file.read(code, sizeof code) && code[0] == '\x0f' && code[1] == '\xa2';
  });
}

}  // namespace

const std::vector<CpuidSite>* CpuidReplacement::sites_of(const MappedFile& file) {
  const auto known = known_.find(file.version);
  if (known != known_.end()) return &known->second;
  FileFacts* const facts = cache_ ? cache_->of(file.path, file.version) : nullptr;
  auto sites = facts ? decode_cpuid_sites(facts->cpuid_sites) : std::nullopt;
  if (!sites || !all_hold_cpuid(file.path, *sites)) {
    const Bytes contents = contents_of(file.path);
    if (contents.empty()) return nullptr;
    sites = cpuid_sites(contents);
    if (facts) facts->cpuid_sites = encode(*sites);
  }
  return &known_.emplace(file.version, std::move(*sites)).first->second;
}

std::vector<uint8_t> CpuidReplacement::front(const FileVersion& file, uint64_t offset) const {
  const auto known = known_.find(file);
  if (known == known_.end()) return {};
  const auto& sites = known->second;
  const auto site =
      std::find_if(sites.begin(), sites.end(), [&](const CpuidSite& each) { return each.offset == offset; });
  return site == sites.end() ? std::vector<uint8_t>() : site->front;
}

std::optional<CpuidReplacement::Replaced> CpuidReplacement::replace(const Memory& memory, const Mapping& mapping,
                                                                    const MappedFile* file) {
  const auto* const sites = file ? sites_of(*file) : nullptr;
  if (!sites) return {};
  Bytes stand_in(std::begin(kCpuidStandIn), std::end(kCpuidStandIn));
  std::vector<MemoryPiece> pieces;
  Replaced replaced;
  for (const auto& site : *sites) {
    const uint64_t offset = site.offset - mapping.offset;
    if (site.offset < mapping.offset || offset > mapping.length() - stand_in.size()) continue;
    pieces.push_back({mapping.start + offset, stand_in.data(), stand_in.size()});
    replaced.sites.push_back(mapping.start + offset);
  }
  uint8_t byte = 0;  // none if the process was killed
  replaced.failed = !memory.patch(pieces) && memory.get(mapping.start, byte);
  return replaced;
}

}  // namespace redrive
