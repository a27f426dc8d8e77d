#include "supervisor/replay/program_mappings.h"

#include <algorithm>

#include "checkpoint/address_space.h"

namespace redrive {

Result<std::vector<Mapping>> program_mappings(const Redriving& redriving, ProcessSerial process) {
  const Stub& stub = redriving.unit.stub(process);
  const SharedObjects& shared = redriving.unit.shared();
  const Gate* const gate = redriving.gates.of(process);
  ASSIGN_OR_RETURN(auto mappings, read_mappings(stub.pid()));
  std::erase_if(mappings, [&](const Mapping& m) {
    return (m.start < kGateEnd && kGateStart < m.end) || (gate && gate->owns(m.start, m.end));
  });
  for (auto& mapping : mappings) {
    const auto object = mapping.shared ? shared.object_of(mapping.device, mapping.inode) : std::nullopt;
    if (object) {
      mapping.shared_object = *object;
      mapping.object_size = shared.size_of(*object);
      mapping.name.clear();  // which is that of the replay's memfd
    } else if (mapping.inode != 0) {
      const std::string copy = mapping.name.substr(mapping.name.rfind('/') + 1);
      const auto& files = redriving.trace.files();
      const auto file =
          std::find_if(files.begin(), files.end(), [&](const auto& entry) { return entry.second.copy == copy; });
      if (file == files.end()) return Error{"a re-driven process has mapped " + mapping.name + ", which is no copy"};
      mapping.file = file->first;
      if (mapping.shared) mapping.shared_object = shared.shows(mapping.file);
      mapping.name = file->second.path;
    }
  }
  TRY(note_flags(stub.pid(), mappings));
  return mappings;
}

}  // namespace redrive
