#include "checkpoint/criu_stub.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/remote.h"
#include "checkpoint/criu_files.h"
#include "checkpoint/register_images.h"
#include "checkpoint/stub.h"

namespace redrive::criu_stub {
namespace {

// Values of CRIU's fields.
constexpr uint32_t kAlive = 1, kRegularFile = 1, kFilter = 2;
constexpr uint32_t kNobody = 65534;
constexpr uint32_t kSignals = 62;  // all but SIGKILL and SIGSTOP
constexpr int kFirstOfAll = 1000;  // proc_pid_oom_score_adj(5)

criu::task_kobj_ids_entry ids_of(uint32_t own) {
  criu::task_kobj_ids_entry entry;
  entry.set_vm_id(own);
  entry.set_files_id(own);
  entry.set_fs_id(own);
  entry.set_sighand_id(own);
  // The namespaces are those that CRIU itself is in.
  entry.set_pid_ns_id(1);
  entry.set_net_ns_id(2);
  entry.set_ipc_ns_id(3);
  entry.set_uts_ns_id(4);
  entry.set_time_ns_id(5);
  entry.set_mnt_ns_id(6);
  entry.set_user_ns_id(7);
  entry.set_cgroup_ns_id(8);
  return entry;
}

void add_credentials(criu::thread_core_entry& thread) {
  auto& creds = *thread.mutable_creds();
  creds.set_uid(kNobody);
  creds.set_euid(kNobody);
  creds.set_suid(kNobody);
  creds.set_fsuid(kNobody);
  creds.set_gid(kNobody);
  creds.set_egid(kNobody);
  creds.set_sgid(kNobody);
  creds.set_fsgid(kNobody);
  for (auto* const set :
       {creds.mutable_cap_inh(), creds.mutable_cap_prm(), creds.mutable_cap_eff(), creds.mutable_cap_bnd()}) {
    set->Resize(2, 0);
  }
  creds.set_secbits(0);
  creds.set_no_new_privs(1);
}

// A thread that has executed nothing.
void add_start(criu::thread_info_x86& info) {
  constexpr int kStacked = 32, kXmm = 64, kYmmUpper = 64;
  constexpr uint32_t kControlWord = 0x37f, kMxcsr = 0x1f80, kMxcsrMask = 0xffff, kLegacy = 3, kFlags = 0x202;
  user_regs_struct regs{};
  regs.rip = stub_trap();
  regs.cs = kCodeSegment;
  regs.ss = kStackSegment;
  regs.eflags = kFlags;
  regs.orig_rax = ~0ull;
  info.set_clear_tid_addr(0);
  add_registers(regs, *info.mutable_gpregs());
  auto& fpregs = *info.mutable_fpregs();
  fpregs.set_cwd(kControlWord);
  fpregs.set_swd(0);
  fpregs.set_twd(0);
  fpregs.set_fop(0);
  fpregs.set_rip(0);
  fpregs.set_rdp(0);
  fpregs.set_mxcsr(kMxcsr);
  fpregs.set_mxcsr_mask(kMxcsrMask);
  fpregs.mutable_st_space()->Resize(kStacked, 0);
  fpregs.mutable_xmm_space()->Resize(kXmm, 0);
  fpregs.mutable_xsave()->set_xstate_bv(kLegacy);
  fpregs.mutable_xsave()->mutable_ymmh_space()->Resize(kYmmUpper, 0);
}

void add_limits(criu::task_core_entry& task) {
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
    rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(static_cast<__rlimit_resource>(resource), &limit);
    const bool none = resource == RLIMIT_CORE || resource == RLIMIT_MEMLOCK || resource == RLIMIT_MSGQUEUE;
    auto& entry = *task.mutable_rlimits()->add_rlimits();
    entry.set_cur(none ? 0 : limit.rlim_max);
    entry.set_max(none ? 0 : limit.rlim_max);
  }
}

void add_task(criu::task_core_entry& task) {
  task.set_task_state(kAlive);
  task.set_exit_code(0);
  task.set_personality(0);
  task.set_flags(0);
  task.set_blk_sigset(0);
  task.set_comm(kName);
  task.mutable_signals_s();
  task.set_oom_score_adj(kFirstOfAll);
  for (auto* const timer : {task.mutable_timers()->mutable_real(), task.mutable_timers()->mutable_virt(),
                            task.mutable_timers()->mutable_prof()}) {
    timer->set_isec(0);
    timer->set_iusec(0);
    timer->set_vsec(0);
    timer->set_vusec(0);
  }
  for (uint32_t i = 0; i < kSignals; ++i) {
    auto& action = *task.add_sigactions();
    action.set_sigaction(0);
    action.set_flags(0);
    action.set_restorer(0);
    action.set_mask(0);
  }
  add_limits(task);
}

}  // namespace

criu::inventory_entry inventory() {
  criu::inventory_entry entry;
  entry.set_img_version(criu_value::kImageVersion);
  entry.set_fdinfo_per_id(true);
  entry.set_ns_per_id(true);
  *entry.mutable_root_ids() = ids_of(1);
  return entry;
}

criu::task_kobj_ids_entry ids() { return ids_of(kFiles); }

criu::core_entry thread(bool first) {
  criu::core_entry core;
  core.set_mtype(criu_value::kX86_64);
  add_start(*core.mutable_thread_info());
  if (first) add_task(*core.mutable_tc());
  auto& thread = *core.mutable_thread_core();
  thread.set_futex_rla(0);
  thread.set_futex_rla_len(0);
  thread.set_sched_nice(0);
  thread.set_sched_policy(0);
  auto& stack = *thread.mutable_sas();
  stack.set_ss_sp(0);
  stack.set_ss_size(0);
  stack.set_ss_flags(SS_DISABLE);
  thread.mutable_signals_p();
  add_credentials(thread);
  thread.set_seccomp_mode(kFilter);
  thread.set_seccomp_filter(0);
  thread.set_comm(kName);
  return core;
}

criu::seccomp_entry filters(const StubTier& tier) {
  const auto filter = stub_filter(kStubSyscallEnd, {kGateStart, kGateEnd}, tier);
  criu::seccomp_entry entry;
  entry.add_seccomp_filters()->set_filter(filter.data(), filter.size() * sizeof filter.front());
  return entry;
}

criu::mm_entry layout(uint32_t program) {
  criu::mm_entry mm;
  mm.set_mm_start_code(kGateStart);
  mm.set_mm_end_code(kGateStart + kPageSize);
  mm.set_mm_start_data(kGateStart);
  mm.set_mm_end_data(kGateStart);
  mm.set_mm_start_stack(kGateStart);
  mm.set_mm_start_brk(kGateEnd);
  mm.set_mm_brk(kGateEnd);
  mm.set_mm_arg_start(kGateStart);
  mm.set_mm_arg_end(kGateStart);
  mm.set_mm_env_start(kGateStart);
  mm.set_mm_env_end(kGateStart);
  mm.set_exe_file_id(program);
  mm.set_dumpable(1);
  return mm;
}

criu::file_entry file(uint32_t number, const std::string& path) {
  criu::file_entry entry;
  entry.set_type(kRegularFile);
  entry.set_id(number);
  auto& regular = *entry.mutable_reg();
  regular.set_id(number);
  regular.set_flags(O_RDONLY);
  regular.set_pos(0);
  regular.set_name(path);
  auto& owner = *regular.mutable_fown();
  owner.set_uid(0);
  owner.set_euid(0);
  owner.set_signum(0);
  owner.set_pid_type(0);
  owner.set_pid(0);
  return entry;
}

}  // namespace redrive::criu_stub
