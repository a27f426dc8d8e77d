// The control operations of System V shared memory, semaphores and queues, and what they write.
#include "test.h"

#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#define STAT_ANY 15  // SHM_STAT_ANY; MSG_STAT_ANY is 13, SEM_STAT_ANY 20

// The index of the object with that id in the kernel's table, which the _STAT commands take.
static int place(long (*stat_at)(int), int id, int highest) {
  for (int i = 0; i <= highest; i++) {
    if (stat_at(i) == id) return i;
  }
  check_failed(__FILE__, __LINE__, "the object is in the kernel's table");
}

static struct shmid_ds segment;
static long segment_at(int i) { return syscall(SYS_shmctl, i, SHM_STAT, &segment); }

static void shared_memory(void) {
  // While a recorder reads a copy of this process, the segment is attached twice.
  const int id = MUST(syscall(SYS_shmget, IPC_PRIVATE, 12288, IPC_CREAT | 0600));
  unsigned char* memory = shmat(id, NULL, 0);
  CHECK(memory != (void*)-1);
  fill(memory, 12288, 5);
  pass_checkpoints();
  MUST(syscall(SYS_shmctl, id, IPC_STAT, &segment));
  CHECK(segment.shm_segsz == 12288 && segment.shm_nattch >= 1 && segment.shm_cpid == getpid());
  NOTE(segment);
  segment.shm_perm.mode = 0400;
  MUST(syscall(SYS_shmctl, id, IPC_SET, &segment));
  struct shminfo limits;
  const int highest = MUST(syscall(SYS_shmctl, 0, IPC_INFO, &limits));
  NOTE(limits);
  struct shm_info used;
  MUST(syscall(SYS_shmctl, 0, SHM_INFO, &used));
  NOTE(used);
  const int at = place(segment_at, id, highest);
  CHECK((segment.shm_perm.mode & 0777) == 0400);
  memset(&segment, 0, sizeof segment);
  if (MAY(syscall(SYS_shmctl, at, STAT_ANY, &segment))) CHECK(segment.shm_segsz == 12288);
  if (MAY(syscall(SYS_shmctl, id, SHM_LOCK, NULL), ENOMEM)) MUST(syscall(SYS_shmctl, id, SHM_UNLOCK, NULL));
  MAY(syscall(SYS_shmctl, id, SHM_UNLOCK, NULL));
  CHECK(is_filled(memory, 12288, 5));
  MUST(shmdt(memory));
  MUST(syscall(SYS_shmctl, id, IPC_RMID, NULL));
}

static struct semid_ds set;
static long set_at(int i) { return syscall(SYS_semctl, i, 0, SEM_STAT, &set); }

static void semaphores(void) {
  const int id = MUST(syscall(SYS_semget, IPC_PRIVATE, 5, IPC_CREAT | 0600));
  unsigned short values[5] = {1, 2, 3, 4, 5}, found[5] = {0};
  MUST(syscall(SYS_semctl, id, 0, SETALL, values));
  MUST(syscall(SYS_semctl, id, 0, GETALL, found));
  CHECK(memcmp(values, found, sizeof values) == 0);
  MUST(syscall(SYS_semctl, id, 1, SETVAL, 7));
  CHECK(syscall(SYS_semctl, id, 1, GETVAL, 0) == 7);
  struct sembuf take[2] = {{1, -3, 0}, {4, -5, 0}};
  MUST(syscall(SYS_semop, id, take, 2));
  CHECK(syscall(SYS_semctl, id, 1, GETVAL, 0) == 4 && syscall(SYS_semctl, id, 4, GETPID, 0) == getpid());
  CHECK(syscall(SYS_semctl, id, 4, GETNCNT, 0) == 0 && syscall(SYS_semctl, id, 4, GETZCNT, 0) == 0);
  struct sembuf more = {4, -1, IPC_NOWAIT};
  FAILS(syscall(SYS_semop, id, &more, 1), EAGAIN);
  MUST(syscall(SYS_semctl, id, 0, IPC_STAT, &set));
  CHECK(set.sem_nsems == 5 && set.sem_otime > 0);
  NOTE(set);
  set.sem_perm.mode = 0640;
  MUST(syscall(SYS_semctl, id, 0, IPC_SET, &set));
  struct seminfo limits;
  MUST(syscall(SYS_semctl, 0, 0, IPC_INFO, &limits));
  NOTE(limits);
  const int highest = MUST(syscall(SYS_semctl, 0, 0, SEM_INFO, &limits));
  NOTE(limits);
  const int at = place(set_at, id, highest);
  CHECK((set.sem_perm.mode & 0777) == 0640);
  memset(&set, 0, sizeof set);
  if (MAY(syscall(SYS_semctl, at, 0, 20, &set))) CHECK(set.sem_nsems == 5);
  MUST(syscall(SYS_semctl, id, 0, IPC_RMID, 0));
}

static struct msqid_ds queue;
static long queue_at(int i) { return syscall(SYS_msgctl, i, MSG_STAT, &queue); }

static void queues(void) {
  const int id = MUST(syscall(SYS_msgget, IPC_PRIVATE, IPC_CREAT | 0600));
  struct {
    long type;
    char text[20];
  } message = {3, "in the queue"};
  MUST(syscall(SYS_msgsnd, id, &message, sizeof message.text, 0));
  MUST(syscall(SYS_msgctl, id, IPC_STAT, &queue));
  CHECK(queue.msg_qnum == 1 && queue.msg_lspid == getpid());
  NOTE(queue);
  queue.msg_perm.mode = 0644;
  MUST(syscall(SYS_msgctl, id, IPC_SET, &queue));
  struct msginfo limits;
  MUST(syscall(SYS_msgctl, 0, IPC_INFO, &limits));
  NOTE(limits);
  const int highest = MUST(syscall(SYS_msgctl, 0, MSG_INFO, &limits));
  NOTE(limits);
  const int at = place(queue_at, id, highest);
  CHECK((queue.msg_perm.mode & 0777) == 0644);
  memset(&queue, 0, sizeof queue);
  if (MAY(syscall(SYS_msgctl, at, 13, &queue))) CHECK(queue.msg_qnum == 1);
  MUST(syscall(SYS_msgctl, id, IPC_RMID, NULL));
}

int main(void) {
  shared_memory();
  semaphores();
  queues();
  return ok("%016lx", noted);
}
