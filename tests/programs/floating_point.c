// build: -lm
// Floating point and vector registers, and the rounding mode, are kept over system calls, handlers, thread switches and checkpoints.
#include "test.h"

#include <fenv.h>
#include <immintrin.h>
#include <math.h>

static volatile sig_atomic_t handled;

__attribute__((target("avx"))) static void clobber(int signal) {
  __asm__ volatile("vpcmpeqd %%xmm0, %%xmm0, %%xmm0\n vmovaps %%xmm0, %%xmm7\n vzeroupper" ::: "xmm0", "xmm7");
  volatile double x = 1.0;
  for (int i = 0; i < 10; i++) x = x / 3 + signal;
  if (++handled % 50 == 1) CHECK(getppid() >= 0);
}

// Ten vectors stay in registers, assigned by hand, over `calls` raw system calls.
__attribute__((target("avx"), noinline)) static void kept_over_syscalls(double seed, long calls, long number, long a, long b) {
  const __m256d one = _mm256_set_pd(seed, seed * 2, seed * 3, seed * 4), two = _mm256_set1_pd(seed + 0.5);
  __m256d after_one, after_two;
  __asm__ volatile(
      "vmovapd %[one], %%ymm7\n"
      "vmovapd %[two], %%ymm13\n"
      "1: mov %[number], %%rax\n"
      "mov %[a], %%rdi\n"
      "mov %[b], %%rsi\n"
      "syscall\n"
      "dec %[calls]\n"
      "jnz 1b\n"
      "vmovapd %%ymm7, %[after_one]\n"
      "vmovapd %%ymm13, %[after_two]\n"
      : [after_one] "=m"(after_one), [after_two] "=m"(after_two), [calls] "+r"(calls)
      : [one] "m"(one), [two] "m"(two), [number] "r"(number), [a] "r"(a), [b] "r"(b)
      : "rax", "rdi", "rsi", "rcx", "r11", "xmm7", "xmm13", "memory");
  CHECK(memcmp(&after_one, &one, sizeof one) == 0 && memcmp(&after_two, &two, sizeof two) == 0);
}

static void* thread(void* number) {
  const double seed = 1.25 * (double)(intptr_t)number;
  if (__builtin_cpu_supports("avx")) kept_over_syscalls(seed, 2000, SYS_sched_yield, 0, 0);
  long double extended = 1;
  for (int i = 1; i < 500; i++) {
    extended = extended * 1.01L + sinl(i);
    sched_yield();
  }
  long double again = 1;
  for (int i = 1; i < 500; i++) again = again * 1.01L + sinl(i);
  CHECK(memcmp(&extended, &again, 10) == 0);
  return NULL;
}

int main(void) {
  const int avx = __builtin_cpu_supports("avx");
  if (avx) {
    MUST(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = clobber}, NULL));
    kept_over_syscalls(3.14159, 3000, SYS_getppid, 0, 0);
    kept_over_syscalls(2.71828, 300, SYS_kill, getpid(), SIGUSR1);
    CHECK(handled == 300);
  }
  CHECK(fesetround(FE_UPWARD) == 0);
  volatile double one = 1, three = 3;
  const double up = one / three;
  pass_checkpoints();
  if (avx) kept_over_syscalls(1.41421, 200000, SYS_getppid, 0, 0);
  CHECK(fegetround() == FE_UPWARD && one / three == up);
  CHECK(fesetround(FE_TONEAREST) == 0 && one / three < up);
  pthread_t ids[3];
  for (intptr_t i = 0; i < 3; i++) MUST0(pthread_create(&ids[i], NULL, thread, (void*)(i + 1)));
  for (int i = 0; i < 3; i++) MUST0(pthread_join(ids[i], NULL));
  return ok("avx %d", avx != 0);
}
