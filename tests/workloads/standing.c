// Threads that stand in known functions while the first one makes a call that a test looks for, with known memory and
// vector registers: for core files. `standing`: that call is getppid, and the threads end. `standing stay`: it is pause.
// `standing crash`: it writes to a null pointer's member instead.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kThreads = 3 };
static const size_t kReserved = (size_t)64 << 20;
static int pipe_ends[2];
static pthread_barrier_t all_there;
char written[3 * 4096] = "as the file has it";
char *reserved;
__thread int own;

__attribute__((noinline)) static char level_1(int number) {
  char byte = 0;
  pthread_barrier_wait(&all_there);
  if (read(pipe_ends[0], &byte, 1) != 1) return 1;
  return (char)(byte + number - number);
}
__attribute__((noinline)) static char level_2(int number) { return (char)(level_1(number + 10) + 1); }
__attribute__((noinline)) static char level_3(int number) { return (char)(level_2(number + 100) - 1); }
static void *worker(void *argument) {
  own = (int)(intptr_t)argument;
  return (void *)(intptr_t)level_3(own);
}

static uint64_t pattern[8];

__attribute__((noinline, target("avx"))) static void stand_avx(long number) {
  __asm__ volatile("vmovdqu (%1), %%ymm5\n\tsyscall\n\tnop"
                   : "+a"(number)
                   : "r"(pattern)
                   : "rcx", "r11", "xmm5", "memory");
}
__attribute__((noinline, target("avx512f"))) static void stand_avx512(long number) {
  __asm__ volatile("vmovdqu64 (%1), %%zmm5\n\tvmovdqu64 (%1), %%zmm20\n\tsyscall\n\tnop"
                   : "+a"(number)
                   : "r"(pattern)
                   : "rcx", "r11", "xmm5", "xmm20", "memory");
}
__attribute__((noinline)) static void stand_plain(long number) {
  __asm__ volatile("movdqu (%1), %%xmm5\n\tsyscall\n\tnop"
                   : "+a"(number)
                   : "r"(pattern)
                   : "rcx", "r11", "xmm5", "memory");
}

struct member {
  char before[24];
  int value;
};

__attribute__((noinline)) static void crash(volatile struct member *object) {
  const struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  object->value = 1;
}

int main(int argc, char **argv) {
  const int stays = argc > 1 && strcmp(argv[1], "stay") == 0;
  for (int i = 0; i < 8; i++) pattern[i] = 0x1111111111111111u * (uint64_t)(i + 1);
  reserved = mmap(NULL, kReserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED || pipe(pipe_ends) != 0) return 1;
  reserved[0] = 'a';
  reserved[kReserved / 2] = 'b';
  memset(written + 4096, 'w', 4096);
  pthread_barrier_init(&all_there, NULL, kThreads + 1);
  pthread_t threads[kThreads];
  for (intptr_t i = 0; i < kThreads; i++) pthread_create(&threads[i], NULL, worker, (void *)(i + 1));
  pthread_barrier_wait(&all_there);
  const int avx512 = __builtin_cpu_supports("avx512f"), avx = __builtin_cpu_supports("avx");
  printf("standing with %s\n", avx512 ? "zmm20" : avx ? "ymm5" : "xmm5");
  fflush(stdout);
  if (argc > 1 && strcmp(argv[1], "crash") == 0) crash(NULL);
  const long number = stays ? SYS_pause : SYS_getppid;
  if (avx512) {
    stand_avx512(number);
  } else if (avx) {
    stand_avx(number);
  } else {
    stand_plain(number);
  }
  if (write(pipe_ends[1], "\0\0\0", kThreads) != kThreads) return 1;
  void *result = NULL;
  for (int i = 0; i < kThreads; i++) {
    pthread_join(threads[i], &result);
    if (result) return 1;
  }
  puts("ok");
  return 0;
}
