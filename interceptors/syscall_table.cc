#include "interceptors/syscall_table.h"

#include <fmt/format.h>
#include <seccomp.h>

#include <climits>
#include <cstdlib>

#include "interceptors/syscall_rows.h"

namespace redrive {
namespace {

using namespace rows;

constexpr const char* kGone = "not in any kernel of this decade";
constexpr const char* kAio =
    "the kernel writes completions at any time; databases use threads or plain reads and writes instead, but fio's "
    "libaio engine fails";
constexpr const char* kUring =
    "requests and completions pass through memory, without calls; programs use epoll and threads instead";
constexpr const char* kModules = "changes the running kernel";
constexpr const char* kServes =
    "if the type is fuse or fuseblk: the recorder, which reads files that programs execute or map, would wait for the "
    "process that serves them, which the recorder has stopped";
constexpr const char* kWritesElsewhere =
    "if the option is TCP_ZEROCOPY_RECEIVE, MPTCP_FULL_INFO, EBT_SO_GET_ENTRIES or EBT_SO_GET_INIT_ENTRIES: it maps "
    "memory, or writes where pointers lead; programs receive into buffers instead";
constexpr const char* kProtectionKeys = "protection keys are not restored by a checkpoint";

constexpr SyscallRow kRows[] = {
    emulate(SYS(read), fd, payload(out_result(2)), val).receives(0).tests().served().whole_blocks(),
    emulate(SYS(write), fd, payload(in_sized_by(2)), val)
        .sends(0)
        .blocks()
        .served()
        .changes_file(0, FileChange::writes),
    emulate(SYS(open), path, val, val).blocks().served().makes(NewDescriptor::file).truncates(0, 1),
    emulate(SYS(close), fd).effect(FdEffect::closes).served(),
    emulate(SYS(stat), path, stat_out).served(),
    emulate(SYS(fstat), fd, stat_out).served(),
    emulate(SYS(lstat), path, stat_out).served(),
    // revents are written even when a signal ends the wait (fs/select.c, do_sys_poll).
    emulate(SYS(poll), always(in_out_sized_by(1, 8)), val, val).tests().times_out(2).served(),
    emulate(SYS(lseek), fd, val, val).served(),
    special(SYS(mmap), Special::mmap, ptr, val, val, val, fd, val).served().changes(MemoryChange::maps),
    special(SYS(mprotect), Special::mprotect, ptr, val, val).served().changes(MemoryChange::range),
    special(SYS(munmap), Special::munmap, ptr, val).served().changes(MemoryChange::range),
    special(SYS(brk), Special::brk, ptr).served().changes(MemoryChange::breaks),
    emulate(SYS(rt_sigaction), val, in(32), out(32), val).served(),
    emulate(SYS(rt_sigprocmask), val, in_sized_by(3), out_sized_by(3), val).served(),
    special(SYS(rt_sigreturn), Special::sigreturn),
    emulate(SYS(ioctl), fd, val, ptr).selects(1, ENOTTY),
    emulate(SYS(pread64), fd, out_result(2), val, val).served().whole_blocks(),
    emulate(SYS(pwrite64), fd, in_sized_by(2), val, val).served().changes_file(0, FileChange::writes, 3),
    emulate(SYS(readv), fd, payload(iov_out), val).receives(0).tests().served().whole_blocks(),
    emulate(SYS(writev), fd, payload(iov_in), val).sends(0).blocks().served().changes_file(0, FileChange::writes),
    emulate(SYS(access), path, val).served(),
    emulate(SYS(pipe), out(8)).makes(NewDescriptor::pipe).served(),
    emulate(SYS(select), val, in_out_bits(0), in_out_bits(0), in_out_bits(0), always(in_out(16)))
        .tests()
        .times_out(4)
        .served(),
    emulate(SYS(sched_yield)).tests().served(),
    special(SYS(mremap), Special::mremap, ptr, val, val, val, ptr),
    emulate(SYS(msync), ptr, val, val),
    // Like move_pages, it has written what it found before it fails.
    emulate(SYS(mincore), ptr, val, always(out_sized_by(1, 1, kPageSize))),
    emulate(SYS(madvise), ptr, val, val).selects(2),
    emulate(SYS(shmget), val, val, val),
    special(SYS(shmat), Special::shmat, val, ptr, val),
    emulate(SYS(shmctl), val, val, ptr).selects(1),
    emulate(SYS(dup), fd).makes(NewDescriptor::copy).served(),
    emulate(SYS(dup2), fd, fd).effect(FdEffect::replaces).makes(NewDescriptor::copy).served(),
    emulate(SYS(pause)).blocks(),
    emulate(SYS(nanosleep), timespec_in, time_left).blocks().served(),
    emulate(SYS(getitimer), val, out(32)).served(),
    emulate(SYS(alarm), val).served(),
    emulate(SYS(setitimer), val, in(32), out(32)).served(),
    emulate(SYS(getpid)).served(),
    emulate(SYS(sendfile), fd, fd, always(in_out(8)), val)
        .transfers(1, 0)
        .blocks()
        .served()
        .changes_file(0, FileChange::writes),
    emulate(SYS(socket), val, val, val).makes(NewDescriptor::socket).served(),
    emulate(SYS(connect), fd, addr_in(2), val).blocks().waits_on(0).makes(NewDescriptor::connected).served(),
    emulate(SYS(accept), fd, out_pointee(2), length_of(1)).tests().waits_on(0).makes(NewDescriptor::accepted).served(),
    emulate(SYS(sendto), fd, payload(in_sized_by(2)), val, val, addr_in(5), val).sends(0).flags(3).blocks().served(),
    emulate(SYS(recvfrom), fd, payload(out_result(2)), val, val, out_pointee(5), length_of(4))
        .receives(0)
        .flags(3)
        .tests()
        .served(),
    emulate(SYS(sendmsg), fd, msg_in, val).sends(0).flags(2).blocks().served(),
    emulate(SYS(recvmsg), fd, msg_out, val).receives(0).flags(2).tests().served(),
    emulate(SYS(shutdown), fd, val).effect(FdEffect::ends).served(),
    emulate(SYS(bind), fd, addr_in(2), val).served(),
    emulate(SYS(listen), fd, val).served(),
    emulate(SYS(getsockname), fd, out_pointee(2), in_out(4)).served(),
    emulate(SYS(getpeername), fd, out_pointee(2), in_out(4)).served(),
    // The numbers are written before the sockets are made (net/socket.c, __sys_socketpair).
    emulate(SYS(socketpair), val, val, val, always(out(8))).makes(NewDescriptor::pair).served(),
    emulate(SYS(setsockopt), fd, val, val, in_sized_by(4), val).served(),
    // The length is written on ERANGE too (SO_PEERSEC, SO_PEERGROUPS).
    emulate(SYS(getsockopt), fd, val, val, out_option(4), always(in_out(4)))
        .refused_in_part(ENOPROTOOPT, kWritesElsewhere)
        .served(),
    // Which of clone's pointers are written depends on its flags; the record/replay pair knows.
    special(SYS(clone), Special::clone, val, ptr, ptr, ptr, ptr),
    special(SYS(fork), Special::fork),
    special(SYS(vfork), Special::vfork),
    special(SYS(execve), Special::execve, path, strings, strings),
    special(SYS(exit), Special::exit, val),
    emulate(SYS(wait4), val, if_positive(out(4)), val, if_positive(rusage_out))
        .tests()
        .served_if_clear(2, 30 /* __WALL */),
    emulate(SYS(kill), val, val).signals(),
    emulate(SYS(uname), out(390)).served(),
    emulate(SYS(semget), val, val, val),
    emulate(SYS(semop), val, in_sized_by(2, 6), val).blocks(),
    emulate(SYS(semctl), val, val, val, ptr).selects(2),
    special(SYS(shmdt), Special::shmdt, ptr),
    emulate(SYS(msgget), val, val, val),
    emulate(SYS(msgsnd), val, payload(after_header(8, in_sized_by(2))), val, val).sends(-1).blocks(),
    emulate(SYS(msgrcv), val, payload(after_header(8, out_result(2))), val, val, val).receives(-1).tests(),
    emulate(SYS(msgctl), val, val, ptr).selects(1),
    emulate(SYS(fcntl), fd, val, ptr).selects(1),
    emulate(SYS(flock), fd, val).blocks(),
    emulate(SYS(fsync), fd).served(),
    emulate(SYS(fdatasync), fd).served(),
    emulate(SYS(truncate), path, val).blocks().changes_file(0, FileChange::resizes),  // until a lease is given back
    emulate(SYS(ftruncate), fd, val).served().changes_file(0, FileChange::resizes),
    emulate(SYS(getdents), fd, out_result(2), val),
    emulate(SYS(getcwd), out_result(1), val).served(),
    emulate(SYS(chdir), path).served(),
    emulate(SYS(fchdir), fd).served(),
    emulate(SYS(rename), path, path).served(),
    emulate(SYS(mkdir), path, val).served(),
    emulate(SYS(rmdir), path).served(),
    emulate(SYS(creat), path, val).blocks().truncates(0),
    emulate(SYS(link), path, path).served(),
    emulate(SYS(unlink), path).served(),
    emulate(SYS(symlink), path, path).served(),
    emulate(SYS(readlink), path, out_result(2), val).served(),
    emulate(SYS(chmod), path, val).served(),
    emulate(SYS(fchmod), fd, val).served(),
    emulate(SYS(chown), path, val, val).served(),
    emulate(SYS(fchown), fd, val, val).served(),
    emulate(SYS(lchown), path, val, val).served(),
    emulate(SYS(umask), val).served(),
    emulate(SYS(gettimeofday), out(16), out(8)).served().answered_by_vdso(),
    emulate(SYS(getrlimit), val, out(16)).served(),
    emulate(SYS(getrusage), val, rusage_out).served(),
    emulate(SYS(sysinfo), out(112)).served(),
    emulate(SYS(times), out(32)).served(),
    emulate(SYS(ptrace), val, val, ptr, ptr).selects(0, EPERM),
    emulate(SYS(getuid)).served(),
    emulate(SYS(syslog), val, ptr, val).selects(0),
    emulate(SYS(getgid)).served(),
    emulate(SYS(setuid), val),
    emulate(SYS(setgid), val),
    emulate(SYS(geteuid)).served(),
    emulate(SYS(getegid)).served(),
    emulate(SYS(setpgid), val, val),
    emulate(SYS(getppid)).served(),
    emulate(SYS(getpgrp)).served(),
    emulate(SYS(setsid)),
    emulate(SYS(setreuid), val, val),
    emulate(SYS(setregid), val, val),
    emulate(SYS(getgroups), val, out_result(0, 4)).served(),
    emulate(SYS(setgroups), val, in_sized_by(0, 4)),
    emulate(SYS(setresuid), val, val, val),
    emulate(SYS(getresuid), out(4), out(4), out(4)).served(),
    emulate(SYS(setresgid), val, val, val),
    emulate(SYS(getresgid), out(4), out(4), out(4)).served(),
    emulate(SYS(getpgid), val).served(),
    emulate(SYS(setfsuid), val),
    emulate(SYS(setfsgid), val),
    emulate(SYS(getsid), val).served(),
    // If the version is unknown, the header comes back with the preferred one. Version 1 has 12 bytes of data, the
    // others 24.
    emulate(SYS(capget), always(in_out(8)), out(24)),
    emulate(SYS(capset), always(in_out(8)), in(24)),
    emulate(SYS(rt_sigpending), out_sized_by(1), val),
    emulate(SYS(rt_sigtimedwait), in_sized_by(3), siginfo_out, timespec_in, val).blocks().times_out(2, EAGAIN),
    emulate(SYS(rt_sigqueueinfo), val, val, siginfo_in).signals(),
    emulate(SYS(rt_sigsuspend), in_sized_by(1), val).blocks(),
    emulate(SYS(sigaltstack), in(24), out(24)),  // the answer depends on the stack pointer
    emulate(SYS(utime), path, in(16)).served(),
    emulate(SYS(mknod), path, val, val).served(),
    refuse(SYS(uselib), ENOSYS, kGone),
    special(SYS(personality), Special::personality, val),
    emulate(SYS(ustat), val, out(32)),
    emulate(SYS(statfs), path, out(120)).served(),
    emulate(SYS(fstatfs), fd, out(120)).served(),
    emulate(SYS(sysfs), val, ptr, ptr).selects(0),
    emulate(SYS(getpriority), val, val).served(),
    emulate(SYS(setpriority), val, val, val),
    emulate(SYS(sched_setparam), val, in(4)),
    emulate(SYS(sched_getparam), val, out(4)).served(),
    emulate(SYS(sched_setscheduler), val, val, in(4)),
    emulate(SYS(sched_getscheduler), val).served(),
    emulate(SYS(sched_get_priority_max), val).served(),
    emulate(SYS(sched_get_priority_min), val).served(),
    emulate(SYS(sched_rr_get_interval), val, timespec_out),
    emulate(SYS(mlock), ptr, val),
    emulate(SYS(munlock), ptr, val),
    emulate(SYS(mlockall), val),
    emulate(SYS(munlockall)),
    emulate(SYS(vhangup)),
    emulate(SYS(modify_ldt), val, ptr, val).selects(0, ENOSYS),
    emulate(SYS(pivot_root), path, path),
    refuse(SYS(_sysctl), ENOSYS, kGone),
    emulate(SYS(prctl), val, val, val, val, val).selects(0),
    emulate(SYS(arch_prctl), val, ptr).selects(0),
    emulate(SYS(adjtimex), in_out(208)),
    emulate(SYS(setrlimit), val, in(16)),
    emulate(SYS(chroot), path),
    emulate(SYS(sync)),
    emulate(SYS(acct), path),
    emulate(SYS(settimeofday), in(16), in(8)),
    emulate(SYS(mount), path, path, filesystem, val, text(kPageSize)).refused_in_part(ENODEV, kServes),
    emulate(SYS(umount2), path, val),
    emulate(SYS(swapon), path, val),
    emulate(SYS(swapoff), path),
    emulate(SYS(reboot), val, val, val, ptr),
    emulate(SYS(sethostname), in_sized_by(1), val),
    emulate(SYS(setdomainname), in_sized_by(1), val),
    refuse(SYS(iopl), EPERM, kPorts),
    refuse(SYS(ioperm), EPERM, kPorts),
    refuse(SYS(create_module), ENOSYS, kGone),
    refuse(SYS(init_module), EPERM, kModules),
    refuse(SYS(delete_module), EPERM, kModules),
    refuse(SYS(get_kernel_syms), ENOSYS, kGone),
    refuse(SYS(query_module), ENOSYS, kGone),
    emulate(SYS(quotactl), val, path, val, ptr).selects(0, EINVAL, 0xffffff00 /* without the type */),
    refuse(SYS(nfsservctl), ENOSYS, kGone),
    refuse(SYS(getpmsg), ENOSYS, kGone),
    refuse(SYS(putpmsg), ENOSYS, kGone),
    refuse(SYS(afs_syscall), ENOSYS, kGone),
    refuse(SYS(tuxcall), ENOSYS, kGone),
    refuse(SYS(security), ENOSYS, kGone),
    emulate(SYS(gettid)).served(),
    emulate(SYS(readahead), fd, val, val),
    emulate(SYS(setxattr), path, text(256), in_sized_by(3), val, val).served(),
    emulate(SYS(lsetxattr), path, text(256), in_sized_by(3), val, val).served(),
    emulate(SYS(fsetxattr), fd, text(256), in_sized_by(3), val, val).served(),
    emulate(SYS(getxattr), path, text(256), out_result(3), val).served(),
    emulate(SYS(lgetxattr), path, text(256), out_result(3), val).served(),
    emulate(SYS(fgetxattr), fd, text(256), out_result(3), val).served(),
    emulate(SYS(listxattr), path, out_result(2), val).served(),
    emulate(SYS(llistxattr), path, out_result(2), val).served(),
    emulate(SYS(flistxattr), fd, out_result(2), val).served(),
    emulate(SYS(removexattr), path, text(256)).served(),
    emulate(SYS(lremovexattr), path, text(256)).served(),
    emulate(SYS(fremovexattr), fd, text(256)).served(),
    emulate(SYS(tkill), val, val).signals(),
    emulate(SYS(time), out(8)).served().answered_by_vdso(),
    emulate(SYS(futex), ptr, val, val, ptr, ptr, val).selects(1, ENOSYS, ~0x180u /* without PRIVATE, CLOCK_REALTIME */),
    special(SYS(sched_setaffinity), Special::sched_setaffinity, val, val, in_sized_by(1)),
    emulate(SYS(sched_getaffinity), val, val, out_result(1)),
    refuse(SYS(set_thread_area), ENOSYS, "i386 only"),
    refuse(SYS(io_setup), ENOSYS, kAio),
    refuse(SYS(io_destroy), ENOSYS, kAio),
    refuse(SYS(io_getevents), ENOSYS, kAio),
    refuse(SYS(io_submit), ENOSYS, kAio),
    refuse(SYS(io_cancel), ENOSYS, kAio),
    refuse(SYS(get_thread_area), ENOSYS, "i386 only"),
    refuse(SYS(lookup_dcookie), ENOSYS, kGone),
    emulate(SYS(epoll_create), val).makes(NewDescriptor::no_channel).served(),
    refuse(SYS(epoll_ctl_old), ENOSYS, kGone),
    refuse(SYS(epoll_wait_old), ENOSYS, kGone),
    refuse(SYS(remap_file_pages), ENOSYS, "nonlinear mappings are not modelled"),
    emulate(SYS(getdents64), fd, out_result(2), val).served(),
    special(SYS(set_tid_address), Special::set_tid_address, ptr).served(),
    emulate(SYS(restart_syscall)).blocks(),
    emulate(SYS(semtimedop), val, in_sized_by(2, 6), val, timespec_in).blocks().times_out(3, EAGAIN),
    emulate(SYS(fadvise64), fd, val, val, val).served(),
    // The number is written before the clock refuses (kernel/time/posix-timers.c, do_timer_create).
    emulate(SYS(timer_create), val, in(64), always(out(4))),
    emulate(SYS(timer_settime), val, val, in(32), out(32)).served(),
    emulate(SYS(timer_gettime), val, out(32)).served(),
    emulate(SYS(timer_getoverrun), val),
    emulate(SYS(timer_delete), val),
    emulate(SYS(clock_settime), val, timespec_in),
    emulate(SYS(clock_gettime), val, timespec_out).served().answered_by_vdso(),
    emulate(SYS(clock_getres), val, timespec_out).served().answered_by_vdso(),
    emulate(SYS(clock_nanosleep), val, val, timespec_in, time_left).blocks().served(),
    special(SYS(exit_group), Special::exit_group, val),
    emulate(SYS(epoll_wait), fd, out_result(2, 12), val, val).tests().times_out(3).served(),
    emulate(SYS(epoll_ctl), fd, val, fd, in(12)).served(),
    emulate(SYS(tgkill), val, val, val).signals(),
    emulate(SYS(utimes), path, in(32)).served(),
    refuse(SYS(vserver), ENOSYS, kGone),
    emulate(SYS(mbind), ptr, val, val, in_bits(4), val, val),
    emulate(SYS(set_mempolicy), val, in_bits(2), val),
    emulate(SYS(get_mempolicy), out(4), out_bits(2), val, ptr, val),
    emulate(SYS(mq_open), text(256), val, val, in(64)),
    emulate(SYS(mq_unlink), text(256)),
    emulate(SYS(mq_timedsend), fd, payload(in_sized_by(2)), val, val, timespec_in).sends(0).blocks(),
    emulate(SYS(mq_timedreceive), fd, payload(out_result(2)), val, out(4), timespec_in).receives(0).tests(),
    emulate(SYS(mq_notify), fd, in(64)),
    emulate(SYS(mq_getsetattr), fd, in(64), out(64)),
    refuse(SYS(kexec_load), EPERM, kModules),
    // si_signo and the fields next to it are written even if there is no child (kernel/exit.c, waitid).
    emulate(SYS(waitid), val, val, always(siginfo_out), val, rusage_out).tests(),
    emulate(SYS(add_key), text(32), text(kPageSize), in_sized_by(3), val, val),
    emulate(SYS(request_key), text(32), text(kPageSize), text(kPageSize), val).blocks(),
    emulate(SYS(keyctl), val, val, val, val, val).selects(0, EOPNOTSUPP),
    emulate(SYS(ioprio_set), val, val, val),
    emulate(SYS(ioprio_get), val, val),
    emulate(SYS(inotify_init)).makes(NewDescriptor::no_channel).served(),
    emulate(SYS(inotify_add_watch), fd, path, val),
    emulate(SYS(inotify_rm_watch), fd, val),
    emulate(SYS(migrate_pages), val, val, in_bits(1), in_bits(1)),
    emulate(SYS(openat), fd, path, val, val).blocks().served().makes(NewDescriptor::file).truncates(1, 2),
    emulate(SYS(mkdirat), fd, path, val).served(),
    emulate(SYS(mknodat), fd, path, val, val).served(),
    emulate(SYS(fchownat), fd, path, val, val, val).served(),
    emulate(SYS(futimesat), fd, path, in(32)).served(),
    emulate(SYS(newfstatat), fd, path, stat_out, val).served(),
    emulate(SYS(unlinkat), fd, path, val).served(),
    emulate(SYS(renameat), fd, path, fd, path).served(),
    emulate(SYS(linkat), fd, path, fd, path, val).served(),
    emulate(SYS(symlinkat), path, fd, path).served(),
    emulate(SYS(readlinkat), fd, path, out_result(3), val).served(),
    emulate(SYS(fchmodat), fd, path, val).served(),
    emulate(SYS(faccessat), fd, path, val).served(),
    emulate(SYS(pselect6), val, in_out_bits(0), in_out_bits(0), in_out_bits(0), always(in_out(16)), one_iov_in)
        .tests()
        .times_out(4)
        .masks(5)
        .served(),
    emulate(SYS(ppoll), always(in_out_sized_by(1, 8)), val, always(in_out(16)), in_sized_by(4), val)
        .tests()
        .times_out(2)
        .masks(3)
        .served(),
    emulate(SYS(unshare), val),
    emulate(SYS(set_robust_list), ptr, val).served(),
    emulate(SYS(get_robust_list), val, out(8), out(8)),
    emulate(SYS(splice), fd, in_out(8), fd, in_out(8), val, val)
        .transfers(0, 2)
        .blocks()
        .changes_file(2, FileChange::writes, 3),
    emulate(SYS(tee), fd, fd, val, val).transfers(0, 1).blocks(),
    emulate(SYS(sync_file_range), fd, val, val, val).served(),
    emulate(SYS(vmsplice), fd, iov_out, val, val).transfers(-1, 0).blocks(),
    emulate(SYS(move_pages), val, val, in_sized_by(1, 8), in_sized_by(1, 4), always(out_sized_by(1, 4)), val),
    emulate(SYS(utimensat), fd, path, in(32), val).served(),
    emulate(SYS(epoll_pwait), fd, out_result(2, 12), val, val, in_sized_by(5), val)
        .tests()
        .times_out(3)
        .masks(4)
        .served(),
    emulate(SYS(signalfd), fd, in_sized_by(2), val).makes(NewDescriptor::no_channel).served(),
    emulate(SYS(timerfd_create), val, val).makes(NewDescriptor::no_channel).served(),
    emulate(SYS(eventfd), val).makes(NewDescriptor::no_channel).served(),
    emulate(SYS(fallocate), fd, val, val, val).changes_file(0, FileChange::allocates),
    emulate(SYS(timerfd_settime), fd, val, in(32), out(32)).served(),
    emulate(SYS(timerfd_gettime), fd, out(32)).served(),
    emulate(SYS(accept4), fd, out_pointee(2), length_of(1), val)
        .tests()
        .waits_on(0)
        .makes(NewDescriptor::accepted)
        .served(),
    emulate(SYS(signalfd4), fd, in_sized_by(2), val, val).makes(NewDescriptor::no_channel).served(),
    emulate(SYS(eventfd2), val, val).makes(NewDescriptor::no_channel).served(),
    emulate(SYS(epoll_create1), val).makes(NewDescriptor::no_channel).served(),
    emulate(SYS(dup3), fd, fd, val).effect(FdEffect::replaces).makes(NewDescriptor::copy).served(),
    emulate(SYS(pipe2), out(8), val).makes(NewDescriptor::pipe).served(),
    emulate(SYS(inotify_init1), val).makes(NewDescriptor::no_channel).served(),
    emulate(SYS(preadv), fd, iov_out, val, val, val).served().whole_blocks(),
    emulate(SYS(pwritev), fd, iov_in, val, val, val).served().changes_file(0, FileChange::writes, 3),
    emulate(SYS(rt_tgsigqueueinfo), val, val, val, siginfo_in).signals(),
    refuse(SYS(perf_event_open), ENOSYS, "counters differ between runs, and samples bypass syscall stops"),
    emulate(SYS(recvmmsg), fd, mmsg_out, val, val, if_positive(in_out(16))).receives(0).flags(3).tests().served(),
    emulate(SYS(fanotify_init), val, val).selects(0, EINVAL, 0xc /* FAN_CLASS_* */),
    emulate(SYS(fanotify_mark), fd, val, val, fd, path),
    emulate(SYS(prlimit64), val, val, in(16), out(16)).served(),
    // The id is written into mount_id, 4 bytes or 8. On EOVERFLOW the handle's head says how much room would be needed.
    emulate(SYS(name_to_handle_at), fd, path, ptr, ptr, val).selects(4, EINVAL, 1 /* AT_HANDLE_MNT_ID_UNIQUE */),
    emulate(SYS(open_by_handle_at), fd, self_sized(ArgKind::in, -1, 8), val).blocks(),
    emulate(SYS(clock_adjtime), val, in_out(208)),
    emulate(SYS(syncfs), fd).served(),
    emulate(SYS(sendmmsg), fd, mmsg_in, val, val).sends(0).flags(3).blocks().served(),
    emulate(SYS(setns), fd, val),
    emulate(SYS(getcpu), out(4), out(4), ptr).answered_by_vdso(),
    emulate(SYS(process_vm_readv), val, iov_out, val, in_sized_by(4, 16), val, val),
    special(SYS(process_vm_writev), Special::write_process, val, iov_in, val, in_sized_by(4, 16), val, val),
    emulate(SYS(kcmp), val, val, val, val, val),
    refuse(SYS(finit_module), EPERM, kModules),
    // On E2BIG the size that the kernel knows is written into the structure.
    emulate(SYS(sched_setattr), val, on_error(self_sized(ArgKind::in_out)), val),
    emulate(SYS(sched_getattr), val, out_sized_by(2), val, val),
    emulate(SYS(renameat2), fd, path, fd, path, val).served(),
    emulate(SYS(seccomp), val, val, ptr).selects(0),
    emulate(SYS(getrandom), out_result(1), val, val).served(),
    emulate(SYS(memfd_create), text(256), val),
    refuse(SYS(kexec_file_load), EPERM, kModules),
    refuse(SYS(bpf), EPERM, "programs and maps in the kernel are not modelled"),
    special(SYS(execveat), Special::execveat, fd, path, strings, strings, val),
    refuse(SYS(userfaultfd), ENOSYS,
           "page faults would become events; garbage collectors and sandboxes that can use it protect memory and "
           "handle SIGSEGV instead"),
    emulate(SYS(membarrier), val, val, val),
    emulate(SYS(mlock2), ptr, val, val),
    emulate(SYS(copy_file_range), fd, if_positive(in_out(8)), fd, if_positive(in_out(8)), val, val)
        .transfers(0, 2)
        .blocks()
        .changes_file(2, FileChange::writes, 3),
    // With position -1 these two act as readv and writev, on any file.
    emulate(SYS(preadv2), fd, payload(iov_out), val, val, val, val).receives(0).tests().whole_blocks(),
    emulate(SYS(pwritev2), fd, payload(iov_in), val, val, val, val)
        .sends(0)
        .blocks()
        .changes_file(0, FileChange::writes, 3),
    refuse(SYS(pkey_mprotect), ENOSYS, kProtectionKeys),
    refuse(SYS(pkey_alloc), ENOSYS, kProtectionKeys),
    refuse(SYS(pkey_free), ENOSYS, kProtectionKeys),
    emulate(SYS(statx), fd, path, val, val, out(256)).served(),
    refuse(SYS(io_pgetevents), ENOSYS, kAio),
    refuse(SYS(rseq), ENOSYS,
           "the kernel writes the CPU's number at every preemption; programs ask getcpu, and allocators do without "
           "caches for each processor")
        .is_common()
        .served(),

    emulate(SYS(pidfd_send_signal), fd, val, siginfo_in, val).signals(),
    refuse(SYS(io_uring_setup), ENOSYS, kUring),
    refuse(SYS(io_uring_enter), ENOSYS, kUring),
    refuse(SYS(io_uring_register), ENOSYS, kUring),
    emulate(SYS(open_tree), fd, path, val),
    emulate(SYS(move_mount), fd, path, fd, path, val),
    emulate(SYS(fsopen), filesystem, val).refused_in_part(ENODEV, kServes),
    emulate(SYS(fsconfig), fd, val, text(256), ptr, val).selects(1),
    emulate(SYS(fsmount), fd, val, val),
    emulate(SYS(fspick), fd, path, val),
    emulate(SYS(pidfd_open), val, val).makes(NewDescriptor::no_channel).served(),
    special(SYS(clone3), Special::clone3, in_sized_by(1), val),
    emulate(SYS(close_range), val, val, val).effect(FdEffect::closes_range),
    emulate(SYS(openat2), fd, path, in_sized_by(3), val).blocks().makes(NewDescriptor::file).truncates(1),
    emulate(SYS(pidfd_getfd), fd, val, val).makes(NewDescriptor::file),
    emulate(SYS(faccessat2), fd, path, val, val).served(),
    emulate(SYS(process_madvise), fd, in_sized_by(2, 16), val, val, val).selects(3),
    emulate(SYS(epoll_pwait2), fd, out_result(2, 12), val, timespec_in, in_sized_by(5), val)
        .tests()
        .times_out(3)
        .masks(4)
        .served(),
    emulate(SYS(mount_setattr), fd, path, val, in_sized_by(4), val),
    emulate(SYS(quotactl_fd), fd, val, val, ptr).selects(1, EINVAL, 0xffffff00),
    emulate(SYS(landlock_create_ruleset), in_sized_by(1), val, val),
    emulate(SYS(landlock_add_rule), fd, val, ptr, val).selects(1),
    emulate(SYS(landlock_restrict_self), fd, val),
    refuse(SYS(memfd_secret), ENOSYS, "memory that no one else may read cannot be recorded"),
    emulate(SYS(process_mrelease), fd, val),
    emulate(SYS(futex_waitv), in_sized_by(1, 24), val, val, timespec_in, val).tests(),
    emulate(SYS(set_mempolicy_home_node), ptr, val, val, val),
    emulate(NEW(451, cachestat), fd, in(16), out(40), val),
    emulate(NEW(452, fchmodat2), fd, path, val, val).served(),
    refuse(NEW(453, map_shadow_stack), ENOSYS, "shadow stacks are not restored by a checkpoint"),
    emulate(NEW(454, futex_wake), ptr, val, val, val).wakes_others(),
    emulate(NEW(455, futex_wait), ptr, val, val, val, timespec_in, val).tests(),
    emulate(NEW(456, futex_requeue), in(48), val, val, val).wakes_others(),
    emulate(NEW(457, statmount), self_sized(ArgKind::in), self_sized(ArgKind::out, 2), val, val),
    emulate(NEW(458, listmount), self_sized(ArgKind::in), out_result(2, 8), val, val),
    // The size is written on E2BIG too.
    emulate(NEW(459, lsm_get_self_attr), val, out_pointee(2), always(in_out(4)), val),
    emulate(NEW(460, lsm_set_self_attr), val, in_sized_by(2), val, val),
    emulate(NEW(461, lsm_list_modules), out_pointee(1), always(in_out(4)), val),
    emulate(NEW(462, mseal), ptr, val, val),
    // xattr_args is {value, size, flags}: without flags it has the shape of an iovec. setxattrat may have flags, so its
    // value is not followed.
    emulate(NEW(463, setxattrat), fd, path, val, text(256), in_sized_by(5), val),
    emulate(NEW(464, getxattrat), fd, path, val, text(256), one_iov_out, val),
    emulate(NEW(465, listxattrat), fd, path, val, out_result(4), val),
    emulate(NEW(466, removexattrat), fd, path, val, text(256)),
    emulate(NEW(467, open_tree_attr), fd, path, val, in_sized_by(4), val),
    emulate(NEW(468, file_getattr), fd, path, out_sized_by(3), val, val),
    emulate(NEW(469, file_setattr), fd, path, in_sized_by(3), val, val),
};

constexpr int kFirstGap = 335, kLastGap = 423, kLast = 469;

static_assert(valid_table(kRows), "sorted, unique, every extent refers to an argument that exists");
static_assert(std::size(kRows) == kLast + 1 - (kLastGap + 1 - kFirstGap), "every syscall of the kernel has a row");
static_assert(kRows[0].number == 0 && kRows[kFirstGap - 1].number == kFirstGap - 1 &&
              kRows[kFirstGap].number == kLastGap + 1 && std::end(kRows)[-1].number == kLast);

const SyscallRow* row_of(int64_t number) {
  if (number >= 0 && number < kFirstGap) return &kRows[number];
  if (number > kLastGap && number <= kLast) return &kRows[number - (kLastGap + 1 - kFirstGap)];
  return nullptr;
}

const SyscallRow* find_in(std::span<const SyscallRow> table, int32_t number, int64_t command) {
  const auto before = [](const SyscallRow& row, std::pair<int32_t, int64_t> key) {
    return std::pair(row.number, row.command) < key;
  };
  const auto at = std::lower_bound(table.begin(), table.end(), std::pair(number, command), before);
  return at != table.end() && at->number == number && at->command == command ? &*at : nullptr;
}

}  // namespace

const SyscallRow* find_row(int64_t number, std::span<const uint64_t, 6> args) {
  const SyscallRow* row = row_of(number);
  if (!row || row->selector < 0) return row;
  const uint32_t command = static_cast<uint32_t>(args[row->selector]) & row->selector_mask;
  if (number != __NR_ioctl) return find_in(command_rows(), row->number, command);
  const SyscallRow* known = find_in(ioctl_rows(), row->number, command);
  return known ? known : generic_ioctl_row(command);
}

int refusal_without_row(int64_t number) {
  const SyscallRow* row = row_of(number);
  return row && row->selector >= 0 ? row->unknown_command : ENOSYS;
}

std::span<const SyscallRow> all_rows() { return kRows; }

std::vector<const SyscallRow*> all_commands() {
  std::vector<const SyscallRow*> commands;
  for (const auto table : {command_rows(), ioctl_rows()}) {
    for (const SyscallRow& row : table) commands.push_back(&row);
  }
  return commands;
}

std::string_view syscall_name(int64_t number) {
  if (const SyscallRow* row = row_of(number)) return row->name;
  // Numbers below 0 are libseccomp's own, for calls that x86-64 does not have.
  const bool possible = number >= 0 && number <= INT_MAX;
  char* const newer = possible ? seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, static_cast<int>(number)) : nullptr;
  thread_local std::string name;
  name = newer ? newer : fmt::format("syscall_{}", number);
  std::free(newer);
  return name;
}

}  // namespace redrive
