// images: 1
// Shared mappings of files and memory objects inside one process, whatever their protection and descriptor: every mapping shows what
// another mapping, or any call that changes the object, puts there.
#include "test.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/uio.h>

enum { kPage = 4096, kPages = 4, kSize = kPages * kPage };

static unsigned char pattern[kSize];

// What the mapping shows, compared with the file and noted.
static void same(const volatile unsigned char* view, int fd, size_t size) {
  unsigned char found[kSize], held[kSize];
  CHECK(size <= sizeof held && MUST(pread(fd, held, size, 0)) == (ssize_t)size);
  for (size_t i = 0; i < size; i++) found[i] = view[i];
  CHECK(memcmp(found, held, size) == 0);
  note_bytes(found, size);
}

static int new_file(const char* name, int mode) {
  const int fd = MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0600));
  CHECK(MUST(pwrite(fd, pattern, kSize, 0)) == kSize);
  MUST(close(fd));
  return MUST(open(name, mode));
}

// Every call that changes a file, made through `writer`; `view` shows the change.
static void change(const volatile unsigned char* view, const char* name, int writer) {
  char bytes[300];
  fill(bytes, sizeof bytes, 7);
  MUST(pwrite(writer, bytes, sizeof bytes, 100));
  same(view, writer, kSize);
  MUST(lseek(writer, kPage - 10, SEEK_SET));
  MUST(write(writer, bytes, 20));
  struct iovec two[] = {{bytes, 30}, {bytes + 100, 40}};
  MUST(writev(writer, two, 2));
  MUST(pwritev(writer, two, 2, 2 * kPage));
  MUST(pwritev2(writer, two, 2, 2 * kPage + 500, 0));
  MUST(pwritev2(writer, two, 2, -1, 0));
  // At the end whatever the place is, and at the place although the descriptor appends; older kernels do not know the second.
  MAY(pwritev2(writer, two, 2, 2, 0x10), EOPNOTSUPP, EINVAL);
  const int appends = MUST(open(name, O_WRONLY | O_APPEND));
  MAY(pwritev2(appends, two, 2, 3 * kPage, 0x20), EOPNOTSUPP, EINVAL);
  MUST(close(appends));
  same(view, writer, kSize);

  const int source = new_file("source", O_RDONLY);
  off_t from = 3;
  MUST(lseek(writer, 5000, SEEK_SET));
  MUST(sendfile(writer, source, &from, 777));
  MUST(copy_file_range(source, &(off_t){11}, writer, &(off_t){9000}, 555, 0));
  MUST(lseek(writer, 10000, SEEK_SET));
  MUST(copy_file_range(source, &(off_t){0}, writer, NULL, 100, 0));
  int ends[2];
  MUST(pipe(ends));
  write_all(ends[1], bytes, sizeof bytes);
  MUST(splice(ends[0], NULL, writer, &(off_t){12000}, sizeof bytes, 0));
  same(view, writer, kSize);

  MUST(fallocate(writer, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kPage, kPage));
  same(view, writer, kSize);
  MUST(ftruncate(writer, 2 * kPage + 50));
  same(view, writer, 2 * kPage + 50);
  MUST(ftruncate(writer, kSize));
  same(view, writer, kSize);
  const int appender = MUST(open(name, O_WRONLY | O_APPEND));
  MUST(truncate(name, kPage));
  MUST(write(appender, bytes, sizeof bytes));
  MUST(pwrite(appender, bytes, 10, 0));  // appends (open(2), BUGS of pwrite)
  same(view, writer, kPage + sizeof bytes + 10);
  MUST(close(MUST(open(name, O_RDWR | O_TRUNC))));
  MUST(fallocate(writer, 0, 0, kSize));
  same(view, writer, kSize);
  MUST(pwrite(writer, pattern, kSize, 0));
  same(view, writer, kSize);
  close(source), close(appender), close(ends[0]), close(ends[1]);
}

static sigjmp_buf before;
static void at_fault(int signal) { siglongjmp(before, signal); }

