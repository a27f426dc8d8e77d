// Directories: made, listed, changed into, removed.
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { kFiles = 300 };

static int count(const char* directory) {
  DIR* listing = opendir(directory);
  CHECK(listing);
  int files = 0;
  for (const struct dirent* entry; (entry = readdir(listing));) files += entry->d_name[0] == 'f';
  rewinddir(listing);
  CHECK(readdir(listing));
  MUST(closedir(listing));
  return files;
}

int main(void) {
  char name[64], before[4096], after[4096];
  CHECK(getcwd(before, sizeof before));
  MUST(mkdir("directory", 0755));
  CHECK(mkdir("directory", 0755) == -1 && errno == EEXIST);
  for (int i = 0; i < kFiles; i++) {
    snprintf(name, sizeof name, "directory/f%03d", i);
    MUST(close(MUST(open(name, O_WRONLY | O_CREAT, 0644))));
  }
  CHECK(count("directory") == kFiles);
  pass_checkpoints();
  CHECK(count("directory") == kFiles);
  CHECK(rmdir("directory") == -1 && errno == ENOTEMPTY);

  MUST(chdir("directory"));
  CHECK(getcwd(after, sizeof after) && strncmp(after, before, strlen(before)) == 0);
  for (int i = 0; i < kFiles; i++) {
    snprintf(name, sizeof name, "f%03d", i);
    MUST(unlink(name));
  }
  MUST(chdir(".."));
  MUST(rmdir("directory"));
  return ok("%d files", kFiles);
}
