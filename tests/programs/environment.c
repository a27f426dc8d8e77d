// args: one two  three
// Arguments, environment, auxiliary vector, limits, names: what a program finds at its start.
#include "test.h"

#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

extern char** environ;

int main(int argc, char** argv) {
  CHECK(argc == 4 && strcmp(argv[1], "one") == 0 && strcmp(argv[3], "three") == 0 && argv[4] == NULL);
  CHECK(environ && getenv("PATH"));
  setenv("REDRIVE_TEST", "value", 1);
  CHECK(strcmp(getenv("REDRIVE_TEST"), "value") == 0);
  const unsigned char* random = (const unsigned char*)getauxval(AT_RANDOM);
  CHECK(random && getauxval(AT_PAGESZ) == 4096 && getauxval(AT_UID) == getuid() && getauxval(AT_SECURE) == 0);
  unsigned char kept[16];
  memcpy(kept, random, sizeof kept);
  struct utsname system;
  MUST(uname(&system));
  CHECK(strcmp(system.sysname, "Linux") == 0);
  struct rlimit limit;
  MUST(getrlimit(RLIMIT_NOFILE, &limit));
  CHECK(limit.rlim_cur >= 64 && sysconf(_SC_OPEN_MAX) == (long)limit.rlim_cur);
  MUST(setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, limit.rlim_max}));
  char name[16];
  MUST(prctl(PR_SET_NAME, "renamed"));
  struct sysinfo information;
  MUST(sysinfo(&information));
  pass_checkpoints();
  MUST(prctl(PR_GET_NAME, name));
  CHECK(strcmp(name, "renamed") == 0 && memcmp(kept, (void*)getauxval(AT_RANDOM), sizeof kept) == 0);
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  CHECK(length > 0 && (path[length] = 0, strstr(path, "environment")));
  CHECK(get_nprocs() >= 1 && umask(027) <= 0777 && umask(022) == 027);
  return ok("%s", system.release);
}
