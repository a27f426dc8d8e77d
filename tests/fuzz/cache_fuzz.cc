// cache_fuzz [SEED [ITERATIONS]]: feeds damaged entries of the cache of files to their readers. Nothing may crash, and
// trampolines can be made for every accepted plan. A failure prints its seed.
#include "interceptors/trap_sites.h"
#include "logstore/file_cache.h"
#include "supervisor/record/code/patch_plans.h"
#include "tests/fuzz/seeds.h"
#include "tests/unit/logstore_sample.h"

using namespace redrive;
using fuzz::require;

namespace {

Bytes good_plans(sample::Values& v) {
  FilePlans plans;
  for (uint64_t segments = v.below(3); segments > 0; --segments) {
    const uint64_t offset = v.below(4) * 4096;
    CodePlan& plan = plans.try_emplace({offset, 0x10000}, "", offset).first->second;
    for (uint64_t sites = v.below(5); sites > 0; --sites) {
      CodeSite& site = plan.site(100 + v.below(0x8000));
      if (std::exchange(site.examined, true)) continue;
      site.kind = static_cast<SiteKind>(v.below(6));
      if (v.once_in(3)) continue;
      const bool in_front = v.once_in(3) && site.kind <= SiteKind::cpuid;
      if (in_front) {
        site.window = PatchWindow{static_cast<uint8_t>(5 + v.below(15)), 0, 0};
        site.original = v.bytes(site.window->before);
      } else {
        const uint64_t size = instruction_size(site.kind), after = 5 - size + v.below(15);
        site.window = PatchWindow{0, static_cast<uint8_t>(after), static_cast<uint32_t>(v.any() & ((1u << after) - 1))};
        site.original = v.bytes(size + after);
      }
    }
  }
  const Bytes bytes = encode(plans);
  const auto again = decode_plans(bytes, "");
  require(again && encode(*again) == bytes, "plans do not come back as they were");
  return bytes;
}

Bytes good_sites(sample::Values& v) {
  FoundTrapSites found{.traps = {.counter = v.once_in(2), .cpuid = v.once_in(2)}, .sites = {}, .questions = {}};
  auto& sites = found.sites;
  for (uint64_t count = v.below(5), offset = 0; count > 0; --count) {
    sites.push_back({offset += 1 + v.below(1000), static_cast<int32_t>(v.below(3)), {}});
    for (uint64_t front = v.below(kMaxFront + 1); front > 0; --front) {
      sites.back().front.push_back(static_cast<uint8_t>(1 + v.below(15)));
    }
  }
  for (uint64_t count = v.below(5); count > 0; --count) {
    found.questions.push_back({static_cast<uint32_t>(v.any()), static_cast<uint32_t>(v.any())});
  }
  const Bytes bytes = encode(found);
  const auto again = decode_trap_sites(bytes);
  require(again && encode(*again) == bytes, "sites that trap do not come back as they were");
  return bytes;
}

Bytes good_entry(sample::Values& v) {
  CacheEntry entry;
  const Bytes build = v.bytes(20);
  entry.build.assign(build.begin(), build.end());
  entry.version = {v.any(), v.any(), v.any(), static_cast<int64_t>(v.any()), static_cast<int64_t>(v.any())};
  entry.filesystem = v.any();
  entry.samples = std::string(32, 'a');
  if (v.once_in(2)) {
    entry.facts.content = std::string(32, '0');
    entry.copy_inode = v.any();
  }
  entry.facts.patch_plans = good_plans(v);
  entry.facts.trap_sites = good_sites(v);
  const Bytes bytes = encode(entry);
  const auto again = decode_cache_entry(bytes);
  require(again && encode(*again) == bytes, "an entry does not come back as it was");
  return bytes;
}

void damage(Bytes& data, sample::Values& v) {
  for (uint64_t n = v.below(4) + 1; n > 0 && !data.empty(); n--) {
    const size_t at = v.below(data.size());
    switch (v.below(4)) {
      case 0:
        data.resize(at);
        break;
      case 1:
        data.insert(data.begin() + static_cast<ptrdiff_t>(at), static_cast<uint8_t>(v.any()));
        break;
      case 2:
        data[at] = 0xff;
        break;
      default:
        data[at] ^= static_cast<uint8_t>(1u << v.below(8));
    }
  }
}

// Uses the plans as the recorder does.
void use_plans(const Bytes& bytes) {
  constexpr Address kStart = 0x7f0000000000, kTrampolines = kStart - 0x100000;
  auto plans = decode_plans(bytes, "");
  if (!plans) return;
  for (auto& [key, plan] : *plans) {
    for (const auto& [patch, known] : plan.ready(kStart, nullptr)) {
      require(patch.start() >= kStart && patch.start() + patch.size() <= kStart + key.second, "a patch outside");
      require(patch.size() == patch.original.size(), "a patch of another size than what it replaces");
      PatchedSite site{patch.site, patch.start(), patch.original, 0, 0, patch.kind};
      (void)trampoline(kTrampolines, kTrampolines, patch.window, site);
      require(jump(patch.start(), kTrampolines, patch.size()).size() == patch.size(), "a jump that does not fit");
    }
  }
}

void use_sites(const Bytes& bytes) {
  const auto found = decode_trap_sites(bytes);
  if (!found) return;
  for (const auto& site : found->sites) require(site.front.size() <= kMaxFront, "too many instructions in front");
  require(found->questions.size() <= gate::kMaxAnswers, "more questions than can be answered");
}

void one_entry(uint64_t seed) {
  sample::Values v(seed);
  Bytes plans = good_plans(v), sites = good_sites(v), entry = good_entry(v);
  for (Bytes* each : {&plans, &sites, &entry}) damage(*each, v);
  use_plans(plans);
  use_sites(sites);
  if (const auto decoded = decode_cache_entry(entry)) {
    use_plans(decoded->facts.patch_plans);
    use_sites(decoded->facts.trap_sites);
  }
}

}  // namespace

int main(int argc, char** argv) { return fuzz::run(argc, argv, 50000, "entries", one_entry); }
