#include "supervisor/live/attribute_effects.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "interceptors/syscall_table.h"

// Numbers that the C library's headers do not have yet.
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif

namespace redrive {

void leaves_nothing(const FinishedCall& /*call*/) {}

namespace {

// ---- What is lost, and what cannot be made again

enum class Heirs : uint8_t { none, children, programs, all };  // who has an attribute, too: children, other programs

std::string name_of(const Event& call) {
  const SyscallRow* const row = find_row(call.number, call.args);
  const bool command = row && row->command_name;
  return command ? fmt::format("{}(2), {},", row->name, row->command_name)
                 : fmt::format("{}(2)", syscall_name(call.number));
}

template <Heirs heirs>
void lost(const FinishedCall& call) {
  call.process.lost[name_of(call.event)] = heirs == Heirs::children || heirs == Heirs::all;
}

void cannot_be_remade(const FinishedCall& call) {
  call.process.not_remade = fmt::format("it has called {}(2)", syscall_name(call.event.number));
}
void confine(const FinishedCall& call) {
  call.process.not_remade = fmt::format("it has confined itself ({}(2))", syscall_name(call.event.number));
}
// Without privilege, processes that live have none, whatever they had.
void change_privileges(const FinishedCall& call) {
  if (geteuid() == 0) cannot_be_remade(call);
}

void personality(const FinishedCall& call) {
  constexpr uint32_t kAsks = 0xffffffff;
  if (static_cast<uint32_t>(call.event.args[0]) != kAsks) lost<Heirs::all>(call);
}

// ---- What is made again

void repeat(std::vector<RepeatedCall>& all, const FinishedCall& call, Heirs heirs, uint64_t what) {
  std::erase_if(all,
                [&](const RepeatedCall& each) { return each.call.number == call.event.number && each.what == what; });
  all.push_back({call.past, what, heirs == Heirs::children || heirs == Heirs::all,
                 heirs == Heirs::programs || heirs == Heirs::all});
}

template <Heirs heirs>
void process_flag(const FinishedCall& call) {
  repeat(call.process.repeated, call, heirs, call.event.args[0]);
}
template <Heirs heirs>
void thread_flag(const FinishedCall& call) {
  repeat(call.thread.repeated, call, heirs, call.event.args[0]);
}
void set_name(const FinishedCall& call) { call.thread.name = call.past; }

void membarrier(const FinishedCall& call) {
  constexpr uint64_t kRegisters = MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED |
                                  MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE |
                                  MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ;
  if (call.event.args[0] & kRegisters) process_flag<Heirs::children>(call);
}

// Has the thread that the call names by its number, in this argument, make the call again, for itself. It may be
// another one than has made it.
void repeat_for(const FinishedCall& call, size_t argument) {
  const auto number = static_cast<int32_t>(call.event.args[argument]);
  ThreadModel* const thread = number == 0 ? &call.thread : call.model.thread_numbered(number);
  if (!thread) return lost<Heirs::all>(call);
  FinishedCall its = call;
  its.past.args[argument] = 0;
  repeat(thread->repeated, its, Heirs::all, 0);
}

void schedule(const FinishedCall& call) { repeat_for(call, 0); }
void setpriority(const FinishedCall& call) {
  if (static_cast<int>(call.event.args[0]) == PRIO_PROCESS) return repeat_for(call, 1);
  lost<Heirs::all>(call);
}
void ioprio_set(const FinishedCall& call) {
  constexpr int kOneThread = 1;  // IOPRIO_WHO_PROCESS
  if (static_cast<int>(call.event.args[0]) == kOneThread) return repeat_for(call, 1);
  lost<Heirs::all>(call);
}

// ---- System V semaphores and queues, which are in a namespace of the recording's

template <int get>
void has_ipc(const FinishedCall& call) {
  const bool makes = call.event.number == get;
  const auto id = makes ? call.event.result : static_cast<int64_t>(static_cast<int32_t>(call.event.args[0]));
  call.process.ipc.emplace(std::pair(get, id), call.past);
}
template <int get>
void removes_ipc(const FinishedCall& call) {
  const auto id = static_cast<int64_t>(static_cast<int32_t>(call.event.args[0]));
  for (auto& [name, process] : call.model.processes()) process.ipc.erase(std::pair(get, id));
}

// ---- All of them

using Effects = std::map<RowKey, Effect>;

void add_process_flags(Effects& all) {
  const auto flag = [&](int64_t command, Effect effect) { all[{SYS_prctl, command}] = effect; };
  flag(PR_SET_NAME, set_name);
  flag(PR_SET_SECCOMP, confine);
  flag(PR_SET_DUMPABLE, process_flag<Heirs::children>);
  flag(PR_SET_CHILD_SUBREAPER, process_flag<Heirs::programs>);
  flag(PR_SET_PTRACER, process_flag<Heirs::none>);
  for (const int64_t command : {PR_SET_THP_DISABLE, PR_SET_MDWE, PR_SET_MEMORY_MERGE}) {
    flag(command, process_flag<Heirs::all>);
  }
  flag(PR_SET_PDEATHSIG, thread_flag<Heirs::programs>);
  flag(PR_SET_KEEPCAPS, thread_flag<Heirs::children>);
  for (const int64_t command : {PR_SET_NO_NEW_PRIVS, PR_SET_TIMERSLACK, PR_SET_IO_FLUSHER}) {
    flag(command, thread_flag<Heirs::all>);
  }
  for (const int64_t command : {PR_SET_SPECULATION_CTRL, PR_MCE_KILL}) flag(command, lost<Heirs::all>);
  for (const int64_t command : {PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_CAP_AMBIENT}) flag(command, change_privileges);
  constexpr int64_t kTimerIds = 77, kFutexHash = 78, kVector = 0x41555856;  // newer than many headers
  // Those that ask, and those that do nothing on this processor.
  for (const int64_t command : {int64_t{PR_GET_PDEATHSIG},
                                int64_t{PR_GET_DUMPABLE},
                                int64_t{PR_GET_UNALIGN},
                                int64_t{PR_SET_UNALIGN},
                                int64_t{PR_GET_KEEPCAPS},
                                int64_t{PR_GET_FPEMU},
                                int64_t{PR_SET_FPEMU},
                                int64_t{PR_GET_FPEXC},
                                int64_t{PR_SET_FPEXC},
                                int64_t{PR_GET_TIMING},
                                int64_t{PR_SET_TIMING},
                                int64_t{PR_GET_NAME},
                                int64_t{PR_GET_ENDIAN},
                                int64_t{PR_SET_ENDIAN},
                                int64_t{PR_GET_SECCOMP},
                                int64_t{PR_CAPBSET_READ},
                                int64_t{PR_GET_SECUREBITS},
                                int64_t{PR_GET_TIMERSLACK},
                                int64_t{PR_TASK_PERF_EVENTS_DISABLE},
                                int64_t{PR_TASK_PERF_EVENTS_ENABLE},
                                int64_t{PR_MCE_KILL_GET},
                                int64_t{PR_GET_CHILD_SUBREAPER},
                                int64_t{PR_GET_NO_NEW_PRIVS},
                                int64_t{PR_GET_TID_ADDRESS},
                                int64_t{PR_GET_THP_DISABLE},
                                int64_t{PR_MPX_ENABLE_MANAGEMENT},
                                int64_t{PR_MPX_DISABLE_MANAGEMENT},
                                int64_t{PR_GET_SPECULATION_CTRL},
                                int64_t{PR_GET_IO_FLUSHER},
                                int64_t{PR_GET_MDWE},
                                int64_t{PR_GET_MEMORY_MERGE},
                                kTimerIds,
                                kFutexHash,
                                kVector}) {
    flag(command, leaves_nothing);
  }
}

void add_descriptor_commands(Effects& all) {
  constexpr int kOwnerUids = 17, kSameFile = 1027, kCreated = 1028;  // newer than many headers
  for (const int command : {F_SETLK, F_SETLKW, F_SETOWN, F_SETOWN_EX}) all[{SYS_fcntl, command}] = lost<Heirs::none>;
  for (const int command : {F_OFD_SETLK, F_OFD_SETLKW, F_SETSIG, F_SETLEASE, F_NOTIFY}) {
    all[{SYS_fcntl, command}] = lost<Heirs::all>;
  }
  constexpr int kCancelsLock = 1029;
  for (const int command : {F_GETFD, F_GETFL, F_GETLK, F_OFD_GETLK, F_GETOWN, F_GETSIG, F_GETOWN_EX, kOwnerUids,
                            F_GETLEASE, kSameFile, kCreated, kCancelsLock, F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS,
                            F_GET_RW_HINT, F_SET_RW_HINT, F_GET_FILE_RW_HINT, F_SET_FILE_RW_HINT}) {
    all[{SYS_fcntl, command}] = leaves_nothing;  // sealed are memory objects, which cannot be made again
  }
  for (const int64_t request : {TIOCSCTTY, TIOCNOTTY, FIOASYNC, FIOSETOWN, SIOCSPGRP}) {
    all[{SYS_ioctl, request}] = lost<Heirs::all>;
  }
}

void add_ipc(Effects& all) {
  for (const int64_t call : {SYS_semget, SYS_semop, SYS_semtimedop}) all[call] = has_ipc<SYS_semget>;
  for (const int64_t call : {SYS_msgget, SYS_msgsnd, SYS_msgrcv}) all[call] = has_ipc<SYS_msgget>;
  all[{SYS_semctl, IPC_RMID}] = removes_ipc<SYS_semget>;
  all[{SYS_msgctl, IPC_RMID}] = removes_ipc<SYS_msgget>;
  for (const int command : {IPC_SET, IPC_STAT, GETPID, GETVAL, GETALL, GETNCNT, GETZCNT, SETVAL, SETALL}) {
    all[{SYS_semctl, command}] = has_ipc<SYS_semget>;
  }
  for (const int command : {IPC_SET, IPC_STAT}) all[{SYS_msgctl, command}] = has_ipc<SYS_msgget>;
  for (const int command : {IPC_INFO, SEM_STAT, SEM_INFO, SEM_STAT_ANY}) all[{SYS_semctl, command}] = leaves_nothing;
  for (const int command : {IPC_INFO, MSG_STAT, MSG_INFO, MSG_STAT_ANY}) all[{SYS_msgctl, command}] = leaves_nothing;
  all[SYS_shmget] = lost<Heirs::all>;
}

// clang-format off
constexpr int kWithoutEffect[] = {
    // Memory, registers and the lives of processes: the replay and KernelModel know.
    SYS_brk, SYS_mprotect, SYS_munmap, SYS_mremap, SYS_madvise, SYS_process_madvise, SYS_shmat, SYS_shmdt,
    SYS_arch_prctl, SYS_modify_ldt, SYS_process_vm_readv, SYS_process_vm_writev, SYS_rt_sigreturn, SYS_fork, SYS_vfork,
    SYS_clone, SYS_clone3, SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group,
    // Waits.
    SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_pause, SYS_nanosleep, SYS_clock_nanosleep, SYS_rt_sigsuspend,
    SYS_futex, SYS_futex_waitv, 454 /* futex_wake */, 455 /* futex_wait */, 456 /* futex_requeue */,
    SYS_restart_syscall, SYS_sched_yield,
    // Questions about processes and the machine.
    SYS_getpid, SYS_gettid, SYS_getppid, SYS_getpgrp, SYS_getpgid, SYS_getsid, SYS_getuid, SYS_geteuid, SYS_getgid,
    SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_capget, SYS_getrlimit, SYS_getrusage, SYS_times,
    SYS_getpriority, SYS_ioprio_get, SYS_sched_getparam, SYS_sched_getscheduler, SYS_sched_get_priority_max,
    SYS_sched_get_priority_min, SYS_sched_rr_get_interval, SYS_sched_getaffinity, SYS_sched_getattr, SYS_getcpu,
    SYS_get_robust_list, SYS_rt_sigpending, SYS_getitimer, SYS_timer_gettime, SYS_timerfd_gettime,
    SYS_timer_getoverrun, SYS_mincore, SYS_get_mempolicy, SYS_kcmp, SYS_uname, SYS_sysinfo, SYS_sysfs, SYS_syslog,
    SYS_gettimeofday, SYS_time, SYS_clock_gettime, SYS_clock_getres, SYS_getrandom,
    459 /* lsm_get_self_attr */, 461 /* lsm_list_modules */, 457 /* statmount */, 458 /* listmount */,
    // Questions about files and sockets.
    SYS_stat, SYS_fstat, SYS_lstat, SYS_newfstatat, SYS_statx, SYS_access, SYS_faccessat, SYS_faccessat2, SYS_ustat,
    SYS_statfs, SYS_fstatfs, SYS_readlink, SYS_readlinkat, SYS_getcwd, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr,
    SYS_listxattr, SYS_llistxattr, SYS_flistxattr, 464 /* getxattrat */, 465 /* listxattrat */,
    468 /* file_getattr */, 451 /* cachestat */, SYS_name_to_handle_at, SYS_getsockopt, SYS_pread64, SYS_preadv,
    // Changes of files and their systems, which stay.
    SYS_mkdir, SYS_mkdirat, SYS_symlink, SYS_symlinkat, SYS_chmod, SYS_fchmod, SYS_fchmodat,
    452 /* fchmodat2 */, SYS_chown, SYS_fchown, SYS_lchown, SYS_fchownat, SYS_utime, SYS_utimes, SYS_futimesat,
    SYS_utimensat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr,
    463 /* setxattrat */, 466 /* removexattrat */, 469 /* file_setattr */, SYS_fsync, SYS_fdatasync, SYS_msync,
    SYS_sync, SYS_syncfs, SYS_sync_file_range, SYS_readahead, SYS_fadvise64, SYS_quotactl, SYS_quotactl_fd,
    // Changes of the machine, and of other processes.
    SYS_acct, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime, SYS_swapon, SYS_swapoff, SYS_reboot,
    SYS_sethostname, SYS_setdomainname, SYS_vhangup, SYS_ptrace, SYS_process_mrelease, SYS_shmctl, SYS_mq_unlink,
    // Of descriptors and timers that cannot be made again.
    SYS_inotify_add_watch, SYS_inotify_rm_watch, SYS_fanotify_mark, SYS_mq_timedsend, SYS_mq_timedreceive, SYS_mq_notify,
    SYS_mq_getsetattr, SYS_landlock_add_rule, SYS_fsconfig, SYS_timer_settime, SYS_timer_delete,
    // Undone, or without consequence for who has made it.
    SYS_munlock, SYS_munlockall, SYS_migrate_pages, SYS_move_pages,
};
// clang-format on

Effects all_effects() {
  Effects all;
  add_process_flags(all);
  add_descriptor_commands(all);
  add_ipc(all);
  for (const int64_t call : kWithoutEffect) all[call] = leaves_nothing;
  constexpr int64_t kSetSelfAttribute = 460, kSeals = 462;  // newer than many headers
  for (const int64_t call : {int64_t{SYS_tee}, int64_t{SYS_timer_create}, int64_t{SYS_chroot}, int64_t{SYS_pivot_root},
                             int64_t{SYS_mount}, int64_t{SYS_umount2}, int64_t{SYS_move_mount},
                             int64_t{SYS_mount_setattr}, int64_t{SYS_setns}, int64_t{SYS_unshare}, kSetSelfAttribute}) {
    all[call] = cannot_be_remade;
  }
  for (const int64_t call : {SYS_capset, SYS_setgroups}) all[call] = change_privileges;
  all[SYS_landlock_restrict_self] = confine;
  for (const int command : {SECCOMP_SET_MODE_STRICT, SECCOMP_SET_MODE_FILTER}) all[{SYS_seccomp, command}] = confine;
  for (const int command : {SECCOMP_GET_ACTION_AVAIL, SECCOMP_GET_NOTIF_SIZES}) {
    all[{SYS_seccomp, command}] = leaves_nothing;
  }
  for (const int64_t call : {int64_t{SYS_mlock}, int64_t{SYS_mlock2}, int64_t{SYS_mlockall}, kSeals,
                             int64_t{SYS_getdents}, int64_t{SYS_set_mempolicy_home_node}}) {
    all[call] = lost<Heirs::none>;
  }
  for (const int64_t call : {SYS_mbind, SYS_set_mempolicy, SYS_add_key, SYS_request_key, SYS_keyctl}) {
    all[call] = lost<Heirs::all>;
  }
  all[SYS_personality] = personality;
  all[SYS_membarrier] = membarrier;
  all[SYS_setpriority] = setpriority;
  all[SYS_ioprio_set] = ioprio_set;
  for (const int64_t call : {SYS_sched_setaffinity, SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr}) {
    all[call] = schedule;
  }
  return all;
}

}  // namespace

const std::map<RowKey, Effect>& attribute_effects() {
  static const Effects all = all_effects();
  return all;
}

}  // namespace redrive
