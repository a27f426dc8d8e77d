// usage: producer_consumer ITEMS WORK
// Pthreads with mutexes and condition variables: two producers, three consumers, a bounded queue, WORK thousand steps an item.
// The order of items differs from run to run and is part of the digest; their number and sum are checked.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kProducers = 2, kConsumers = 3, kRoom = 8 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;
static uint64_t queue[kRoom], digest, sum, items, taken;
static int head, count, work;

static uint64_t compute(uint64_t x) {
  for (int i = 0; i < work * 1000; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  return x;
}

static void* produce(void* number) {
  for (uint64_t i = (uint64_t)(uintptr_t)number; i < items; i += kProducers) {
    pthread_mutex_lock(&mutex);
    while (count == kRoom) pthread_cond_wait(&not_full, &mutex);
    queue[(head + count++) % kRoom] = i;
    pthread_cond_signal(&not_empty);
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

static void* consume(void* unused) {
  (void)unused;
  for (;;) {
    pthread_mutex_lock(&mutex);
    while (count == 0 && taken < items) pthread_cond_wait(&not_empty, &mutex);
    if (count == 0) break;
    const uint64_t item = queue[head];
    head = (head + 1) % kRoom;
    count--;
    if (++taken == items) pthread_cond_broadcast(&not_empty);
    sum += item;
    digest = (digest ^ item) * 0x100000001b3ULL;
    pthread_cond_signal(&not_full);
    pthread_mutex_unlock(&mutex);
    if (compute(item + 1) == 0) abort();
  }
  pthread_mutex_unlock(&mutex);
  return NULL;
}

int main(int argc, char** argv) {
  items = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
  work = argc > 2 ? atoi(argv[2]) : 100;
  pthread_t threads[kProducers + kConsumers];
  for (uintptr_t i = 0; i < kProducers + kConsumers; i++) {
    if (pthread_create(&threads[i], NULL, i < kProducers ? produce : consume, (void*)i) != 0) return 1;
  }
  for (int i = 0; i < kProducers + kConsumers; i++) pthread_join(threads[i], NULL);
  const int good = taken == items && sum == items * (items - 1) / 2;
  printf("%s %lu items digest %016lx\n", good ? "ok" : "WRONG", taken, digest);
  return good ? 0 : 1;
}
