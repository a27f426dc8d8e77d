// The ioctls of block devices and loop devices, on a loop device if the user may have one, otherwise on a file that declines them; and
// those of files and file systems.
#include "test.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/hdreg.h>
#include <linux/loop.h>
#include <linux/random.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

// Requests write an unsigned long, an unsigned short and so on here.
static uint64_t found;

static int asks(int device, unsigned long request) {
  found = 0;
  const int works = MAY(ioctl(device, request, &found), ENOTTY, EINVAL, EOPNOTSUPP, ENOENT);
  if (works) NOTE(found);
  return works;
}

static void block_device(int device) {
  if (asks(device, BLKGETSIZE64)) CHECK(found == 1 << 20);
  if (asks(device, BLKGETSIZE)) CHECK(found == 2048);
  if (asks(device, BLKSSZGET)) CHECK(found == 512);
  if (asks(device, BLKROGET)) CHECK(found == 0);
  asks(device, BLKSECTGET);
  asks(device, BLKIOMIN);
  asks(device, BLKIOOPT);
  asks(device, BLKALIGNOFF);
  asks(device, BLKPBSZGET);
  asks(device, BLKDISCARDZEROES);
  asks(device, BLKROTATIONAL);
  if (asks(device, BLKBSZGET)) CHECK(found == 512 || found == 1024 || found == 2048 || found == 4096);
  MAY(ioctl(device, BLKBSZSET, &(int){1024}), ENOTTY, EBUSY);
  MAY(ioctl(device, BLKRASET, 128), ENOTTY);
  if (asks(device, BLKRAGET)) CHECK(found == 128);
  MAY(ioctl(device, BLKFRASET, 128), ENOTTY);
  asks(device, BLKFRAGET);
  MAY(ioctl(device, BLKROSET, &(int){0}), ENOTTY);
  MAY(ioctl(device, BLKFLSBUF, 0), ENOTTY);
  MAY(ioctl(device, BLKRRPART, 0), ENOTTY, EINVAL, EBUSY);
  const uint64_t range[2] = {0, 4096};
  MAY(ioctl(device, BLKZEROOUT, range), ENOTTY, EOPNOTSUPP, EBUSY);
  MAY(ioctl(device, BLKDISCARD, range), ENOTTY, EOPNOTSUPP, EBUSY);
  MAY(ioctl(device, BLKSECDISCARD, range), ENOTTY, EOPNOTSUPP, EBUSY);
  struct hd_geometry geometry;
  memset(&geometry, 0, sizeof geometry);
  if (MAY(ioctl(device, HDIO_GETGEO, &geometry), ENOTTY, EINVAL)) NOTE(geometry);
}

// A loop device for the file, or -1. Another process may take it first.
static int loop_device(int control, int file) {
  for (int i = 0; i < 10; i++) {
    char path[40];
    const int number = ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0) return -1;
    snprintf(path, sizeof path, "/dev/loop%d", number);
    const int device = open(path, O_RDWR);
    if (device < 0) return -1;
    if (MAY(ioctl(device, LOOP_SET_FD, file), EBUSY, ENXIO)) return device;
    MUST(close(device));
  }
  return -1;
}

static void configure(int device, int file) {
  struct loop_info64 info;
  memset(&info, 0, sizeof info);
  if (MAY(ioctl(device, LOOP_GET_STATUS64, &info), ENOTTY, EINVAL)) NOTE(info);
  info.lo_offset = 4096;
  if (MAY(ioctl(device, LOOP_SET_STATUS64, &info), ENOTTY, EINVAL, EAGAIN)) {
    MUST(ioctl(device, LOOP_GET_STATUS64, &info));
    CHECK(info.lo_offset == 4096);
  }
  struct loop_config config = {.fd = (uint32_t)file};
  MAY(ioctl(device, LOOP_CONFIGURE, &config), EBUSY, ENOTTY, EINVAL);  // it has a file
  MAY(ioctl(device, LOOP_SET_CAPACITY, 0), ENOTTY, EINVAL, ENXIO);
  MAY(ioctl(device, LOOP_SET_DIRECT_IO, 0), ENOTTY, EINVAL, ENXIO);
  MAY(ioctl(device, LOOP_SET_BLOCK_SIZE, 512), ENOTTY, EINVAL, ENXIO);
  MAY(ioctl(device, LOOP_CLR_FD, 0), ENOTTY, EINVAL);
}

