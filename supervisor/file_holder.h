// A way to a file that has no name, for processes of other users: the kernel lets a process open what another one has
// open (/proc/PID/fd, proc_pid_fd(5)) only if it could look into it, which a program that has given up privileges
// cannot do with its recorder. So a process with its user and group has the file open, and does nothing else.
#pragma once

#include <sys/types.h>

#include <string>
#include <thread>

#include "base/fd.h"

namespace redrive {

class FileHolder {
 public:
  FileHolder(int file, uid_t user, gid_t group);
  ~FileHolder();
  FileHolder(const FileHolder&) = delete;
  FileHolder& operator=(const FileHolder&) = delete;

  // Where those with this user and group find the file. Empty if the caller may not become such a process.
  const std::string& path() const { return path_; }

 private:
  Fd end_;  // it ends when this is closed
  std::string path_;
  std::thread thread_;  // whose child it is, so that who waits for children of another one does not see it
};

}  // namespace redrive
