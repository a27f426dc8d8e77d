#include "base/pass_fd.h"

#include <cstddef>
#include <cstring>

namespace redrive {

bool pass_fd(int socket, int fd) {
  char byte = 0;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

Receiving Receiving::at(Address address) {
  const auto there = [&](size_t offset) { return reinterpret_cast<void*>(address + offset); };
  Receiving receiving{};
  receiving.message.msg_iov = static_cast<iovec*>(there(offsetof(Receiving, piece)));
  receiving.message.msg_iovlen = 1;
  receiving.message.msg_control = there(offsetof(Receiving, head));
  receiving.message.msg_controllen = sizeof receiving - offsetof(Receiving, head);
  receiving.piece = {there(offsetof(Receiving, byte)), 1};
  return receiving;
}

}  // namespace redrive