int main(void) {
  fill(pattern, sizeof pattern, 3);
  const int modes[] = {O_RDONLY, O_RDWR};
  for (int i = 0; i < 2; i++) {
    // Mapped for reading; changed through another descriptor, then through a mapping.
    const int fd = new_file("shared", modes[i]), writer = MUST(open("shared", O_RDWR));
    volatile unsigned char* view = MUST(mmap(NULL, kSize, PROT_READ, MAP_SHARED, fd, 0));
    volatile unsigned char* part = MUST(mmap(NULL, kPage, PROT_READ, MAP_SHARED, fd, kPage));
    same(view, writer, kSize);
    if (i == 0) pass_checkpoints();
    change(view, "shared", writer);
    CHECK(part[5] == view[kPage + 5]);
    volatile unsigned char* writable = MUST(mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0));
    for (int at = 0; at < kSize; at += 100) writable[at] = (unsigned char)(at + i);
    same(view, writer, kSize);
    if (i == 1) {
      // A mapping of a writable descriptor can become writable.
      MUST(mprotect((void*)part, kPage, PROT_READ | PROT_WRITE));
      part[17] = 71;
      CHECK(view[kPage + 17] == 71 && writable[kPage + 17] == 71);
    }
    MUST(unlink("shared"));
    MUST(pwrite(writer, "deleted", 7, 40));
    same(view, writer, kSize);
    MUST(munmap((void*)view, kSize)), MUST(munmap((void*)part, kPage)), MUST(munmap((void*)writable, kSize));
    // The file changes while nobody has it mapped.
    MUST(pwrite(writer, "unseen", 6, 3000));
    MUST(ftruncate(writer, kPage));
    MUST(ftruncate(writer, kSize));
    view = MUST(mmap(NULL, kSize, PROT_READ, MAP_SHARED, fd, 0));
    same(view, writer, kSize);
    MUST(munmap((void*)view, kSize)), close(fd), close(writer);
  }

  // First mapped for writing, then for reading; mapped where the file has no contents yet, and extended.
  const int grown = MUST(open("grown", O_RDWR | O_CREAT | O_TRUNC, 0600)), reader = MUST(open("grown", O_RDONLY));
  unsigned char* two = MUST(mmap(NULL, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, grown, 0));
  MUST(ftruncate(grown, kPage));
  fill(two, kPage, 9);
  unsigned char* seen = MUST(mmap(NULL, kPage, PROT_READ, MAP_SHARED, reader, 0));
  CHECK(is_filled(seen, kPage, 9));
  struct sigaction action = {.sa_handler = at_fault, .sa_flags = SA_NODEFER};
  MUST(sigaction(SIGBUS, &action, NULL));
  int faults = 0;
  if (sigsetjmp(before, 1) == 0) {
    NOTE(two[kPage + 1]);
  } else {
    faults++;
  }
  CHECK(faults == 1);
  MUST(pwrite(grown, pattern, kSize, 0));
  CHECK(two[kPage + 1] == pattern[kPage + 1]);
  two = MUST(mremap(two, 2 * kPage, kSize, MREMAP_MAYMOVE));
  CHECK(memcmp(two, pattern, kSize) == 0);
  note_bytes(two, kSize);
  MUST(ftruncate(grown, kPage));
  if (sigsetjmp(before, 1) == 0) {
    NOTE(two[kPage + 1]);
  } else {
    faults++;
  }
  CHECK(faults == 2);

  // Memory objects: mapped twice with different protections, sparse, by name and by number.
  const size_t sparse = (size_t)1 << 30;
  const int memory = MUST(memfd_create("twice", 0));
  MUST(ftruncate(memory, (off_t)sparse));
  volatile unsigned char* w = MUST(mmap(NULL, sparse, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
  volatile unsigned char* r = MUST(mmap(NULL, sparse, PROT_READ, MAP_SHARED, memory, 0));
  for (size_t at = 0; at < sparse; at += sparse / 8) w[at] = (unsigned char)(at >> 27 | 0x80);
  for (size_t at = 0; at < sparse; at += sparse / 8) CHECK(r[at] == (unsigned char)(at >> 27 | 0x80));
  MUST(pwrite(memory, "in the middle", 13, (off_t)(sparse / 2 + 5)));
  CHECK(memcmp((const char*)r + sparse / 2 + 5, "in the middle", 13) == 0);
  const int id = MUST(shmget(IPC_PRIVATE, kSize, 0600));
  unsigned char* first = MUST(shmat(id, NULL, 0));
  const unsigned char* second = MUST(shmat(id, NULL, SHM_RDONLY));
  fill(first, kSize, 4);
  CHECK(is_filled(second, kSize, 4));
  MUST(shmdt(first)), MUST(shmdt(second));
  first = MUST(shmat(id, NULL, 0));
  CHECK(is_filled(first, kSize, 4));
  MUST(shmctl(id, IPC_RMID, NULL));
  volatile unsigned char* anonymous = MUST(mmap(NULL, sparse, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  anonymous[sparse / 4] = 44;
  pass_checkpoints();
  CHECK(is_filled(first, kSize, 4) && anonymous[sparse / 4] == 44 && r[sparse / 8] == 0x81);
  note_bytes((void*)(r + sparse / 2), 64), note_bytes(first, kSize), note_bytes(seen, kPage);
  return ok("%016lx", noted);
}
