// Bytes and datagrams between threads and processes, through all kinds of channels and calls.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <algorithm>
#include <thread>

#include "program.h"

namespace {

enum class Kind { pipe, unix_pair, tcp, unix_named, fifo };

struct Stream {
  Kind kind = Kind::pipe;
  int reader = -1, writer = -1;
  bool socket() const { return kind != Kind::pipe && kind != Kind::fifo; }
  void close_both() const { close(reader), close(writer); }
};

void connect_through(Actor& actor, int listener, const void* address, socklen_t size, Stream& stream) {
  const auto* to = static_cast<const sockaddr*>(address);
  stream.writer = MUST(socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  again(actor, [&] { return connect(stream.writer, to, size); });
  stream.reader = again(actor, [&] { return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC); });
  close(listener);
}

Stream make_stream(Actor& actor, Kind kind) {
  Stream stream{kind};
  int both[2] = {};
  if (kind == Kind::pipe) {
    MUST(pipe2(both, O_CLOEXEC));
    if (actor.random.coin())
      actor.note(static_cast<uint64_t>(fcntl(both[0], F_SETPIPE_SZ, 4096 << actor.random.below(4))));
    stream.reader = both[0], stream.writer = both[1];
  } else if (kind == Kind::unix_pair) {
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both));
    stream.reader = both[0], stream.writer = both[1];
  } else if (kind == Kind::tcp) {
    sockaddr_storage address;
    const int listener = bound_socket(AF_INET, SOCK_STREAM, &address);
    connect_through(actor, listener, &address, sizeof(sockaddr_in), stream);
  } else if (kind == Kind::unix_named) {
    sockaddr_un address = {AF_UNIX, {}};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", actor.file_name("socket").c_str());
    const int listener = MUST(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    MUST(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address));
    MUST(listen(listener, 4));
    connect_through(actor, listener, &address, sizeof address, stream);
    MUST(unlink(address.sun_path));
  } else {
    const std::string name = actor.file_name("fifo");
    MUST(mkfifo(name.c_str(), 0600));
    stream.reader = MUST(open(name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    stream.writer = MUST(open(name.c_str(), O_WRONLY | O_CLOEXEC));
    MUST(fcntl(stream.reader, F_SETFL, 0));
    MUST(unlink(name.c_str()));
  }
  return stream;
}

Kind any_kind(Actor& actor) { return static_cast<Kind>(actor.random.below(5)); }

void wait_until(Actor& actor, int fd, short events) {
  pollfd one = {fd, events, 0};
  if (actor.random.coin()) {
    again(actor, [&] { return poll(&one, 1, -1); });
  } else if (fd < FD_SETSIZE) {
    again(actor, [&] {
      fd_set set;
      FD_ZERO(&set);
      FD_SET(fd, &set);
      return events == POLLIN ? select(fd + 1, &set, nullptr, nullptr, nullptr)
                              : select(fd + 1, nullptr, &set, nullptr, nullptr);
    });
  } else {
    const int set = MUST(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event = {static_cast<uint32_t>(events), {}};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    again(actor, [&] { return epoll_wait(set, &event, 1, -1); });
    close(set);
  }
}

ssize_t send_some(Actor& actor, const Stream& stream, const unsigned char* data, size_t size) {
  iovec parts[2] = {{const_cast<unsigned char*>(data), size / 3},
                    {const_cast<unsigned char*>(data) + size / 3, size - size / 3}};
  msghdr message = {};
  message.msg_iov = parts, message.msg_iovlen = 2;
  switch (actor.random.below(stream.socket() ? 5 : 2)) {
    case 0:
      return again(actor, [&] { return write(stream.writer, data, size); });
    case 1:
      return again(actor, [&] { return writev(stream.writer, parts, 2); });
    case 2:
      return again(actor, [&] { return sendmsg(stream.writer, &message, 0); });
    case 3:
      return again(actor, [&] { return send(stream.writer, data, size, actor.random.coin() ? MSG_NOSIGNAL : 0); });
    default: {
      const ssize_t n = send(stream.writer, data, size, MSG_DONTWAIT);
      actor.note(static_cast<uint64_t>(n));
      if (n > 0) return n;
      CHECK(errno == EAGAIN || errno == EINTR);
      wait_until(actor, stream.writer, POLLOUT);
      return 0;
    }
  }
}

ssize_t receive_some(Actor& actor, const Stream& stream, unsigned char* data, size_t size) {
  iovec parts[2] = {{data, size / 2}, {data + size / 2, size - size / 2}};
  msghdr message = {};
  message.msg_iov = parts, message.msg_iovlen = 2;
  int waiting = 0;
  switch (actor.random.below(stream.socket() ? 7 : 4)) {
    case 0:
      return again(actor, [&] { return read(stream.reader, data, size); });
    case 1:
      return again(actor, [&] { return readv(stream.reader, parts, 2); });
    case 2:
      wait_until(actor, stream.reader, POLLIN);
      return again(actor, [&] { return read(stream.reader, data, size); });
    case 3:
      MUST(ioctl(stream.reader, FIONREAD, &waiting));
      actor.note(static_cast<uint64_t>(waiting));
      return again(actor, [&] {
        return read(stream.reader, data, waiting > 0 ? std::min(size, static_cast<size_t>(waiting)) : size);
      });
    case 4:
      return again(actor, [&] { return recvmsg(stream.reader, &message, 0); });
    case 5: {
      const ssize_t peeked = again(actor, [&] { return recv(stream.reader, data, size, MSG_PEEK); });
      actor.note(hash_of(data, static_cast<size_t>(peeked)));
      return again(actor, [&] { return recv(stream.reader, data, size, 0); });
    }
    default: {
      ssize_t n = recv(stream.reader, data, size, MSG_DONTWAIT);
      for (; n < 0; n = recv(stream.reader, data, size, MSG_DONTWAIT)) {  // a series of attempts
        actor.note(static_cast<uint64_t>(errno));
        CHECK(errno == EAGAIN || errno == EINTR);
        if (actor.random.below(8) == 0) wait_until(actor, stream.reader, POLLIN);
        sched_yield();
      }
      actor.note(static_cast<uint64_t>(n));
      return n;
    }
  }
}

void send_pattern(Actor& actor, const Stream& stream, uint64_t seed, size_t total, size_t chunk) {
  std::vector<unsigned char> data(total);
  fill_pattern(data, seed);
  for (size_t done = 0; done < total;) {
    const size_t size = std::min(total - done, 1 + actor.random.next() % chunk);
    done += static_cast<size_t>(send_some(actor, stream, data.data() + done, size));
    if (actor.random.below(6) == 0) spend(actor.random.below(200));
  }
}

void receive_pattern(Actor& actor, const Stream& stream, uint64_t seed, size_t total, size_t chunk) {
  std::vector<unsigned char> data(chunk);
  for (size_t done = 0; done < total;) {
    const auto n = static_cast<size_t>(
        receive_some(actor, stream, data.data(), std::min(total - done, 1 + actor.random.next() % chunk)));
    CHECK(n > 0);
    for (size_t i = 0; i < n; i++) CHECK(data[i] == pattern(seed, done + i));
    done += n;
    if (actor.random.below(6) == 0) spend(actor.random.below(200));
  }
}

// One side is a thread or a child.
uint64_t stream_transfer(Actor& actor) {
  const Stream stream = make_stream(actor, any_kind(actor));
  const uint64_t seed = actor.random.next();
  const size_t total = 1 + actor.random.next() % (actor.random.coin() ? 500 : 60000);
  const size_t send_chunk = 1 + total / static_cast<size_t>(actor.random.between(1, 20));
  const size_t receive_chunk = 1 + total / static_cast<size_t>(actor.random.between(1, 20));
  const bool peer_sends = actor.random.coin();
  Actor peer = actor;
  peer.random = Random(actor.random.next());
  const auto play = [&](Actor& who, bool sends) {
    if (sends) {
      send_pattern(who, stream, seed, total, send_chunk);
    } else {
      receive_pattern(who, stream, seed, total, receive_chunk);
    }
  };
  if (actor.random.coin()) {
    std::thread other([&] { play(peer, peer_sends); });
    play(actor, !peer_sends);
    other.join();
    actor.note(peer.observed);
  } else {
    const pid_t child = start_child([&] {
      close(peer_sends ? stream.reader : stream.writer);
      play(peer, peer_sends);
      return 0;
    });
    play(actor, !peer_sends);
    expect_exit(actor, child, 0);
  }
  stream.close_both();
  return seed + total;
}

// Short requests and answers with a child, which ends at the end of the stream.
uint64_t ping_pong(Actor& actor) {
  const Stream there = make_stream(actor, any_kind(actor)), back = make_stream(actor, any_kind(actor));
  const int rounds = actor.random.between(1, 60);
  const pid_t child = start_child([&] {
    close(there.writer), close(back.reader);
    for (int i = 0; i < rounds; i++) {
      uint64_t value = 0;
      read_fully(actor, there.reader, &value, sizeof value);
      value = value * 3 + 1;
      write_fully(actor, back.writer, &value, sizeof value);
    }
    return 0;
  });
  close(there.reader), close(back.writer);
  uint64_t value = actor.random.next();
  for (int i = 0; i < rounds; i++) {
    const uint64_t wanted = value * 3 + 1;
    write_fully(actor, there.writer, &value, sizeof value);
    read_fully(actor, back.reader, &value, sizeof value);
    CHECK(value == wanted);
  }
  close(there.writer);
  char byte = 0;
  CHECK(again(actor, [&] { return read(back.reader, &byte, 1); }) == 0);
  close(back.reader);
  expect_exit(actor, child, 0);
  return value;
}

// Datagrams, each answered, with a child or a thread.
uint64_t datagrams(Actor& actor) {
  int sides[2] = {};
  const int kind = actor.random.below(3);
  if (kind == 0) {
    MUST(socketpair(AF_UNIX, (actor.random.coin() ? SOCK_DGRAM : SOCK_SEQPACKET) | SOCK_CLOEXEC, 0, sides));
  } else if (kind == 1) {
    sockaddr_storage addresses[2];
    for (int i = 0; i < 2; i++) sides[i] = bound_socket(AF_INET, SOCK_DGRAM, &addresses[i]);
    for (int i = 0; i < 2; i++)
      MUST(connect(sides[i], reinterpret_cast<sockaddr*>(&addresses[1 - i]), sizeof(sockaddr_in)));
  } else {
    sockaddr_un addresses[2] = {{AF_UNIX, {}}, {AF_UNIX, {}}};
    for (int i = 0; i < 2; i++) {
      snprintf(addresses[i].sun_path, sizeof addresses[i].sun_path, "%s.%d", actor.file_name("datagram").c_str(), i);
      sides[i] = MUST(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      MUST(bind(sides[i], reinterpret_cast<sockaddr*>(&addresses[i]), sizeof addresses[i]));
    }
    for (int i = 0; i < 2; i++)
      MUST(connect(sides[i], reinterpret_cast<sockaddr*>(&addresses[1 - i]), sizeof addresses[0]));
  }
  const int rounds = actor.random.between(1, 30);
  const uint64_t seed = actor.random.next();
  const auto echo = [&](Actor& who) {
    std::vector<unsigned char> buffer(3000);
    for (int i = 0; i < rounds; i++) {
      const ssize_t n = again(who, [&] { return recv(sides[1], buffer.data(), buffer.size(), 0); });
      again(who, [&] { return send(sides[1], buffer.data(), static_cast<size_t>(n), 0); });
    }
  };
  const auto ask = [&] {
    for (int i = 0; i < rounds; i++) {
      std::vector<unsigned char> data(1 + static_cast<size_t>(actor.random.below(2000))), answer(3000);
      fill_pattern(data, seed, static_cast<uint64_t>(i));
      again(actor, [&] { return send(sides[0], data.data(), data.size(), 0); });
      const ssize_t n = again(
          actor, [&] { return recv(sides[0], answer.data(), answer.size(), actor.random.coin() ? MSG_TRUNC : 0); });
      CHECK(static_cast<size_t>(n) == data.size() && memcmp(answer.data(), data.data(), data.size()) == 0);
    }
  };
  if (actor.random.coin()) {
    Actor peer = actor;
    std::thread other([&] { echo(peer); });
    ask();
    other.join();
  } else {
    const pid_t child = start_child([&] { return echo(actor), 0; });
    ask();
    expect_exit(actor, child, 0);
  }
  close(sides[0]), close(sides[1]);
  return seed;
}

uint64_t event_counter(Actor& actor) {
  const bool semaphore = actor.random.coin();
  const int fd = MUST(eventfd(0, EFD_CLOEXEC | (semaphore ? EFD_SEMAPHORE : 0)));
  const int count = actor.random.between(1, 20);
  uint64_t sum = 0;
  const auto give = [&](Actor& who) {
    for (int i = 1; i <= count; i++) {
      const uint64_t value = semaphore ? 1 : static_cast<uint64_t>(i);
      write_fully(who, fd, &value, sizeof value);
      if (who.random.below(4) == 0) sched_yield();
    }
  };
  const uint64_t wanted = semaphore ? static_cast<uint64_t>(count) : static_cast<uint64_t>(count * (count + 1) / 2);
  const auto take = [&] {
    while (sum < wanted) {
      uint64_t value = 0;
      if (actor.random.coin()) wait_until(actor, fd, POLLIN);
      read_fully(actor, fd, &value, sizeof value);
      actor.note(value);
      sum += value;
    }
  };
  if (actor.random.coin()) {
    Actor peer = actor;
    std::thread other([&] { give(peer); });
    take();
    other.join();
  } else {
    const pid_t child = start_child([&] { return give(actor), 0; });
    take();
    expect_exit(actor, child, 0);
  }
  close(fd);
  CHECK(sum == wanted);
  return sum;
}

// Several writers of whole records into one pipe or datagram socket.
uint64_t many_writers(Actor& actor) {
  const Stream stream = make_stream(actor, Kind::pipe);
  const int writers = actor.random.between(2, 4), records = actor.random.between(1, 40);
  std::vector<pid_t> children;
  std::vector<std::thread> threads;
  const auto work = [&](int writer) {
    Actor who = actor;
    for (int i = 0; i < records; i++) {
      const uint64_t record[3] = {static_cast<uint64_t>(writer), static_cast<uint64_t>(i),
                                  static_cast<uint64_t>(writer * 1000 + i)};
      CHECK(again(who, [&] { return write(stream.writer, record, sizeof record); }) == sizeof record);
    }
    return 0;
  };
  for (int writer = 0; writer < writers; writer++) {
    if (actor.random.coin()) {
      children.push_back(start_child([&] { return work(writer); }));
    } else {
      threads.emplace_back([&work, writer] { work(writer); });
    }
  }
  std::vector<uint64_t> next(static_cast<size_t>(writers));
  for (int i = 0; i < writers * records; i++) {
    uint64_t record[3];
    read_fully(actor, stream.reader, record, sizeof record);
    CHECK(record[0] < next.size() && record[1] == next[record[0]]++ && record[2] == record[0] * 1000 + record[1]);
    actor.note(record[0]);
  }
  for (auto& thread : threads) thread.join();
  for (const pid_t child : children) expect_exit(actor, child, 0);
  stream.close_both();
  return static_cast<uint64_t>(writers * records);
}

// The reading end of a pipe is sent to a child in a message.
uint64_t passed_descriptor(Actor& actor) {
  int sides[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sides));
  const pid_t child = start_child([&] {
    char byte = 0, control[CMSG_SPACE(sizeof(int))];
    iovec part = {&byte, 1};
    msghdr message = {};
    message.msg_iov = &part, message.msg_iovlen = 1, message.msg_control = control,
    message.msg_controllen = sizeof control;
    CHECK(again(actor, [&] { return recvmsg(sides[1], &message, MSG_CMSG_CLOEXEC); }) == 1);
    int fd = -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    uint64_t values[64];
    read_fully(actor, fd, values, sizeof values);
    for (uint64_t i = 0; i < 64; i++) CHECK(values[i] == i * i);
    return 0;
  });
  const Stream stream = make_stream(actor, any_kind(actor));
  char byte = 'x', control[CMSG_SPACE(sizeof(int))] = {};
  iovec part = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &part, message.msg_iovlen = 1, message.msg_control = control,
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &stream.reader, sizeof(int));
  again(actor, [&] { return sendmsg(sides[0], &message, 0); });
  close(stream.reader);
  for (uint64_t i = 0; i < 64; i++) {
    const uint64_t value = i * i;
    write_fully(actor, stream.writer, &value, sizeof value);
  }
  expect_exit(actor, child, 0);
  close(stream.writer), close(sides[0]), close(sides[1]);
  return 64;
}

// A child that is executed and copies its input to its output, like a filter in a shell.
uint64_t through_filter(Actor& actor) {
  const Stream there = make_stream(actor, any_kind(actor)), back = make_stream(actor, any_kind(actor));
  const std::string binary = own_binary();
  const uint64_t seed = actor.random.next();
  const size_t total = 1 + actor.random.next() % 8000;
  const pid_t child = MUST(actor.random.coin() ? fork() : vfork());
  if (child == 0) {
    dup2(there.reader, 0), dup2(back.writer, 1);
    execl(binary.c_str(), binary.c_str(), "--helper", "filter", nullptr);
    _exit(97);
  }
  close(there.reader), close(back.writer);
  std::thread writer([&] {
    Actor who = actor;
    send_pattern(who, there, seed, total, 700);
    close(there.writer);
  });
  receive_pattern(actor, back, seed, total, 900);
  writer.join();
  unsigned char byte = 0;
  CHECK(again(actor, [&] { return read(back.reader, &byte, 1); }) == 0);
  close(back.reader);
  expect_exit(actor, child, 0);
  return seed + total;
}

// An epoll server for several clients, which are children or threads.
uint64_t small_server(Actor& actor) {
  sockaddr_storage address;
  const int listener = bound_socket(AF_INET, SOCK_STREAM, &address);
  const int clients = actor.random.between(1, 4), requests = actor.random.between(1, 12);
  const auto ask = [&](int client) {
    Actor who = actor;
    const int fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    again(who, [&] { return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_in)); });
    for (int i = 0; i < requests; i++) {
      uint64_t value = static_cast<uint64_t>(client * 100 + i);
      write_fully(who, fd, &value, sizeof value);
      read_fully(who, fd, &value, sizeof value);
      CHECK(value == static_cast<uint64_t>(client * 100 + i) * 7);
    }
    close(fd);
    return 0;
  };
  std::vector<pid_t> children;
  std::vector<std::thread> threads;
  for (int client = 0; client < clients; client++) {
    if (actor.random.coin()) {
      children.push_back(start_child([&] { return ask(client); }));
    } else {
      threads.emplace_back([&ask, client] { ask(client); });
    }
  }
  const int set = MUST(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event = {EPOLLIN, {.fd = listener}};
  MUST(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event));
  uint64_t answered = 0;
  for (int open = 0, seen = 0; seen < clients || open > 0;) {
    epoll_event events[4];
    const int n = again(actor, [&] { return epoll_wait(set, events, 4, -1); });
    for (int i = 0; i < n; i++) {
      if (events[i].data.fd == listener) {
        event = {EPOLLIN, {.fd = again(actor, [&] { return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC); })}};
        MUST(epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event));
        open++, seen++;
        continue;
      }
      uint64_t value = 0;
      const ssize_t got = again(actor, [&] { return recv(events[i].data.fd, &value, sizeof value, MSG_WAITALL); });
      if (got == 0) {
        MUST(epoll_ctl(set, EPOLL_CTL_DEL, events[i].data.fd,
                       nullptr));  // children that were forked meanwhile hold it open
        close(events[i].data.fd);
        open--;
        continue;
      }
      CHECK(got == sizeof value);
      value *= 7, answered++;
      write_fully(actor, events[i].data.fd, &value, sizeof value);
    }
  }
  for (auto& thread : threads) thread.join();
  for (const pid_t child : children) expect_exit(actor, child, 0);
  close(set), close(listener);
  CHECK(answered == static_cast<uint64_t>(clients * requests));
  return answered;
}

