// keyctl(2) and related calls: keys of the process's own keyring, their payloads, and what each command answers.
#include "test.h"

#include <linux/keyctl.h>
#include <sys/uio.h>

static long keyctl(int command, long a, long b, long c, long d) { return syscall(SYS_keyctl, command, a, b, c, d); }

// Where a kernel has no keyrings, or a container forbids them, the calls fail, and that is recorded.
static void of_a_key(void) {
  const char payload[] = "payload of a key";
  const long key = syscall(SYS_add_key, "user", "redrive:test", payload, sizeof payload, KEY_SPEC_PROCESS_KEYRING);
  CHECK(MAY(key, EDQUOT) || key == -1);
  if (key == -1) return;
  char read[64] = {0}, text[256] = {0};
  CHECK(keyctl(KEYCTL_READ, key, (long)read, sizeof read, 0) == sizeof payload && memcmp(read, payload, sizeof payload) == 0);
  NOTE(read);
  CHECK(keyctl(KEYCTL_READ, key, (long)read, 4, 0) == sizeof payload);
  NOTE(read);
  CHECK(keyctl(KEYCTL_DESCRIBE, key, (long)text, sizeof text, 0) > 0 && strncmp(text, "user;", 5) == 0);
  NOTE(text);
  MUST(keyctl(KEYCTL_UPDATE, key, (long)"other", 5, 0));
  CHECK(keyctl(KEYCTL_READ, key, (long)read, sizeof read, 0) == 5 && memcmp(read, "other", 5) == 0);
  CHECK(keyctl(KEYCTL_SEARCH, KEY_SPEC_PROCESS_KEYRING, (long)"user", (long)"redrive:test", 0) == key);
  CHECK(syscall(SYS_request_key, "user", "redrive:test", NULL, 0) == key);
  NOTE(key);
  MUST(keyctl(KEYCTL_SETPERM, key, 0x3f3f0000, 0, 0));
  MUST(keyctl(KEYCTL_SET_TIMEOUT, key, 1000, 0, 0));
  MUST(keyctl(KEYCTL_UNLINK, key, KEY_SPEC_PROCESS_KEYRING, 0, 0));
}

int main(void) {
  of_a_key();
  unsigned char known[8];
  memset(known, 0x77, sizeof known);  // all of it is written, though the result says less
  MAY(keyctl(KEYCTL_CAPABILITIES, (long)known, sizeof known, 0, 0), EOPNOTSUPP);
  NOTE(known);
  MAY(keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_THREAD_KEYRING, 1, 0, 0), EDQUOT);
  // Their effect depends on the machine. It is enough that they are made, and fail with numbers that are no keys.
  char buffer[64] = {0};
  struct iovec vector = {buffer, 4};
  struct keyctl_dh_params group = {.prime = 1, .base = 2};
  const long none = 0x7ffffff0;
  const struct {
    int command;
    long a, b, c, d;
  } calls[] = {
      {KEYCTL_JOIN_SESSION_KEYRING, 1, 0, 0, 0},
      {KEYCTL_REVOKE, none, 0, 0, 0},
      {KEYCTL_CHOWN, none, -1, -1, 0},
      {KEYCTL_CLEAR, none, 0, 0, 0},
      {KEYCTL_LINK, none, none, 0, 0},
      {KEYCTL_INSTANTIATE, none, (long)"x", 1, 0},
      {KEYCTL_NEGATE, none, 1, 0, 0},
      {KEYCTL_SET_REQKEY_KEYRING, KEY_REQKEY_DEFL_NO_CHANGE, 0, 0, 0},
      {KEYCTL_ASSUME_AUTHORITY, none, 0, 0, 0},
      {KEYCTL_GET_SECURITY, none, (long)buffer, sizeof buffer, 0},
      {KEYCTL_SESSION_TO_PARENT, 0, 0, 0, 0},
      {KEYCTL_REJECT, none, 1, 126, 0},
      {KEYCTL_INSTANTIATE_IOV, none, (long)&vector, 1, 0},
      {KEYCTL_INVALIDATE, none, 0, 0, 0},
      {KEYCTL_GET_PERSISTENT, 12345678, none, 0, 0},
      {KEYCTL_DH_COMPUTE, (long)&group, (long)buffer, sizeof buffer, 0},
      {KEYCTL_PKEY_QUERY, none, 0, (long)"", (long)buffer},
      {KEYCTL_RESTRICT_KEYRING, none, (long)"user", (long)"x", 0},
      {KEYCTL_MOVE, none, none, none, 0},
      {KEYCTL_WATCH_KEY, none, -1, 0, 0},
  };
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    const long result = keyctl(calls[i].command, calls[i].a, calls[i].b, calls[i].c, calls[i].d);
    const int error = result < 0 ? errno : 0;
    NOTE(result);
    NOTE(error);
  }
  FAILS(keyctl(999, 0, 0, 0, 0), EOPNOTSUPP);
  return ok("%llx", (unsigned long long)noted);
}
