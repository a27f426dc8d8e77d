// The run-time directory: which sessions there are, and how they are reached. It is the only register of sessions, so
// whoever was killed finds them again there.
//
// /run/redrive belongs to root. A directory in it for each user, named by the user's number, may be entered only by
// that user and by root. It holds a unix socket for each session of the user, by the session's name. The recorder of a
// session listens there. A socket on which nobody listens was left behind by a recorder that was killed, and means
// nothing.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace redrive {

// /run/redrive, or $REDRIVE_RUN_DIR.
std::string run_directory();

// Letters, digits and "_.:@+-\", at most 255, beginning with a letter, digit or "_". An Error says what is wrong.
Result<void> check_session_name(const std::string& name);

class UserDirectory {
 public:
  static Result<UserDirectory> open(uid_t user);
  static bool exists(uid_t user);
  // Makes it, for the user. Only root can do this.
  static Result<UserDirectory> make(uid_t user);

  // A listening socket of this name. Fails if a session has it.
  Result<Fd> claim(const std::string& name) const;
  // Removes the name if nobody listens there.
  void forget(const std::string& name) const;
  // Connects to the session, which belongs to the user. Fails if there is none.
  Result<Fd> connect(const std::string& name) const;
  // Whether a session may have this name: it may have ended.
  bool has(const std::string& name) const;
  // Of all sessions, sorted. Some of them may have ended.
  std::vector<std::string> names() const;
  // The names of sessions that have not ended, sorted: kMostSessions at most, because users may put there what they
  // like. Forgets the others.
  std::vector<std::string> sessions() const;
  static constexpr size_t kMostSessions = 512;

  const std::string& path() const { return path_; }

 private:
  UserDirectory(uid_t user, std::string path, Fd directory)
      : user_(user), path_(std::move(path)), directory_(std::move(directory)) {}
  Fd locked() const;
  int try_to_connect(const std::string& name, Fd& connection) const;

  uid_t user_;
  std::string path_;
  Fd directory_;
};

// Users that have a directory, sorted.
std::vector<uid_t> users_with_directory();

}  // namespace redrive
