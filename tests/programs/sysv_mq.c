// System V message queues and semaphores between two processes.
#include "test.h"

#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

struct Message {
  long type;
  char data[200];
};

int main(void) {
  const int queue = MUST(msgget(IPC_PRIVATE, 0600)), semaphore = MUST(semget(IPC_PRIVATE, 1, 0600));
  MUST(semctl(semaphore, 0, SETVAL, 0));
  struct Message message;
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (unsigned i = 0; i < 80; i++) {
      const ssize_t n = MUST(msgrcv(queue, &message, sizeof message.data, 1, 0));
      CHECK(n == 1 + (ssize_t)i && is_filled(message.data, (size_t)n, i));
      message.type = 2;
      message.data[0] ^= 1;
      MUST(msgsnd(queue, &message, (size_t)n, 0));
    }
    MUST(semop(semaphore, &(struct sembuf){0, 1, 0}, 1));
    _exit(0);
  }
  for (unsigned i = 0; i < 80; i++) {
    message.type = 1;
    fill(message.data, 1 + i, i);
    MUST(msgsnd(queue, &message, 1 + i, 0));
    CHECK(msgrcv(queue, &message, sizeof message.data, 2, 0) == 1 + (ssize_t)i);
    message.data[0] ^= 1;
    CHECK(is_filled(message.data, 1 + i, i));
  }
  MUST(semop(semaphore, &(struct sembuf){0, -1, 0}, 1));
  CHECK(msgrcv(queue, &message, sizeof message.data, 0, IPC_NOWAIT) == -1 && errno == ENOMSG);
  struct msqid_ds state;
  MUST(msgctl(queue, IPC_STAT, &state));
  CHECK(state.msg_qnum == 0 && state.msg_lrpid == getpid());
  MUST(msgctl(queue, IPC_RMID, NULL));
  MUST(semctl(semaphore, 0, IPC_RMID));
  wait_for_exit(child, 0);
  return ok("160 messages");
}