// A file goes into a channel without its bytes passing through the program.
uint64_t file_to_stream(Actor& actor) {
  const Stream stream = make_stream(actor, any_kind(actor));
  const uint64_t seed = actor.random.next();
  std::vector<unsigned char> data(1 + actor.random.next() % 3000);
  fill_pattern(data, seed);
  const std::string name = actor.file_name("sent");
  const int file = MUST(open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  write_fully(actor, file, data.data(), data.size());
  MUST(lseek(file, 0, SEEK_SET));
  Actor peer = actor;
  std::thread reader([&] { receive_pattern(peer, stream, seed, data.size(), 500); });
  for (size_t done = 0; done < data.size();) {
    const size_t size = std::min(data.size() - done, 1 + actor.random.next() % 2000);
    done += static_cast<size_t>(again(actor, [&] { return sendfile(stream.writer, file, nullptr, size); }));
  }
  reader.join();
  close(file), unlink(name.c_str());
  stream.close_both();
  return seed;
}

}  // namespace

const std::vector<Action>& channel_actions() {
  static const std::vector<Action> actions = {
      {"stream_transfer", stream_transfer}, {"ping_pong", ping_pong},       {"datagrams", datagrams},
      {"event_counter", event_counter},     {"many_writers", many_writers}, {"passed_descriptor", passed_descriptor},
      {"through_filter", through_filter},   {"small_server", small_server}, {"file_to_stream", file_to_stream},
  };
  return actions;
}
