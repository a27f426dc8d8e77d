#include "checkpoint/tiny_program.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "base/page.h"

namespace redrive {
namespace {

constexpr unsigned kExecutable = 0x10;  // MFD_EXEC, since Linux 6.3

}  // namespace

Result<Fd> make_tiny_program(const char* name, const TinyProgram& program) {
  Bytes image(kTinyProgramSize);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_entry = program.entry;
  header.e_phoff = sizeof header;
  header.e_ehsize = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = program.has_writable_page ? 2 : 1;
  Elf64_Phdr segments[2] = {};
  for (auto& segment : segments) {
    segment.p_type = PT_LOAD;
    segment.p_filesz = segment.p_memsz = image.size();
    segment.p_align = kPageSize;
  }
  segments[0].p_flags = PF_R | PF_X;
  segments[0].p_vaddr = segments[0].p_paddr = program.start;
  segments[1].p_flags = PF_R | PF_W;
  segments[1].p_vaddr = segments[1].p_paddr = program.start + kPageSize;
  const Address at = program.code_start - program.start;
  ASSERT(at >= sizeof header + sizeof segments && at + program.code.size() <= image.size());
  std::memcpy(image.data(), &header, sizeof header);
  std::memcpy(image.data() + sizeof header, segments, sizeof segments);
  std::memcpy(image.data() + at, program.code.data(), program.code.size());
  Fd file(memfd_create(name, MFD_CLOEXEC | kExecutable));
  if (!file && errno == EINVAL) file = Fd(memfd_create(name, MFD_CLOEXEC));
  if (!file && errno == EACCES) {
    return Error{"programs in memory are forbidden here (the sysctl vm.memfd_noexec is 2; redrive needs 0 or 1)"};
  }
  if (!file || ::write(file.get(), image.data(), image.size()) != static_cast<ssize_t>(image.size()))
    return errno_error("cannot make a program in memory");
  return file;
}

}  // namespace redrive