static void files(int file) {
  int number = 0;
  const int directory = MUST(open(".", O_RDONLY | O_DIRECTORY));
  MUST(ioctl(file, FIGETBSZ, &number));
  CHECK(number >= 512);
  MAY(ioctl(file, FIBMAP, &number), ENOTTY, EINVAL);
  const int in_memory = MUST(memfd_create("in memory", 0));
  number = 5;
  FAILS(ioctl(in_memory, FIBMAP, &number), EINVAL);
  NOTE(number);
  MUST(close(in_memory));
  uint64_t size = 0;
  if (MAY(ioctl(file, FIOQSIZE, &size), ENOTTY)) NOTE(size);
  long flags = 0x7777777700000000;  // four bytes are written
  if (MAY(ioctl(file, FS_IOC_GETFLAGS, &flags), ENOTTY, EOPNOTSUPP)) NOTE(flags);
  MAY(ioctl(file, FS_IOC_SETFLAGS, &flags), ENOTTY, EOPNOTSUPP);
  long version = 0;
  if (MAY(ioctl(file, FS_IOC_GETVERSION, &version), ENOTTY)) NOTE(version);
  MAY(ioctl(file, FS_IOC_SETVERSION, &version), ENOTTY, EOPNOTSUPP, EINVAL);
  // What only some file systems and devices know, whose answers are longer than their encoding says.
  uint64_t answer[512] = {0};
  const unsigned long requests[] = {0xc0109414, 0xc0205826, 0xc0205838, 0x8008662c, 0xc0096616, 0x40046629, 0x400c6615, 0x40106614,
                                    0xc0101282, 0xc138fd00, 0x8038550a, 0x4008550c, 0x4008550d, 0xc0709411, 0x8040587f, 0x80405880,
                                    0x9408,     0x40089416, 0x80089418};
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    memset(answer, 0, sizeof answer);
    if (requests[i] == 0x8008662c) answer[0] = 16;  // the length of an UUID
    if (requests[i] == 0xc0205838) ((uint32_t*)answer)[6] = 2;
    MAY(ioctl(file, requests[i], answer), ENOTTY, EOPNOTSUPP, EINVAL, ENODATA, EOVERFLOW);
    NOTE(answer);
  }
  // Only a file system of one's own may be frozen.
  const int proc = MUST(open("/proc/self/stat", O_RDONLY));
  MAY(ioctl(proc, FIFREEZE, 0), EOPNOTSUPP, ENOTTY, EINVAL);
  MAY(ioctl(proc, FITHAW, 0), EOPNOTSUPP, ENOTTY, EINVAL);
  MUST(close(proc));
  MUST(close(directory));
}

static void namespaces_and_random(void) {
  const int space = MUST(open("/proc/self/ns/user", O_RDONLY));
  CHECK(ioctl(space, 0xb703) == 0x10000000);  // NS_GET_NSTYPE: CLONE_NEWUSER
  MAY(ioctl(space, 0xb701));
  MAY(ioctl(space, 0xb702));
  // What PIDFD_GET_*_NAMESPACE answers is another descriptor; older kernels know none of them.
  const int process = MUST(syscall(SYS_pidfd_open, getpid(), 0));
  for (unsigned long what = 0xff01; what <= 0xff0a; what++) MAY(ioctl(process, what, 0), ENOTTY, EINVAL, EOPNOTSUPP);
  MUST(close(process));
  const int sockets = open("/dev/vsock", O_RDONLY);
  unsigned cid = 0;
  if (MAY(ioctl(sockets, 0x7b9, &cid), ENOTTY, EBADF)) NOTE(cid);
  uid_t owner = 77;
  MUST(ioctl(space, 0xb704, &owner));
  NOTE(owner);
  const int random = MUST(open("/dev/urandom", O_RDWR));
  MAY(ioctl(random, RNDRESEEDCRNG));
  int entropy = -1;
  MUST(ioctl(random, RNDGETENTCNT, &entropy));  // a request that is described by its encoding
  CHECK(entropy >= 0);
}

int main(void) {
  const int file = MUST(open("blocks", O_RDWR | O_CREAT, 0600));
  MUST(ftruncate(file, 1 << 20));
  MUST(pwrite(file, "first", 5, 0));
  int control = open("/dev/loop-control", O_RDWR);
  if (control < 0) control = file;
  int device = loop_device(control, file);
  if (device < 0) {
    MAY(ioctl(file, LOOP_SET_FD, file), ENOTTY);
    MAY(ioctl(control, LOOP_CTL_GET_FREE), ENOTTY);
    device = file;
  }
  MAY(ioctl(control, LOOP_CTL_ADD, 0), EEXIST, ENOTTY);     // there is one
  MAY(ioctl(control, LOOP_CTL_REMOVE, -1), EINVAL, ENOTTY);  // there is none
  block_device(device);
  configure(device, file);
  files(file);
  namespaces_and_random();
  return ok("%016lx", noted);
}
