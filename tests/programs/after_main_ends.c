// Its first thread has ended, and others go on: they map files, share memory with processes that they start, and send to them; and one of
// them executes a program, which has threads of its own.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>

static const char* self;

static void map_files(void) {
  const int fd = MUST(open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600));
  CHECK(write(fd, "from a file", 11) == 11);
  char* const own = MUST(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
  CHECK(memcmp(own, "from a file", 11) == 0);
  const int other = MUST(open("shared", O_RDWR | O_CREAT | O_TRUNC, 0600));
  MUST(ftruncate(other, 4096));
  int* const shared = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0));
  int ends[2];
  MUST(pipe(ends));
  const pid_t child = MUST(fork());
  if (child == 0) {
    char text[5] = "";
    CHECK(read(ends[0], text, sizeof text) == 5 && memcmp(text, "hello", 5) == 0);
    __atomic_store_n(&shared[100], 7, __ATOMIC_SEQ_CST);
    _exit(0);
  }
  CHECK(write(ends[1], "hello", 5) == 5);
  while (__atomic_load_n(&shared[100], __ATOMIC_SEQ_CST) == 0) usleep(100);
  CHECK(shared[100] == 7 && own[0] == 'f');
  wait_for_exit(child, 0);
}

static void* started(void* unused) { return unused; }

static void* go_on(void* unused) {
  (void)unused;
  usleep(20000);  // until the first thread has ended
  map_files();
  pass_checkpoints();
  execl(self, self, "again", (char*)NULL);
  CHECK(!"it executes");
  return NULL;
}

int main(int argc, char** argv) {
  pthread_t id;
  if (argc == 2) {
    for (int i = 0; i < 3; i++) {
      MUST0(pthread_create(&id, NULL, started, NULL));
      MUST0(pthread_join(id, NULL));
    }
    pass_checkpoints();
    return ok("executed");
  }
  self = argv[0];
  MUST0(pthread_create(&id, NULL, go_on, NULL));
  pthread_exit(NULL);
}
