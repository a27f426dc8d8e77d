// The sub-rows of all multiplexers except ioctl.
#include <asm/prctl.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/shm.h>

#include "interceptors/syscall_rows.h"

namespace redrive {
namespace {

using namespace rows;

constexpr const char* kRequeuedLock = "the kernel gives the lock to a thread that waits for another word";
constexpr const char* kLazyFree = "whether the old content comes back is up to the kernel";
constexpr const char* kForks = "checkpoints are read from a fork, which would not have this memory";
constexpr const char* kGuards = "guard pages are not restored by a checkpoint";
constexpr const char* kPermits =
    "the recorder, which opens files that programs execute or map, would wait for the permission of a process that it "
    "has stopped";
constexpr const char* kFilter = "would stop the recorder's own syscalls";
constexpr const char* kTsc = "the recorder traps the time-stamp counter itself";
constexpr const char* kTrapsCpuid = "the recorder traps cpuid itself";
constexpr const char* kTracer = "a thread has one tracer, and it is the recorder";
constexpr const char* kShadowStack = "shadow stacks are not restored by a checkpoint";
constexpr const char* kXfeatures = "extended state that must be requested is not restored by a checkpoint";

// Memory. All other advice affects performance, or the contents of a dump, but nothing that the program can see.
constexpr Row advice(Call call) { return emulate(call, ptr, val, val).served(); }
constexpr Row layout_advice(Call call) {
  return special(call, Special::madvise, ptr, val, val).served().changes(MemoryChange::range);
}

// prctl(command, ...) that uses no memory.
constexpr Row process_flag(Call call) { return emulate(call, val, val, val, val, val); }

// What a thread forbids itself (seccomp(2)).
template <typename... Args>
constexpr Row confinement(Call call, Args... args) {
  return special(call, Special::seccomp, args...);
}

constexpr auto kCommands = sorted({
    advice(CMD(madvise, MADV_NORMAL)),
    advice(CMD(madvise, MADV_RANDOM)),
    advice(CMD(madvise, MADV_SEQUENTIAL)),
    advice(CMD(madvise, MADV_WILLNEED)),
    layout_advice(CMD(madvise, MADV_DONTNEED)),
    refuse(CMD(madvise, MADV_FREE), EINVAL, kLazyFree).is_common(),
    special(CMD(madvise, MADV_REMOVE), Special::madvise, ptr, val, val),  // changes a file
    refuse(CMD(madvise, MADV_DONTFORK), EINVAL, kForks).is_common(),
    layout_advice(CMD(madvise, MADV_DOFORK)),
    advice(CMD(madvise, MADV_MERGEABLE)),
    advice(CMD(madvise, MADV_UNMERGEABLE)),
    advice(CMD(madvise, MADV_HUGEPAGE)),
    advice(CMD(madvise, MADV_NOHUGEPAGE)),
    advice(CMD(madvise, MADV_DONTDUMP)),
    advice(CMD(madvise, MADV_DODUMP)),
    refuse(CMD(madvise, MADV_WIPEONFORK), EINVAL, kForks),
    layout_advice(CMD(madvise, MADV_KEEPONFORK)),
    advice(CMD(madvise, MADV_COLD)),
    advice(CMD(madvise, MADV_PAGEOUT)),
    advice(CMD(madvise, MADV_POPULATE_READ)),
    advice(CMD(madvise, MADV_POPULATE_WRITE)),
    layout_advice(NEW_CMD(madvise, 24, MADV_DONTNEED_LOCKED)),
    advice(NEW_CMD(madvise, 25, MADV_COLLAPSE)),
    refuse(CMD(madvise, MADV_HWPOISON), EPERM, "takes memory away from the machine"),
    refuse(NEW_CMD(madvise, 101, MADV_SOFT_OFFLINE), EPERM, "takes memory away from the machine"),
    refuse(NEW_CMD(madvise, 102, MADV_GUARD_INSTALL), EINVAL, kGuards),
    refuse(NEW_CMD(madvise, 103, MADV_GUARD_REMOVE), EINVAL, kGuards),

    // Files.
    emulate(CMD(fcntl, F_DUPFD), fd, val, val).makes(NewDescriptor::copy).served(),
    emulate(CMD(fcntl, F_GETFD), fd, val).served(),
    emulate(CMD(fcntl, F_SETFD), fd, val, val).served(),
    emulate(CMD(fcntl, F_GETFL), fd, val).served(),
    emulate(CMD(fcntl, F_SETFL), fd, val, val).served(),
    emulate(CMD(fcntl, F_GETLK), fd, val, in_out(32)).served(),
    emulate(CMD(fcntl, F_SETLK), fd, val, in(32)).served(),
    emulate(CMD(fcntl, F_SETLKW), fd, val, in(32)).blocks().served(),
    emulate(CMD(fcntl, F_SETOWN), fd, val, val).served(),
    emulate(CMD(fcntl, F_GETOWN), fd, val).served(),
    emulate(CMD(fcntl, F_SETSIG), fd, val, val),
    emulate(CMD(fcntl, F_GETSIG), fd, val),
    emulate(CMD(fcntl, F_SETOWN_EX), fd, val, in(8)),
    emulate(CMD(fcntl, F_GETOWN_EX), fd, val, out(8)),
    emulate(NEW_CMD(fcntl, 17, F_GETOWNER_UIDS), fd, val, out(8)),
    emulate(CMD(fcntl, F_OFD_GETLK), fd, val, in_out(32)).served(),
    emulate(CMD(fcntl, F_OFD_SETLK), fd, val, in(32)).served(),
    emulate(CMD(fcntl, F_OFD_SETLKW), fd, val, in(32)).blocks().served(),
    emulate(CMD(fcntl, F_SETLEASE), fd, val, val),
    emulate(CMD(fcntl, F_GETLEASE), fd, val),
    emulate(CMD(fcntl, F_NOTIFY), fd, val, val),
    emulate(NEW_CMD(fcntl, 1027, F_DUPFD_QUERY), fd, val, fd),
    emulate(NEW_CMD(fcntl, 1028, F_CREATED_QUERY), fd, val),
    emulate(NEW_CMD(fcntl, 1029, F_CANCELLK), fd, val, val),
    emulate(CMD(fcntl, F_DUPFD_CLOEXEC), fd, val, val).makes(NewDescriptor::copy).served(),
    emulate(CMD(fcntl, F_SETPIPE_SZ), fd, val, val),
    emulate(CMD(fcntl, F_GETPIPE_SZ), fd, val).served(),
    emulate(CMD(fcntl, F_ADD_SEALS), fd, val, val),
    emulate(CMD(fcntl, F_GET_SEALS), fd, val),
    emulate(CMD(fcntl, F_GET_RW_HINT), fd, val, out(8)),
    emulate(CMD(fcntl, F_SET_RW_HINT), fd, val, in(8)),
    emulate(CMD(fcntl, F_GET_FILE_RW_HINT), fd, val, out(8)),
    emulate(CMD(fcntl, F_SET_FILE_RW_HINT), fd, val, in(8)),
    emulate(NEW_CMD(fanotify_init, 0, FAN_CLASS_NOTIF), val, val),
    refuse(NEW_CMD(fanotify_init, 4, FAN_CLASS_CONTENT), EINVAL, kPermits),
    refuse(NEW_CMD(fanotify_init, 8, FAN_CLASS_PRE_CONTENT), EINVAL, kPermits),
    emulate(NEW_CMD(name_to_handle_at, 0, 0), fd, path, always(self_sized(ArgKind::in_out, -1, 8)), always(out(4)),
            val),
    emulate(NEW_CMD(name_to_handle_at, 1, AT_HANDLE_MNT_ID_UNIQUE), fd, path,
            always(self_sized(ArgKind::in_out, -1, 8)), always(out(8)), val),
    emulate(NEW_CMD(sysfs, 1, SYSFS_INDEX), val, path),
    emulate(NEW_CMD(sysfs, 2, SYSFS_NAME), val, val, out_text(kPageSize)),
    emulate(NEW_CMD(sysfs, 3, SYSFS_COUNT), val),
    emulate(NEW_CMD(fsconfig, 0, FSCONFIG_SET_FLAG), fd, val, text(256), ptr, val),
    emulate(NEW_CMD(fsconfig, 1, FSCONFIG_SET_STRING), fd, val, text(256), text(256), val),
    emulate(NEW_CMD(fsconfig, 2, FSCONFIG_SET_BINARY), fd, val, text(256), in_sized_by(4), val),
    emulate(NEW_CMD(fsconfig, 3, FSCONFIG_SET_PATH), fd, val, text(256), path, fd),
    emulate(NEW_CMD(fsconfig, 4, FSCONFIG_SET_PATH_EMPTY), fd, val, text(256), path, fd),
    emulate(NEW_CMD(fsconfig, 5, FSCONFIG_SET_FD), fd, val, text(256), ptr, fd),
    emulate(NEW_CMD(fsconfig, 6, FSCONFIG_CMD_CREATE), fd, val, ptr, ptr, val),
    emulate(NEW_CMD(fsconfig, 7, FSCONFIG_CMD_RECONFIGURE), fd, val, ptr, ptr, val),
    emulate(NEW_CMD(fsconfig, 8, FSCONFIG_CMD_CREATE_EXCL), fd, val, ptr, ptr, val),

    // System V IPC. Structures as in <asm/ipcbuf.h> and similar headers.
    emulate(CMD(shmctl, IPC_RMID), val, val, ptr),
    emulate(CMD(shmctl, IPC_SET), val, val, in(112)),
    emulate(CMD(shmctl, IPC_STAT), val, val, out(112)),
    emulate(CMD(shmctl, IPC_INFO), val, val, out(72)),
    emulate(CMD(shmctl, SHM_LOCK), val, val, ptr),
    emulate(CMD(shmctl, SHM_UNLOCK), val, val, ptr),
    emulate(CMD(shmctl, SHM_STAT), val, val, out(112)),
    emulate(CMD(shmctl, SHM_INFO), val, val, out(48)),
    emulate(CMD(shmctl, SHM_STAT_ANY), val, val, out(112)),
    emulate(CMD(msgctl, IPC_RMID), val, val, ptr),
    emulate(CMD(msgctl, IPC_SET), val, val, in(120)),
    emulate(CMD(msgctl, IPC_STAT), val, val, out(120)),
    emulate(CMD(msgctl, IPC_INFO), val, val, out(32)),
    emulate(CMD(msgctl, MSG_STAT), val, val, out(120)),
    emulate(CMD(msgctl, MSG_INFO), val, val, out(32)),
    emulate(CMD(msgctl, MSG_STAT_ANY), val, val, out(120)),
    emulate(CMD(semctl, IPC_RMID), val, val, val, ptr),
    emulate(CMD(semctl, IPC_SET), val, val, val, in(104)),
    emulate(CMD(semctl, IPC_STAT), val, val, val, out(104)),
    emulate(CMD(semctl, IPC_INFO), val, val, val, out(40)),
    emulate(CMD(semctl, GETPID), val, val, val, ptr),
    emulate(CMD(semctl, GETVAL), val, val, val, ptr),
    emulate(CMD(semctl, GETALL), val, val, val, out_semaphores(0)),
    emulate(CMD(semctl, GETNCNT), val, val, val, ptr),
    emulate(CMD(semctl, GETZCNT), val, val, val, ptr),
    emulate(CMD(semctl, SETVAL), val, val, val, val),
    // Only the kernel knew how many there are when this was recorded, so only the first one is compared.
    emulate(CMD(semctl, SETALL), val, val, val, in(2)),
    emulate(CMD(semctl, SEM_STAT), val, val, val, out(104)),
    emulate(CMD(semctl, SEM_INFO), val, val, val, out(40)),
    emulate(CMD(semctl, SEM_STAT_ANY), val, val, val, out(104)),

    // Keyrings (keyctl(2)). Except for the query, the structures of PKEY commands determine what they read and write:
    // they have no rows.
    emulate(NEW_CMD(keyctl, 0, KEYCTL_GET_KEYRING_ID), val, val, val),
    emulate(NEW_CMD(keyctl, 1, KEYCTL_JOIN_SESSION_KEYRING), val, text(kPageSize)),
    emulate(NEW_CMD(keyctl, 2, KEYCTL_UPDATE), val, val, in_sized_by(3), val),
    emulate(NEW_CMD(keyctl, 3, KEYCTL_REVOKE), val, val),
    emulate(NEW_CMD(keyctl, 4, KEYCTL_CHOWN), val, val, val, val),
    emulate(NEW_CMD(keyctl, 5, KEYCTL_SETPERM), val, val, val),
    emulate(NEW_CMD(keyctl, 6, KEYCTL_DESCRIBE), val, val, out_result(3), val),
    emulate(NEW_CMD(keyctl, 7, KEYCTL_CLEAR), val, val),
    emulate(NEW_CMD(keyctl, 8, KEYCTL_LINK), val, val, val),
    emulate(NEW_CMD(keyctl, 9, KEYCTL_UNLINK), val, val, val),
    emulate(NEW_CMD(keyctl, 10, KEYCTL_SEARCH), val, val, text(32), text(kPageSize), val),
    emulate(NEW_CMD(keyctl, 11, KEYCTL_READ), val, val, out_result(3), val),
    emulate(NEW_CMD(keyctl, 12, KEYCTL_INSTANTIATE), val, val, in_sized_by(3), val, val),
    emulate(NEW_CMD(keyctl, 13, KEYCTL_NEGATE), val, val, val, val),
    emulate(NEW_CMD(keyctl, 14, KEYCTL_SET_REQKEY_KEYRING), val, val),
    emulate(NEW_CMD(keyctl, 15, KEYCTL_SET_TIMEOUT), val, val, val),
    emulate(NEW_CMD(keyctl, 16, KEYCTL_ASSUME_AUTHORITY), val, val),
    emulate(NEW_CMD(keyctl, 17, KEYCTL_GET_SECURITY), val, val, out_result(3), val),
    emulate(NEW_CMD(keyctl, 18, KEYCTL_SESSION_TO_PARENT), val),
    emulate(NEW_CMD(keyctl, 19, KEYCTL_REJECT), val, val, val, val, val),
    emulate(NEW_CMD(keyctl, 20, KEYCTL_INSTANTIATE_IOV), val, val, iov_in, val, val),
    emulate(NEW_CMD(keyctl, 21, KEYCTL_INVALIDATE), val, val),
    emulate(NEW_CMD(keyctl, 22, KEYCTL_GET_PERSISTENT), val, val, val),
    emulate(NEW_CMD(keyctl, 23, KEYCTL_DH_COMPUTE), val, in(12), out_result(3), val, ptr),
    emulate(NEW_CMD(keyctl, 24, KEYCTL_PKEY_QUERY), val, val, val, text(kPageSize), out(48)),
    emulate(NEW_CMD(keyctl, 29, KEYCTL_RESTRICT_KEYRING), val, val, text(32), text(kPageSize)),
    emulate(NEW_CMD(keyctl, 30, KEYCTL_MOVE), val, val, val, val, val),
    emulate(NEW_CMD(keyctl, 31, KEYCTL_CAPABILITIES), val, out_sized_by(2), val),
    emulate(NEW_CMD(keyctl, 32, KEYCTL_WATCH_KEY), val, val, fd, val),

    // Quotas (quotactl(2)). Structures as in <linux/quota.h> and <linux/dqblk_xfs.h>.
    emulate(NEW_CMD(quotactl, 0x80000100, Q_SYNC), val, path, val, ptr),
    emulate(NEW_CMD(quotactl, 0x80000200, Q_QUOTAON), val, path, val, path),
    emulate(NEW_CMD(quotactl, 0x80000300, Q_QUOTAOFF), val, path, val, ptr),
    emulate(NEW_CMD(quotactl, 0x80000400, Q_GETFMT), val, path, val, out(4)),
    emulate(NEW_CMD(quotactl, 0x80000500, Q_GETINFO), val, path, val, out(24)),
    emulate(NEW_CMD(quotactl, 0x80000600, Q_SETINFO), val, path, val, in(24)),
    emulate(NEW_CMD(quotactl, 0x80000700, Q_GETQUOTA), val, path, val, out(72)),
    emulate(NEW_CMD(quotactl, 0x80000800, Q_SETQUOTA), val, path, val, in(72)),
    emulate(NEW_CMD(quotactl, 0x80000900, Q_GETNEXTQUOTA), val, path, val, out(80)),
    emulate(NEW_CMD(quotactl, 0x580100, Q_XQUOTAON), val, path, val, in(4)),
    emulate(NEW_CMD(quotactl, 0x580200, Q_XQUOTAOFF), val, path, val, in(4)),
    emulate(NEW_CMD(quotactl, 0x580300, Q_XGETQUOTA), val, path, val, out(112)),
    emulate(NEW_CMD(quotactl, 0x580400, Q_XSETQLIM), val, path, val, in(112)),
    emulate(NEW_CMD(quotactl, 0x580500, Q_XGETQSTAT), val, path, val, out(80)),
    emulate(NEW_CMD(quotactl, 0x580600, Q_XQUOTARM), val, path, val, in(4)),
    emulate(NEW_CMD(quotactl, 0x580700, Q_XQUOTASYNC), val, path, val, ptr),
    emulate(NEW_CMD(quotactl, 0x580800, Q_XGETQSTATV), val, path, val, in_out(192)),
    emulate(NEW_CMD(quotactl, 0x580900, Q_XGETNEXTQUOTA), val, path, val, out(112)),
    emulate(NEW_CMD(quotactl_fd, 0x80000100, Q_SYNC), fd, val, val, ptr),
    emulate(NEW_CMD(quotactl_fd, 0x80000200, Q_QUOTAON), fd, val, val, path),
    emulate(NEW_CMD(quotactl_fd, 0x80000300, Q_QUOTAOFF), fd, val, val, ptr),
    emulate(NEW_CMD(quotactl_fd, 0x80000400, Q_GETFMT), fd, val, val, out(4)),
    emulate(NEW_CMD(quotactl_fd, 0x80000500, Q_GETINFO), fd, val, val, out(24)),
    emulate(NEW_CMD(quotactl_fd, 0x80000600, Q_SETINFO), fd, val, val, in(24)),
    emulate(NEW_CMD(quotactl_fd, 0x80000700, Q_GETQUOTA), fd, val, val, out(72)),
    emulate(NEW_CMD(quotactl_fd, 0x80000800, Q_SETQUOTA), fd, val, val, in(72)),
    emulate(NEW_CMD(quotactl_fd, 0x80000900, Q_GETNEXTQUOTA), fd, val, val, out(80)),
    emulate(NEW_CMD(quotactl_fd, 0x580100, Q_XQUOTAON), fd, val, val, in(4)),
    emulate(NEW_CMD(quotactl_fd, 0x580200, Q_XQUOTAOFF), fd, val, val, in(4)),
    emulate(NEW_CMD(quotactl_fd, 0x580300, Q_XGETQUOTA), fd, val, val, out(112)),
    emulate(NEW_CMD(quotactl_fd, 0x580400, Q_XSETQLIM), fd, val, val, in(112)),
    emulate(NEW_CMD(quotactl_fd, 0x580500, Q_XGETQSTAT), fd, val, val, out(80)),
    emulate(NEW_CMD(quotactl_fd, 0x580600, Q_XQUOTARM), fd, val, val, in(4)),
    emulate(NEW_CMD(quotactl_fd, 0x580700, Q_XQUOTASYNC), fd, val, val, ptr),
    emulate(NEW_CMD(quotactl_fd, 0x580800, Q_XGETQSTATV), fd, val, val, in_out(192)),
    emulate(NEW_CMD(quotactl_fd, 0x580900, Q_XGETNEXTQUOTA), fd, val, val, out(112)),

    emulate(NEW_CMD(landlock_add_rule, 1, LANDLOCK_RULE_PATH_BENEATH), fd, val, in(12), val),
    emulate(NEW_CMD(landlock_add_rule, 2, LANDLOCK_RULE_NET_PORT), fd, val, in(16), val),
    // Advice that changes no contents.
    emulate(CMD(process_madvise, MADV_WILLNEED), fd, in_sized_by(2, 16), val, val, val),
    emulate(CMD(process_madvise, MADV_COLD), fd, in_sized_by(2, 16), val, val, val),
    emulate(CMD(process_madvise, MADV_PAGEOUT), fd, in_sized_by(2, 16), val, val, val),
    emulate(NEW_CMD(process_madvise, 25, MADV_COLLAPSE), fd, in_sized_by(2, 16), val, val, val),

    // The recorder answers these if the other thread has the same memory (record/stops/tracer_answers.h).
    // PTRACE_GETREGSET writes where the iovec says.
    refuse(CMD(ptrace, PTRACE_TRACEME), EPERM, kTracer),
    emulate(CMD(ptrace, PTRACE_ATTACH), val, val, val, val),
    emulate(CMD(ptrace, PTRACE_DETACH), val, val, val, val),
    refuse(CMD(ptrace, PTRACE_SETOPTIONS), EPERM, kTracer),
    emulate(CMD(ptrace, PTRACE_GETREGSET), val, val, val, in(16)),
    refuse(CMD(ptrace, PTRACE_SEIZE), EPERM, kTracer),

    // The kernel's log.
    emulate(NEW_CMD(syslog, 0, SYSLOG_ACTION_CLOSE), val, ptr, val),
    emulate(NEW_CMD(syslog, 1, SYSLOG_ACTION_OPEN), val, ptr, val),
    emulate(NEW_CMD(syslog, 2, SYSLOG_ACTION_READ), val, out_result(2), val).blocks(),
    emulate(NEW_CMD(syslog, 3, SYSLOG_ACTION_READ_ALL), val, out_result(2), val),
    emulate(NEW_CMD(syslog, 4, SYSLOG_ACTION_READ_CLEAR), val, out_result(2), val),
    emulate(NEW_CMD(syslog, 5, SYSLOG_ACTION_CLEAR), val, ptr, val),
    emulate(NEW_CMD(syslog, 6, SYSLOG_ACTION_CONSOLE_OFF), val, ptr, val),
    emulate(NEW_CMD(syslog, 7, SYSLOG_ACTION_CONSOLE_ON), val, ptr, val),
    emulate(NEW_CMD(syslog, 8, SYSLOG_ACTION_CONSOLE_LEVEL), val, ptr, val),
    emulate(NEW_CMD(syslog, 9, SYSLOG_ACTION_SIZE_UNREAD), val, ptr, val),
    emulate(NEW_CMD(syslog, 10, SYSLOG_ACTION_SIZE_BUFFER), val, ptr, val),

    // Futexes. The words themselves are the program's memory. The kernel only compares them, except those that it
    // locks, or changes in another way before it fails.
    emulate(CMD(futex, FUTEX_WAIT), ptr, val, val, timespec_in)
        .tests()
        .times_out(3, ETIMEDOUT)
        .waits_while(0, 2)
        .served(),
    emulate(CMD(futex, FUTEX_WAKE), ptr, val, val).wakes_others().served(),
    emulate(CMD(futex, FUTEX_REQUEUE), ptr, val, val, val, ptr).wakes_others().served(),
    emulate(CMD(futex, FUTEX_CMP_REQUEUE), ptr, val, val, val, ptr, val).wakes_others().served(),
    emulate(CMD(futex, FUTEX_WAKE_OP), ptr, val, val, val, always(in_out(4)), val).wakes_others().served(),
    emulate(CMD(futex, FUTEX_LOCK_PI), always(out(4)), val, val, timespec_in).locks().blocks(),
    emulate(CMD(futex, FUTEX_UNLOCK_PI), out(4)).locks(),
    emulate(CMD(futex, FUTEX_TRYLOCK_PI), always(out(4))).locks(),
    emulate(CMD(futex, FUTEX_WAIT_BITSET), ptr, val, val, timespec_in, ptr, val)
        .tests()
        .times_out(3, ETIMEDOUT)
        .waits_while(0, 2)
        .served(),
    emulate(CMD(futex, FUTEX_WAKE_BITSET), ptr, val, val, ptr, ptr, val).wakes_others().served(),
    refuse(CMD(futex, FUTEX_WAIT_REQUEUE_PI), ENOSYS, kRequeuedLock),
    refuse(CMD(futex, FUTEX_CMP_REQUEUE_PI), ENOSYS, kRequeuedLock),
    emulate(NEW_CMD(futex, 13, FUTEX_LOCK_PI2), always(out(4)), val, val, timespec_in).locks().blocks(),

    // Processes.
    process_flag(CMD(prctl, PR_SET_PDEATHSIG)),
    emulate(CMD(prctl, PR_GET_PDEATHSIG), val, out(4)),
    process_flag(CMD(prctl, PR_GET_DUMPABLE)),
    process_flag(CMD(prctl, PR_SET_DUMPABLE)),
    process_flag(CMD(prctl, PR_GET_UNALIGN)),
    process_flag(CMD(prctl, PR_SET_UNALIGN)),
    process_flag(CMD(prctl, PR_GET_KEEPCAPS)),
    process_flag(CMD(prctl, PR_SET_KEEPCAPS)),
    process_flag(CMD(prctl, PR_GET_FPEMU)),
    process_flag(CMD(prctl, PR_SET_FPEMU)),
    process_flag(CMD(prctl, PR_GET_FPEXC)),
    process_flag(CMD(prctl, PR_SET_FPEXC)),
    process_flag(CMD(prctl, PR_GET_TIMING)),
    process_flag(CMD(prctl, PR_SET_TIMING)),
    emulate(CMD(prctl, PR_SET_NAME), val, text(16)),
    emulate(CMD(prctl, PR_GET_NAME), val, out(16)),
    process_flag(CMD(prctl, PR_GET_ENDIAN)),
    process_flag(CMD(prctl, PR_SET_ENDIAN)),
    confinement(CMD(prctl, PR_GET_SECCOMP), val),
    confinement(CMD(prctl, PR_SET_SECCOMP), val, val, filter),
    process_flag(CMD(prctl, PR_CAPBSET_READ)),
    process_flag(CMD(prctl, PR_CAPBSET_DROP)),
    refuse(CMD(prctl, PR_GET_TSC), EINVAL, kTsc),
    refuse(CMD(prctl, PR_SET_TSC), EINVAL, kTsc),
    process_flag(CMD(prctl, PR_GET_SECUREBITS)),
    process_flag(CMD(prctl, PR_SET_SECUREBITS)),
    process_flag(CMD(prctl, PR_SET_TIMERSLACK)),
    process_flag(CMD(prctl, PR_GET_TIMERSLACK)),
    process_flag(CMD(prctl, PR_TASK_PERF_EVENTS_DISABLE)),
    process_flag(CMD(prctl, PR_TASK_PERF_EVENTS_ENABLE)),
    process_flag(CMD(prctl, PR_MCE_KILL)),
    process_flag(CMD(prctl, PR_MCE_KILL_GET)),
    refuse(CMD(prctl, PR_SET_MM), EPERM, "only programs that restore checkpoints need it"),
    process_flag(CMD(prctl, PR_SET_CHILD_SUBREAPER)),
    emulate(CMD(prctl, PR_GET_CHILD_SUBREAPER), val, out(4)),
    confinement(CMD(prctl, PR_SET_NO_NEW_PRIVS), val, val, val, val, val),
    confinement(CMD(prctl, PR_GET_NO_NEW_PRIVS), val, val, val, val, val),
    emulate(CMD(prctl, PR_GET_TID_ADDRESS), val, out(8)),
    process_flag(CMD(prctl, PR_SET_THP_DISABLE)),
    process_flag(CMD(prctl, PR_GET_THP_DISABLE)),
    process_flag(CMD(prctl, PR_MPX_ENABLE_MANAGEMENT)),
    process_flag(CMD(prctl, PR_MPX_DISABLE_MANAGEMENT)),
    process_flag(CMD(prctl, PR_CAP_AMBIENT)),
    process_flag(CMD(prctl, PR_GET_SPECULATION_CTRL)),
    process_flag(CMD(prctl, PR_SET_SPECULATION_CTRL)),
    process_flag(CMD(prctl, PR_SET_IO_FLUSHER)),
    process_flag(CMD(prctl, PR_GET_IO_FLUSHER)),
    refuse(NEW_CMD(prctl, 59, PR_SET_SYSCALL_USER_DISPATCH), EINVAL, kFilter),
    refuse(NEW_CMD(prctl, 62, PR_SCHED_CORE), EINVAL, "core scheduling is not modelled"),
    process_flag(NEW_CMD(prctl, 65, PR_SET_MDWE)),
    process_flag(NEW_CMD(prctl, 66, PR_GET_MDWE)),
    process_flag(NEW_CMD(prctl, 67, PR_SET_MEMORY_MERGE)),
    process_flag(NEW_CMD(prctl, 68, PR_GET_MEMORY_MERGE)),
    refuse(NEW_CMD(prctl, 74, PR_GET_SHADOW_STACK_STATUS), EINVAL, kShadowStack),
    refuse(NEW_CMD(prctl, 75, PR_SET_SHADOW_STACK_STATUS), EINVAL, kShadowStack),
    refuse(NEW_CMD(prctl, 76, PR_LOCK_SHADOW_STACK_STATUS), EINVAL, kShadowStack),
    process_flag(NEW_CMD(prctl, 77, PR_TIMER_CREATE_RESTORE_IDS)),
    process_flag(NEW_CMD(prctl, 78, PR_FUTEX_HASH)),
    process_flag(CMD(prctl, PR_SET_PTRACER)),
    refuse(NEW_CMD(prctl, 0x53564d41, PR_SET_VMA), EINVAL, "names of anonymous memory are not recorded"),
    emulate(NEW_CMD(prctl, 0x41555856, PR_GET_AUXV), val, out_result(2), val, val, val),

    confinement(CMD(seccomp, SECCOMP_SET_MODE_STRICT), val, val, ptr),
    confinement(CMD(seccomp, SECCOMP_SET_MODE_FILTER), val, val, filter),
    confinement(CMD(seccomp, SECCOMP_GET_ACTION_AVAIL), val, val, in(4)),
    emulate(CMD(seccomp, SECCOMP_GET_NOTIF_SIZES), val, val, out(6)),

    // No header names them.
    emulate(NEW_CMD(modify_ldt, 0, read), val, out_result(2), val),
    special(NEW_CMD(modify_ldt, 1, write_old), Special::modify_ldt, val, in(16), val),
    emulate(NEW_CMD(modify_ldt, 2, read_default), val, out_result(2), val),
    special(NEW_CMD(modify_ldt, 0x11, write), Special::modify_ldt, val, in(16), val),

    special(CMD(arch_prctl, ARCH_SET_GS), Special::arch_prctl, val, ptr).served(),
    special(CMD(arch_prctl, ARCH_SET_FS), Special::arch_prctl, val, ptr).served(),
    emulate(CMD(arch_prctl, ARCH_GET_FS), val, out(8)),
    emulate(CMD(arch_prctl, ARCH_GET_GS), val, out(8)),
    refuse(CMD(arch_prctl, ARCH_GET_CPUID), ENODEV, kTrapsCpuid),
    refuse(CMD(arch_prctl, ARCH_SET_CPUID), ENODEV, kTrapsCpuid),
    refuse(NEW_CMD(arch_prctl, 0x1021, ARCH_GET_XCOMP_SUPP), EINVAL, kXfeatures),
    refuse(NEW_CMD(arch_prctl, 0x1022, ARCH_GET_XCOMP_PERM), EINVAL, kXfeatures),
    refuse(NEW_CMD(arch_prctl, 0x1023, ARCH_REQ_XCOMP_PERM), EINVAL, kXfeatures),
    refuse(NEW_CMD(arch_prctl, 0x1024, ARCH_GET_XCOMP_GUEST_PERM), EINVAL, kXfeatures),
    refuse(NEW_CMD(arch_prctl, 0x1025, ARCH_REQ_XCOMP_GUEST_PERM), EINVAL, kXfeatures),
    // glibc asks for these two at every start. They get the true answer, so that nothing is reported.
    emulate(NEW_CMD(arch_prctl, 0x3001, ARCH_CET_STATUS), val, ptr),
    emulate(NEW_CMD(arch_prctl, 0x5005, ARCH_SHSTK_STATUS), val, out(8)),
    refuse(NEW_CMD(arch_prctl, 0x5001, ARCH_SHSTK_ENABLE), EINVAL, kShadowStack),
    refuse(NEW_CMD(arch_prctl, 0x5002, ARCH_SHSTK_DISABLE), EINVAL, kShadowStack),
    refuse(NEW_CMD(arch_prctl, 0x5003, ARCH_SHSTK_LOCK), EINVAL, kShadowStack),
    refuse(NEW_CMD(arch_prctl, 0x5004, ARCH_SHSTK_UNLOCK), EINVAL, kShadowStack),
});

static_assert(valid_table(kCommands), "unique, every extent refers to an argument that exists");

}  // namespace

std::span<const SyscallRow> command_rows() { return kCommands; }

}  // namespace redrive
