// inotify and fanotify: watches, and the events that they report.
#include "test.h"

#include <fcntl.h>
#include <linux/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define SET_NEXT_WATCH 0x40044900  // INOTIFY_IOC_SETNEXTWD

static void watch(int queue) {
  MAY(ioctl(queue, SET_NEXT_WATCH, 7), ENOTTY, EINVAL);
  const int id = MUST(inotify_add_watch(queue, ".", IN_CREATE | IN_DELETE));
  MUST(close(MUST(open("made", O_WRONLY | O_CREAT, 0600))));
  MUST(unlink("made"));
  _Alignas(struct inotify_event) char events[1000];
  const ssize_t size = MUST(read(queue, events, sizeof events));
  const struct inotify_event* first = (const void*)events;
  CHECK(first->wd == id && first->mask == IN_CREATE && strcmp(first->name, "made") == 0);
  CHECK(size == 2 * (ssize_t)(sizeof *first + first->len));
  MUST(inotify_rm_watch(queue, id));
  FAILS(inotify_rm_watch(queue, id), EINVAL);
  CHECK(read(queue, events, sizeof events) == sizeof *first && first->mask == IN_IGNORED);
  MUST(close(queue));
}

int main(void) {
  watch(MUST(syscall(SYS_inotify_init)));
  watch(MUST(inotify_init1(IN_CLOEXEC)));
  int group = -1;
  if (MAY(group = syscall(SYS_fanotify_init, FAN_CLASS_NOTIF | FAN_NONBLOCK, O_RDONLY))) {
    MUST(mkdir("marked", 0700));
    MUST(syscall(SYS_fanotify_mark, group, FAN_MARK_ADD, (uint64_t)FAN_OPEN | FAN_EVENT_ON_CHILD, AT_FDCWD, "marked"));
    MUST(close(MUST(open("marked/file", O_WRONLY | O_CREAT, 0600))));
    struct fanotify_event_metadata event;
    CHECK(read(group, &event, sizeof event) == sizeof event);
    CHECK(event.mask == FAN_OPEN && event.pid == getpid() && event.fd >= 0);
    MUST(close(event.fd));
  } else {
    MAY(syscall(SYS_fanotify_mark, group, FAN_MARK_ADD, (uint64_t)FAN_OPEN, AT_FDCWD, "."), EBADF);
  }
  return ok("seen");
}
