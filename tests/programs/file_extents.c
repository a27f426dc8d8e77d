// The ioctls about the place of files on disk, and about sharing it: FIEMAP, and the clones and comparisons that cp, tar and git ask for.
// Processes that have mapped the file see what a clone changes. With an argument, in that directory.
#include "test.h"

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/fsmap.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

enum { kSize = 64 << 10, kHole = 16 << 10, kExtents = 32 };

static int new_file(const char* name, unsigned char value) {
  const int file = MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0600));
  static unsigned char bytes[kSize];
  memset(bytes, value, sizeof bytes);
  CHECK(MUST(pwrite(file, bytes, kHole, 0)) == kHole);
  CHECK(MUST(pwrite(file, bytes, kHole, kSize - kHole)) == kHole);
  return file;
}

static void extents(int file) {
  struct {
    struct fiemap head;
    struct fiemap_extent list[kExtents];
  } map;
  memset(&map, 0, sizeof map);
  map.head.fm_length = FIEMAP_MAX_OFFSET;
  map.head.fm_flags = FIEMAP_FLAG_SYNC;
  if (!MAY(ioctl(file, FS_IOC_FIEMAP, &map), EOPNOTSUPP, ENOTTY)) return;
  const unsigned count = map.head.fm_mapped_extents;
  CHECK(count > 0);
  NOTE(map);
  map.head.fm_extent_count = kExtents;
  MUST(ioctl(file, FS_IOC_FIEMAP, &map));
  CHECK(map.head.fm_mapped_extents == count && map.list[0].fe_logical == 0 && map.list[0].fe_length > 0);
  NOTE(map);
  // What ext4 has in memory of them.
  map.head.fm_flags = 0;
  memset(map.list, 0, sizeof map.list);
  if (MAY(ioctl(file, 0xc020662a, &map), ENOTTY, EOPNOTSUPP)) NOTE(map);
  map.head.fm_extent_count = kExtents;
  // The answer says which flags it does not know.
  map.head.fm_flags = 0x40000000;
  FAILS(ioctl(file, FS_IOC_FIEMAP, &map), EBADR);
  CHECK(map.head.fm_flags == 0x40000000);
  NOTE(map);
  FAILS(ioctl(file, FS_IOC_FIEMAP, NULL), EFAULT);
}

// Where everything lies in the file system.
static void all_extents(int file) {
  struct {
    struct fsmap_head head;
    struct fsmap list[kExtents];
  } map;
  memset(&map, 0, sizeof map);
  map.head.fmh_count = kExtents;
  map.head.fmh_keys[1] = (struct fsmap){.fmr_device = UINT32_MAX, .fmr_flags = UINT32_MAX, .fmr_physical = UINT64_MAX, .fmr_owner = UINT64_MAX,
                                        .fmr_offset = UINT64_MAX};
  if (!MAY(ioctl(file, FS_IOC_GETFSMAP, &map), EOPNOTSUPP, ENOTTY)) return;
  CHECK(map.head.fmh_entries > 0 && map.list[0].fmr_length > 0);
  NOTE(map);
}

// The old forms of fallocate(2).
static void allocations(int file) {
  struct {
    int16_t type, whence;
    int64_t start, length;
    int32_t others[6];
  } part = {.start = 1, .length = 100};
  const unsigned char* view = MUST(mmap(NULL, kSize, PROT_READ, MAP_SHARED, file, 0));
  const unsigned long requests[] = {0x40305828 /* FS_IOC_RESVSP */, 0x4030582a /* FS_IOC_RESVSP64 */, 0x40305829 /* FS_IOC_UNRESVSP */,
                                    0x4030582b /* FS_IOC_UNRESVSP64 */, 0x40305839 /* FS_IOC_ZERO_RANGE */};
  for (int i = 0; i < 5; i++) {
    CHECK(MUST(pwrite(file, "xxx", 3, 0)) == 3);
    const int works = MAY(ioctl(file, requests[i], &part), EOPNOTSUPP, ENOTTY);
    CHECK(view[0] == 'x' && view[1] == (works && i >= 2 ? 0 : 'x'));
  }
  MUST(munmap((void*)view, kSize));
}

static void clones(int from, int to) {
  const unsigned char* view = MUST(mmap(NULL, kSize, PROT_READ, MAP_SHARED, to, 0));
  CHECK(view[0] == 2);
  const unsigned char* own = MUST(mmap(NULL, kSize, PROT_READ, MAP_PRIVATE, to, 0));
  const int same = MAY(ioctl(to, FICLONE, from), EOPNOTSUPP, ENOTTY, EXDEV, EINVAL);
  CHECK(view[0] == (same ? 1 : 2) && view[kHole] == 0 && own[0] == view[0]);
  MUST(pwrite(to, "\2", 1, 0));
  struct file_clone_range range = {.src_fd = from, .src_length = kHole, .dest_offset = kHole};
  if (MAY(ioctl(to, FICLONERANGE, &range), EOPNOTSUPP, ENOTTY, EXDEV, EINVAL)) CHECK(view[kHole] == 1 && view[2 * kHole] == 0);
  CHECK(view[0] == 2 && own[0] == 2 && own[kHole] == view[kHole]);
  struct {
    struct file_dedupe_range head;
    struct file_dedupe_range_info info[2];
  } both;
  memset(&both, 0, sizeof both);
  both.head.src_length = kHole;
  both.head.dest_count = 2;
  both.info[0].dest_fd = to;
  both.info[1].dest_fd = to;
  both.info[1].dest_offset = kSize - kHole;
  if (MAY(ioctl(from, FIDEDUPERANGE, &both), EOPNOTSUPP, ENOTTY, EXDEV, EINVAL)) NOTE(both);
  MUST(munmap((void*)view, kSize)), MUST(munmap((void*)own, kSize));
}

int main(int argc, char** argv) {
  if (argc > 1) MUST(chdir(argv[1]));
  const int one = new_file("one", 1), two = new_file("two", 2), three = new_file("three", 3);
  extents(one);
  all_extents(one);
  allocations(three);
  clones(one, two);
  MUST(unlink("one")), MUST(unlink("two")), MUST(unlink("three"));
  return ok("%016lx", noted);
}
