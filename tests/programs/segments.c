// Segments of a program's own (modify_ldt(2)): loaded into %fs, %gs and %es, they are still there after checkpoints, in threads and in
// forked children, but not in programs that these execute; 32-bit code reads through them.
// images: 2
#include <asm/ldt.h>
#include <asm/prctl.h>
#include <sys/mman.h>

#include "test.h"

enum { kRead = 0, kWriteOld = 1, kReadDefault = 2, kWrite = 0x11 };
enum { kData = 1, kOther = 5, kCode = 7, kOld = 9, kThread = 12 };

static int modify_ldt(int function, void* at, unsigned long size) {
  const int result = (int)syscall(SYS_modify_ldt, function, at, size);
  if (result >= 0) return result;
  errno = -result;
  return -1;
}

static unsigned selector(unsigned entry) { return entry << 3 | 7; }

static void* low_memory(int protection) {
  void* memory = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

static void describe(unsigned entry, const void* base, unsigned contents) {
  struct user_desc descriptor = {.entry_number = entry,
                                 .base_addr = (unsigned)(uintptr_t)base,
                                 .limit = 4095,
                                 .seg_32bit = 1,
                                 .contents = contents,
                                 .useable = 1};
  CHECK(modify_ldt(kWrite, &descriptor, sizeof descriptor) == 0);
}

static void load_gs(unsigned value) { __asm__ volatile("mov %0, %%gs" : : "r"(value)); }
static void load_es(unsigned value) { __asm__ volatile("mov %0, %%es" : : "r"(value)); }
static unsigned gs(void) {
  unsigned value;
  __asm__ volatile("mov %%gs, %0" : "=r"(value));
  return value;
}
static unsigned es(void) {
  unsigned value;
  __asm__ volatile("mov %%es, %0" : "=r"(value));
  return value;
}
static uint64_t read_gs(uint64_t offset) {
  uint64_t value;
  __asm__ volatile("mov %%gs:(%1), %0" : "=r"(value) : "r"(offset));
  return value;
}
static void write_gs(uint64_t offset, uint64_t value) {
  __asm__ volatile("mov %0, %%gs:(%1)" : : "r"(value), "r"(offset) : "memory");
}

// What is at the start of the segment, read through %fs. libc finds its own %fs again afterwards.
static uint64_t read_by_fs(unsigned segment) {
  unsigned long base;
  MUST(syscall(SYS_arch_prctl, ARCH_GET_FS, &base));
  uint64_t value;
  long number = SYS_arch_prctl;
  __asm__ volatile(
      "mov %[segment], %%fs\n"
      "mov %%fs:0, %[value]\n"
      "syscall\n"
      : [value] "=&r"(value), "+a"(number)
      : [segment] "r"(segment), "D"((long)ARCH_SET_FS), "S"(base)
      : "rcx", "r11", "memory");
  CHECK(number == 0);
  unsigned fs;
  __asm__ volatile("mov %%fs, %0" : "=r"(fs));
  CHECK(fs == 0);
  return value;
}

// The word at the start of %es, read by code in a 32-bit segment, which first computes until a checkpoint is due. The 64-bit code that
// calls it must have a 32-bit return address.
static uint32_t read_by_es_in_32_bits(unsigned char* code, void* stack) {
  // mov $0x20000000, %ecx; 1: dec %ecx; jnz 1b; mov %es:0, %eax; lret
  static const unsigned char reads[] = {0xb9, 0, 0, 0, 0x20, 0x49, 0x75, 0xfd, 0x26, 0xa1, 0, 0, 0, 0, 0xcb};
  // push %r12; mov %rsp, %r12; mov %rsi, %rsp; lcall *(%rdi); mov %r12, %rsp; pop %r12; ret
  static const unsigned char calls[] = {0x41, 0x54, 0x49, 0x89, 0xe4, 0x48, 0x89, 0xf4,
                                        0xff, 0x1f, 0x4c, 0x89, 0xe4, 0x41, 0x5c, 0xc3};
  memcpy(code, reads, sizeof reads);
  memcpy(code + 64, calls, sizeof calls);
  describe(kCode, code, 2);
  const uint64_t target = (uint64_t)selector(kCode) << 32;
  const unsigned char* entry = code + 64;
  uint32_t (*call)(const uint64_t*, void*);
  memcpy(&call, &entry, sizeof call);
  return call(&target, (char*)stack + 4000);
}

// Some virtual machines let a program describe a segment and then kill it when it loads that.
static int segments_can_be_loaded(void) {
  const pid_t child = MUST(fork());
  if (child == 0) {
    load_gs(selector(kData));
    _exit(0);
  }
  int status = 0;
  MUST(waitpid(child, &status, 0));
  return status == 0;
}

static uint64_t* data;

static void* in_thread(void* unused) {
  // The table belongs to the process, the loaded registers to the thread; a new thread starts with those of its maker.
  CHECK(gs() == selector(kData) && read_gs(16) == data[2]);
  uint64_t* own = low_memory(PROT_READ | PROT_WRITE);
  own[1] = 77;
  describe(kThread, own, 0);
  load_gs(selector(kThread));
  pass_checkpoints();
  CHECK(gs() == selector(kThread) && read_gs(8) == 77);
  return unused;
}

static int in_child(void) {
  CHECK(gs() == selector(kData) && read_gs(0) == data[0]);
  write_gs(24, 99);
  CHECK(data[3] == 99);
  pass_checkpoints();
  CHECK(read_gs(24) == 99 && es() == selector(kData));
  // It changes only its own.
  describe(kOther, data + 1, 0);
  load_gs(selector(kOther));
  CHECK(read_gs(0) == data[1]);
  execl("/proc/self/exe", "segments", "executed", NULL);
  return 1;
}

static int executed(void) {
  unsigned char table[64] = {0};
  CHECK(modify_ldt(kRead, table, sizeof table) <= 0 && gs() == 0);
  return 0;
}

int main(int argc, char** argv) {
  if (argc > 1 && !strcmp(argv[1], "executed")) return executed();
  struct user_desc probe = {.entry_number = kData, .read_exec_only = 1, .seg_not_present = 1};
  if (modify_ldt(kWrite, &probe, sizeof probe) == -1 && errno == ENOSYS) return ok("not in this kernel");

  data = low_memory(PROT_READ | PROT_WRITE);
  for (uint64_t i = 0; i < 512; i++) data[i] = i * 0x0101010101010101ull + 5;
  describe(kData, data, 0);

  unsigned char table[64];
  memset(table, 0xee, sizeof table);
  CHECK(modify_ldt(kRead, table, sizeof table) > 0);
  NOTE(table);
  CHECK(modify_ldt(kReadDefault, table, sizeof table) >= 0);
  NOTE(table);
  FAILS(modify_ldt(kWrite, &probe, 3), EINVAL);
  FAILS(modify_ldt(kWrite, NULL, sizeof probe), EFAULT);
  probe.entry_number = 1 << 20;
  FAILS(modify_ldt(kWrite, &probe, sizeof probe), EINVAL);

  struct user_desc old = {
      .entry_number = kOld, .base_addr = (unsigned)(uintptr_t)(data + 2), .limit = 4000, .seg_32bit = 1, .useable = 1};
  CHECK(modify_ldt(kWriteOld, &old, sizeof old) == 0);

  if (!segments_can_be_loaded()) return skipped("this machine does not load segments of a program's own");
  load_gs(selector(kData));
  load_es(selector(kData));
  CHECK(gs() == selector(kData) && es() == selector(kData));
  CHECK(read_gs(8) == data[1] && read_by_fs(selector(kData)) == data[0]);
  write_gs(40, 1234);
  CHECK(data[5] == 1234);

  pass_checkpoints();
  CHECK(gs() == selector(kData) && es() == selector(kData) && read_gs(40) == 1234);
  CHECK(read_by_fs(selector(kOld)) == data[2]);

  const pid_t child = MUST(fork());
  if (child == 0) return in_child();
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, in_thread, NULL));
  MUST0(pthread_join(thread, NULL));
  int status = 0;
  MUST(waitpid(child, &status, 0));
  CHECK(status == 0);
  CHECK(gs() == selector(kData) && read_gs(24) == data[3] && data[3] != 99);
  CHECK(read_by_fs(selector(kThread)) == 0);
  CHECK(read_by_es_in_32_bits(low_memory(PROT_READ | PROT_WRITE | PROT_EXEC), low_memory(PROT_READ | PROT_WRITE)) ==
        (uint32_t)data[0]);

  // An empty descriptor clears the entry.
  struct user_desc empty = {.entry_number = kOld, .read_exec_only = 1, .seg_not_present = 1};
  CHECK(modify_ldt(kWrite, &empty, sizeof empty) == 0);
  CHECK(modify_ldt(kRead, table, sizeof table) > 0);
  NOTE(table);
  return ok("segments %x %x", gs(), es());
}
