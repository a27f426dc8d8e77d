// The sub-rows of ioctl.
//
// Requests are listed if their encoding says something wrong (FS_IOC_GETFLAGS), if they sleep or change files, or if it
// is known what they read and write. Of the others, the encoding says what they read, and what they write is found by
// comparison (ArgKind::watched). Requests of which neither would find everything are refused.
#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <linux/blkpg.h>
#include <linux/fs.h>
#include <linux/hdreg.h>
#include <linux/if_tun.h>
#include <linux/ioctl.h>
#include <linux/kd.h>
#include <linux/loop.h>
#include <linux/nsfs.h>
#include <linux/random.h>
#include <linux/serial.h>
#include <linux/sockios.h>
#include <linux/vt.h>

#include "interceptors/syscall_rows.h"

namespace redrive {
namespace {

using namespace rows;

constexpr const char* kPointers = "its structure points to memory whose length only the driver knows";
constexpr const char* kByDriver = "if the command's structure has a length that the driver chooses";
constexpr const char* kByDevice = "what a device writes into memory is not an event";

constexpr Row plain(Call call) { return emulate(call, fd, val, val); }
constexpr Row reads(Call call, uint32_t bytes) { return emulate(call, fd, val, in(bytes)); }
constexpr Row writes(Call call, uint32_t bytes) { return emulate(call, fd, val, out(bytes)); }
constexpr Row updates(Call call, uint32_t bytes) { return emulate(call, fd, val, in_out(bytes)); }

constexpr uint32_t kInt = 4, kLong = 8;
constexpr uint32_t kTermios = 36, kTermios2 = 44, kTermio = 18;  // sizes in the kernel, not the C library
constexpr uint32_t kIfreq = 40, kArpreq = 68, kRtentry = 120;

// The structure says which part of the file is allocated, given back, or filled with zeros.
constexpr Row allocates(Call call) { return reads(call, 48).changes_file(0, FileChange::replaces); }

// The request names a network interface in an ifreq, and the answer is returned in the same ifreq.
constexpr Row interface(Call call) { return updates(call, kIfreq); }
constexpr Row asked_of_interface(Call call) { return interface(call).served(); }

constexpr auto kIoctls = sorted({
    // Terminals.
    writes(CMD(ioctl, TCGETS), kTermios).served(),
    reads(CMD(ioctl, TCSETS), kTermios).served(),
    reads(CMD(ioctl, TCSETSW), kTermios).blocks(),
    reads(CMD(ioctl, TCSETSF), kTermios).blocks(),
    writes(CMD(ioctl, TCGETA), kTermio),
    reads(CMD(ioctl, TCSETA), kTermio),
    reads(CMD(ioctl, TCSETAW), kTermio).blocks(),
    reads(CMD(ioctl, TCSETAF), kTermio).blocks(),
    writes(CMD(ioctl, TCGETS2), kTermios2),
    reads(CMD(ioctl, TCSETS2), kTermios2),
    reads(CMD(ioctl, TCSETSW2), kTermios2).blocks(),
    reads(CMD(ioctl, TCSETSF2), kTermios2).blocks(),
    writes(CMD(ioctl, TIOCGLCKTRMIOS), kTermios),
    reads(CMD(ioctl, TIOCSLCKTRMIOS), kTermios),
    plain(CMD(ioctl, TCSBRK)).blocks(),
    plain(CMD(ioctl, TCSBRKP)).blocks(),
    plain(CMD(ioctl, TCXONC)),
    plain(CMD(ioctl, TCFLSH)),
    plain(CMD(ioctl, TIOCEXCL)),
    plain(CMD(ioctl, TIOCNXCL)),
    writes(CMD(ioctl, TIOCGEXCL), kInt),
    plain(CMD(ioctl, TIOCSCTTY)),
    plain(CMD(ioctl, TIOCNOTTY)),
    writes(CMD(ioctl, TIOCGPGRP), kInt).served(),
    reads(CMD(ioctl, TIOCSPGRP), kInt),
    writes(CMD(ioctl, TIOCGSID), kInt),
    writes(CMD(ioctl, TIOCOUTQ), kInt).served(),
    writes(CMD(ioctl, FIONREAD), kInt).served(),  // also TIOCINQ, SIOCINQ
    reads(CMD(ioctl, TIOCSTI), 1),
    writes(CMD(ioctl, TIOCGWINSZ), 8).served(),
    reads(CMD(ioctl, TIOCSWINSZ), 8),
    writes(CMD(ioctl, TIOCMGET), kInt),
    reads(CMD(ioctl, TIOCMSET), kInt),
    reads(CMD(ioctl, TIOCMBIS), kInt),
    reads(CMD(ioctl, TIOCMBIC), kInt),
    plain(CMD(ioctl, TIOCMIWAIT)).blocks(),
    writes(CMD(ioctl, TIOCGICOUNT), 80),
    writes(CMD(ioctl, TIOCGSOFTCAR), kInt),
    reads(CMD(ioctl, TIOCSSOFTCAR), kInt),
    plain(CMD(ioctl, TIOCCONS)),
    writes(CMD(ioctl, TIOCGSERIAL), sizeof(serial_struct)),
    reads(CMD(ioctl, TIOCSSERIAL), sizeof(serial_struct)),
    writes(CMD(ioctl, TIOCGRS485), sizeof(serial_rs485)),
    updates(CMD(ioctl, TIOCSRS485), sizeof(serial_rs485)),
    reads(CMD(ioctl, TIOCPKT), kInt),
    writes(CMD(ioctl, TIOCGPKT), kInt),
    reads(CMD(ioctl, TIOCSETD), kInt),
    writes(CMD(ioctl, TIOCGETD), kInt),
    plain(CMD(ioctl, TIOCSBRK)),
    plain(CMD(ioctl, TIOCCBRK)),
    writes(CMD(ioctl, TIOCGPTN), kInt),
    reads(CMD(ioctl, TIOCSPTLCK), kInt),
    writes(CMD(ioctl, TIOCGPTLCK), kInt),
    plain(CMD(ioctl, TIOCGPTPEER)),
    writes(CMD(ioctl, TIOCGDEV), kInt),
    plain(CMD(ioctl, TIOCSIG)),
    plain(CMD(ioctl, TIOCVHANGUP)),
    refuse(CMD(ioctl, TIOCLINUX), EINVAL, kPointers),

    // Virtual consoles.
    writes(CMD(ioctl, KDGKBTYPE), 1),
    writes(CMD(ioctl, KDGETMODE), kInt),
    plain(CMD(ioctl, KDSETMODE)),
    writes(CMD(ioctl, KDGKBMODE), kInt),
    plain(CMD(ioctl, KDSKBMODE)),
    refuse(CMD(ioctl, KDADDIO), EPERM, kPorts),
    refuse(CMD(ioctl, KDENABIO), EPERM, kPorts),
    writes(CMD(ioctl, VT_OPENQRY), kInt),
    updates(CMD(ioctl, VT_WAITEVENT), sizeof(vt_event)).blocks(),
    writes(CMD(ioctl, VT_GETMODE), sizeof(vt_mode)),
    reads(CMD(ioctl, VT_SETMODE), sizeof(vt_mode)),
    writes(CMD(ioctl, VT_GETSTATE), sizeof(vt_stat)),
    plain(CMD(ioctl, VT_RELDISP)),
    plain(CMD(ioctl, VT_ACTIVATE)),
    plain(CMD(ioctl, VT_WAITACTIVE)).blocks(),

    // Any descriptor.
    reads(CMD(ioctl, FIONBIO), kInt).served(),
    reads(CMD(ioctl, FIOASYNC), kInt),
    plain(CMD(ioctl, FIOCLEX)).served(),
    plain(CMD(ioctl, FIONCLEX)).served(),
    writes(CMD(ioctl, FIOQSIZE), 8),
    reads(CMD(ioctl, FIOSETOWN), kInt),
    writes(CMD(ioctl, FIOGETOWN), kInt),

    // Sockets and network interfaces.
    reads(CMD(ioctl, SIOCSPGRP), kInt),
    writes(CMD(ioctl, SIOCGPGRP), kInt),
    writes(CMD(ioctl, SIOCATMARK), kInt).served(),
    writes(NEW_CMD(ioctl, 0x8906, SIOCGSTAMP), 16),
    writes(NEW_CMD(ioctl, 0x8907, SIOCGSTAMPNS), 16),
    writes(NEW_CMD(ioctl, 0x80108906, SIOCGSTAMP_NEW), 16),
    writes(NEW_CMD(ioctl, 0x80108907, SIOCGSTAMPNS_NEW), 16),
    writes(CMD(ioctl, SIOCOUTQNSD), kInt),
    plain(CMD(ioctl, SIOCGSKNS)),
    plain(NEW_CMD(ioctl, 0x89e0, SIOCUNIXFILE)),
    reads(CMD(ioctl, SIOCADDRT), kRtentry),
    reads(CMD(ioctl, SIOCDELRT), kRtentry),
    emulate(CMD(ioctl, SIOCGIFCONF), fd, val, ifconf),
    asked_of_interface(CMD(ioctl, SIOCGIFNAME)),
    asked_of_interface(CMD(ioctl, SIOCGIFFLAGS)),
    interface(CMD(ioctl, SIOCSIFFLAGS)),
    asked_of_interface(CMD(ioctl, SIOCGIFADDR)),
    interface(CMD(ioctl, SIOCSIFADDR)),
    asked_of_interface(CMD(ioctl, SIOCGIFDSTADDR)),
    interface(CMD(ioctl, SIOCSIFDSTADDR)),
    asked_of_interface(CMD(ioctl, SIOCGIFBRDADDR)),
    interface(CMD(ioctl, SIOCSIFBRDADDR)),
    asked_of_interface(CMD(ioctl, SIOCGIFNETMASK)),
    interface(CMD(ioctl, SIOCSIFNETMASK)),
    asked_of_interface(CMD(ioctl, SIOCGIFMETRIC)),
    interface(CMD(ioctl, SIOCSIFMETRIC)),
    asked_of_interface(CMD(ioctl, SIOCGIFMTU)),
    interface(CMD(ioctl, SIOCSIFMTU)),
    interface(CMD(ioctl, SIOCSIFNAME)),
    asked_of_interface(CMD(ioctl, SIOCGIFHWADDR)),
    interface(CMD(ioctl, SIOCSIFHWADDR)),
    interface(CMD(ioctl, SIOCADDMULTI)),
    interface(CMD(ioctl, SIOCDELMULTI)),
    asked_of_interface(CMD(ioctl, SIOCGIFINDEX)),
    asked_of_interface(CMD(ioctl, SIOCGIFPFLAGS)),
    interface(CMD(ioctl, SIOCSIFPFLAGS)),
    interface(CMD(ioctl, SIOCDIFADDR)),
    asked_of_interface(CMD(ioctl, SIOCGIFTXQLEN)),
    interface(CMD(ioctl, SIOCSIFTXQLEN)),
    interface(CMD(ioctl, SIOCGIFMAP)),
    interface(CMD(ioctl, SIOCSIFMAP)),
    interface(CMD(ioctl, SIOCGMIIPHY)),
    interface(CMD(ioctl, SIOCGMIIREG)),
    emulate(CMD(ioctl, SIOCETHTOOL), fd, val, ethtool).refused_in_part(EOPNOTSUPP, kByDriver),
    refuse(CMD(ioctl, SIOCSHWTSTAMP), EOPNOTSUPP, kPointers),
    refuse(NEW_CMD(ioctl, 0x89b1, SIOCGHWTSTAMP), EOPNOTSUPP, kPointers),
    updates(CMD(ioctl, SIOCGARP), kArpreq),
    reads(CMD(ioctl, SIOCSARP), kArpreq),
    reads(CMD(ioctl, SIOCDARP), kArpreq),
    // The encoding of these says int, but an ifreq is copied.
    updates(CMD(ioctl, TUNSETIFF), kIfreq),
    writes(CMD(ioctl, TUNGETIFF), kIfreq),
    writes(CMD(ioctl, TUNGETFEATURES), kInt),
    plain(CMD(ioctl, TUNSETPERSIST)),
    plain(CMD(ioctl, TUNSETOWNER)),
    plain(CMD(ioctl, TUNSETGROUP)),
    plain(CMD(ioctl, TUNSETOFFLOAD)),
    writes(CMD(ioctl, TUNGETVNETHDRSZ), kInt),
    reads(CMD(ioctl, TUNSETVNETHDRSZ), kInt),

    // Files and file systems. The flag requests are encoded with long but use int.
    // Zero is written where the file system has no blocks (fs/ioctl.c, ioctl_fibmap).
    emulate(CMD(ioctl, FIBMAP), fd, val, always(in_out(kInt))),
    writes(CMD(ioctl, FIGETBSZ), kInt),
    writes(CMD(ioctl, FS_IOC_GETFLAGS), kInt),
    reads(CMD(ioctl, FS_IOC_SETFLAGS), kInt),
    writes(CMD(ioctl, FS_IOC_GETVERSION), kInt),
    reads(CMD(ioctl, FS_IOC_SETVERSION), kInt),
    plain(CMD(ioctl, FIFREEZE)),
    plain(CMD(ioctl, FITHAW)),
    plain(NEW_CMD(ioctl, 0xb701, NS_GET_USERNS)),
    plain(NEW_CMD(ioctl, 0xb702, NS_GET_PARENT)),
    plain(NEW_CMD(ioctl, 0xb703, NS_GET_NSTYPE)),
    writes(NEW_CMD(ioctl, 0xb704, NS_GET_OWNER_UID), kInt),
    plain(NEW_CMD(ioctl, 0xff01, PIDFD_GET_CGROUP_NAMESPACE)),
    plain(NEW_CMD(ioctl, 0xff02, PIDFD_GET_IPC_NAMESPACE)),
    plain(NEW_CMD(ioctl, 0xff03, PIDFD_GET_MNT_NAMESPACE)),
    plain(NEW_CMD(ioctl, 0xff04, PIDFD_GET_NET_NAMESPACE)),
    plain(NEW_CMD(ioctl, 0xff05, PIDFD_GET_PID_NAMESPACE)),
    plain(NEW_CMD(ioctl, 0xff06, PIDFD_GET_PID_FOR_CHILDREN_NAMESPACE)),
    plain(NEW_CMD(ioctl, 0xff07, PIDFD_GET_TIME_NAMESPACE)),
    plain(NEW_CMD(ioctl, 0xff08, PIDFD_GET_TIME_FOR_CHILDREN_NAMESPACE)),
    plain(NEW_CMD(ioctl, 0xff09, PIDFD_GET_USER_NAMESPACE)),
    plain(NEW_CMD(ioctl, 0xff0a, PIDFD_GET_UTS_NAMESPACE)),
    writes(NEW_CMD(ioctl, 0x07b9, IOCTL_VM_SOCKETS_GET_LOCAL_CID), kInt),
    plain(NEW_CMD(ioctl, 0x40044900, INOTIFY_IOC_SETNEXTWD)),
    reads(NEW_CMD(ioctl, 0x40085400, TFD_IOC_SET_TICKS), 8),
    plain(CMD(ioctl, RNDRESEEDCRNG)),
    emulate(CMD(ioctl, FICLONE), fd, val, fd).blocks().changes_file(0, FileChange::replaces),
    reads(CMD(ioctl, FICLONERANGE), sizeof(file_clone_range)).blocks().changes_file(0, FileChange::replaces),
    emulate(CMD(ioctl, FIDEDUPERANGE), fd, val, counted(24, 16, 32)).blocks(),
    emulate(NEW_CMD(ioctl, 0xc020660b, FS_IOC_FIEMAP), fd, val, always(counted(32, 24, 56))),
    // Their encoding has only what comes before an array.
    emulate(NEW_CMD(ioctl, 0xc020662a, EXT4_IOC_GET_ES_CACHE), fd, val, always(counted(32, 24, 56))),
    emulate(NEW_CMD(ioctl, 0xc0109414, BTRFS_IOC_SPACE_INFO), fd, val, counted(16, 0, 32)),
    emulate(NEW_CMD(ioctl, 0xc0205826, XFS_IOC_GETBMAP), fd, val, counted(0, 24, 32)),
    emulate(NEW_CMD(ioctl, 0xc0205838, XFS_IOC_GETBMAPX), fd, val, counted(0, 24, 48)),
    emulate(NEW_CMD(ioctl, 0xc0709411, BTRFS_IOC_TREE_SEARCH_V2), fd, val, always(counted(112, 104, 1))),
    emulate(NEW_CMD(ioctl, 0xc0c0583b, FS_IOC_GETFSMAP), fd, val, always(counted(192, 8, 64))),
    emulate(NEW_CMD(ioctl, 0x8040587f, XFS_IOC_BULKSTAT), fd, val, always(counted(64, 12, 192))),
    emulate(NEW_CMD(ioctl, 0x80405880, XFS_IOC_INUMBERS), fd, val, always(counted(64, 12, 24))),
    updates(NEW_CMD(ioctl, 0x8008662c, EXT4_IOC_GETFSUUID), 24),
    updates(NEW_CMD(ioctl, 0xc0096616, FS_IOC_GET_ENCRYPTION_POLICY_EX), 32),
    // These write, against their encoding.
    writes(NEW_CMD(ioctl, 0x40046629, EXT4_IOC_GETSTATE), kInt),
    writes(NEW_CMD(ioctl, 0x400c6615, FS_IOC_GET_ENCRYPTION_POLICY), 12),
    writes(NEW_CMD(ioctl, 0x40106614, FS_IOC_GET_ENCRYPTION_PWSALT), 16),
    // These change what is in the file.
    allocates(NEW_CMD(ioctl, 0x40305828, FS_IOC_RESVSP)),
    allocates(NEW_CMD(ioctl, 0x40305829, FS_IOC_UNRESVSP)),
    allocates(NEW_CMD(ioctl, 0x4030582a, FS_IOC_RESVSP64)),
    allocates(NEW_CMD(ioctl, 0x4030582b, FS_IOC_UNRESVSP64)),
    allocates(NEW_CMD(ioctl, 0x40305839, FS_IOC_ZERO_RANGE)),
    // These sleep until all is on disk.
    plain(NEW_CMD(ioctl, 0x9408, BTRFS_IOC_SYNC)).blocks(),
    reads(NEW_CMD(ioctl, 0x40089416, BTRFS_IOC_WAIT_SYNC), 8).blocks(),
    writes(NEW_CMD(ioctl, 0x80089418, BTRFS_IOC_START_SYNC), 8).blocks(),
    refuse(NEW_CMD(ioctl, 0xc0606610, PAGEMAP_SCAN), ENOTTY, kPointers),
    refuse(NEW_CMD(ioctl, 0xc0686611, PROCMAP_QUERY), ENOTTY, kPointers),
    refuse(CMD(ioctl, RNDADDENTROPY), EPERM, kPointers),

    // Block devices.
    reads(CMD(ioctl, BLKROSET), kInt),
    writes(CMD(ioctl, BLKROGET), kInt),
    plain(CMD(ioctl, BLKRRPART)),
    writes(CMD(ioctl, BLKGETSIZE), kLong),
    plain(CMD(ioctl, BLKFLSBUF)),
    plain(CMD(ioctl, BLKRASET)),
    writes(CMD(ioctl, BLKRAGET), kLong),
    plain(CMD(ioctl, BLKFRASET)),
    writes(CMD(ioctl, BLKFRAGET), kLong),
    writes(CMD(ioctl, BLKSECTGET), 2),
    writes(CMD(ioctl, BLKSSZGET), kInt),
    writes(CMD(ioctl, BLKBSZGET), kInt),
    reads(CMD(ioctl, BLKBSZSET), kInt),
    writes(CMD(ioctl, BLKGETSIZE64), 8),
    reads(CMD(ioctl, BLKDISCARD), 16),
    reads(CMD(ioctl, BLKSECDISCARD), 16),
    reads(CMD(ioctl, BLKZEROOUT), 16),
    writes(CMD(ioctl, BLKIOMIN), kInt),
    writes(CMD(ioctl, BLKIOOPT), kInt),
    writes(CMD(ioctl, BLKALIGNOFF), kInt),
    writes(CMD(ioctl, BLKPBSZGET), kInt),
    writes(CMD(ioctl, BLKDISCARDZEROES), kInt),
    writes(CMD(ioctl, BLKROTATIONAL), 2),
    writes(CMD(ioctl, HDIO_GETGEO), sizeof(hd_geometry)),
    emulate(NEW_CMD(ioctl, 0xc0101282, BLKREPORTZONE), fd, val, counted(16, 8, 64)),
    refuse(CMD(ioctl, BLKPG), ENOTTY, kPointers),
    plain(CMD(ioctl, LOOP_SET_FD)),
    plain(CMD(ioctl, LOOP_CLR_FD)),
    plain(CMD(ioctl, LOOP_SET_CAPACITY)),
    plain(CMD(ioctl, LOOP_SET_DIRECT_IO)),
    plain(CMD(ioctl, LOOP_SET_BLOCK_SIZE)),
    reads(CMD(ioctl, LOOP_SET_STATUS64), sizeof(loop_info64)),
    writes(CMD(ioctl, LOOP_GET_STATUS64), sizeof(loop_info64)),
    reads(CMD(ioctl, LOOP_CONFIGURE), sizeof(loop_config)),
    plain(CMD(ioctl, LOOP_CTL_ADD)),
    plain(CMD(ioctl, LOOP_CTL_REMOVE)),
    plain(CMD(ioctl, LOOP_CTL_GET_FREE)),

    // The kernel writes into the buffers of these whenever the device has something for them.
    refuse(NEW_CMD(ioctl, 0x8038550a, USBDEVFS_SUBMITURB), ENOTTY, kByDevice),
    refuse(NEW_CMD(ioctl, 0x4008550c, USBDEVFS_REAPURB), ENOTTY, kByDevice),
    refuse(NEW_CMD(ioctl, 0x4008550d, USBDEVFS_REAPURBNDELAY), ENOTTY, kByDevice),
});

static_assert(valid_table(kIoctls), "unique, every extent refers to an argument that exists");

constexpr const char* kByComparison =
    "what it writes is found by comparison: memory behind pointers in memory that its structure points to is not "
    "looked at, nor what is written later";

// Requests that are not known may wait for a device.
constexpr SyscallRow kWatched = emulate(SYS(ioctl), fd, val, watched).blocks().unsure(kByComparison);
// A structure of the device mapper holds its own length, which includes what follows it.
constexpr uint32_t kDeviceMapper = 0xfd;
constexpr SyscallRow kOfDeviceMapper = emulate(SYS(ioctl), fd, val, counted(0, 12, 1)).blocks();
static_assert(valid(kWatched) && valid(kOfDeviceMapper));

// The types whose requests without a size do nothing after the call: disks, SCSI, consoles, loop devices, CD-ROMs,
// terminals, sockets and btrfs. Those of other types may go on to write into memory (KVM, vhost, VFIO).
constexpr uint32_t kTypesWithoutSize[] = {0x03, 0x12, 0x22, 'K', 'L', 'S', 'T', 'V', 0x89, 0x94};

}  // namespace

std::span<const SyscallRow> ioctl_rows() { return kIoctls; }

const SyscallRow* generic_ioctl_row(uint32_t request) {
  const uint32_t type = _IOC_TYPE(request);
  if (_IOC_SIZE(request) == 0) return std::ranges::count(kTypesWithoutSize, type) ? &kWatched : nullptr;
  if (type == kDeviceMapper) return &kOfDeviceMapper;
  return _IOC_DIR(request) == _IOC_NONE ? nullptr : &kWatched;
}

}  // namespace redrive
