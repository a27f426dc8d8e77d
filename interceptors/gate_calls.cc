#include "interceptors/gate_calls.h"

#include "base/assert.h"
#include "base/page.h"
#include "interceptors/syscall_table.h"

namespace redrive {
namespace {

void set_extent(gate::Span& span, const Extent& extent) {
  ASSERT(extent.header == 0);
  span.divisor = extent.divisor;
  switch (extent.kind) {
    case ExtentKind::fixed:
      span.extent = gate::Extent::fixed;
      span.value = extent.value;
      return;
    case ExtentKind::arg:
      span.extent = gate::Extent::arg;
      span.other = static_cast<uint8_t>(extent.value);
      span.value = extent.scale;
      return;
    case ExtentKind::result:
      span.extent = gate::Extent::result;
      span.other = static_cast<uint8_t>(extent.cap_arg);
      span.value = extent.scale;
      return;
    case ExtentKind::pointee_u32:
      ASSERT(extent.scale == 1);
      span.extent = gate::Extent::pointee;
      span.other = static_cast<uint8_t>(extent.value);
      return;
    case ExtentKind::option:
      span.extent = gate::Extent::option;
      span.other = static_cast<uint8_t>(extent.value);
      return;
    case ExtentKind::length_of:
      span.extent = gate::Extent::length_of;
      span.other = static_cast<uint8_t>(extent.value);
      return;
    case ExtentKind::c_string:
      span.extent = gate::Extent::string;
      span.value = extent.value;
      return;
    default:
      ASSERT(!"an extent that calls served in process cannot have");
  }
}

uint8_t argument(int8_t index) { return index < 0 ? gate::kNoArg : static_cast<uint8_t>(index); }

gate::Call call_of(const SyscallRow& row) {
  gate::Call call;
  call.serve = row.may_block ? gate::Serve::sleeps : gate::Serve::always;
  call.send = row.traffic == Traffic::send;
  call.wakes = row.wakes;
  call.tells_time = row.in_vdso;
  call.yields = row.may_block && row.args[0].kind == ArgKind::none;
  call.descriptor = argument(row.traffic != Traffic::none ? row.fd_arg : row.waits_on_arg);
  call.flags = argument(row.flags_arg);
  call.word = argument(row.word_arg);
  call.expected = argument(row.expected_arg);
  call.timeout = argument(row.timeout_arg);
  call.timeout_at = row.timeout_arg >= 0 && row.args[static_cast<size_t>(row.timeout_arg)].kind != ArgKind::val;
  call.timed_out = static_cast<int16_t>(-row.timed_out);
  call.clear = argument(row.clear_arg);
  call.clear_from = row.clear_from;
  call.refusal = row.treat == Treat::refuse ? row.refusal : 0;
  call.test = row.test;
  call.reads_blocks = row.reads_blocks;
  call.changes_file = row.file_change != FileChange::none;
  call.changed = argument(row.changed_arg);
  call.changes_path = call.changes_file && row.args[static_cast<size_t>(row.changed_arg)].kind == ArgKind::path;
  call.truncate_flags = argument(row.truncate_arg);
  call.makes = row.new_descriptor;
  call.memory = row.memory;
  if (row.fd_effect == FdEffect::closes) call.closes = call.loses = 0;
  if (row.fd_effect == FdEffect::replaces) call.closes = call.loses = 1;
  if (row.fd_effect == FdEffect::ends) call.loses = 0;
  for (uint8_t i = 0; i < 6; ++i) {
    const Arg& arg = row.args[i];
    gate::Span span;
    span.arg = i;
    span.written = arg.written;
    span.payload = arg.payload;
    switch (arg.kind) {
      case ArgKind::none:
      case ArgKind::val:
      case ArgKind::pointer:
      case ArgKind::fd:
        continue;
      case ArgKind::path:
        span.extent = gate::Extent::string;
        span.value = kPageSize;
        span.before = true;
        break;
      case ArgKind::in:
      case ArgKind::out:
      case ArgKind::in_out:
        set_extent(span, arg.extent);
        span.before = arg.kind != ArgKind::out;
        span.after = arg.kind != ArgKind::in;
        break;
      case ArgKind::iovec_in:
      case ArgKind::iovec_out:
        span.extent = gate::Extent::vector;
        span.value = arg.extent.kind == ExtentKind::fixed ? arg.extent.value : 0;
        span.other = static_cast<uint8_t>(i + 1);
        span.before = true;
        span.sent = arg.kind == ArgKind::iovec_in;
        span.after = !span.sent;
        break;
      case ArgKind::msghdr_in:
      case ArgKind::msghdr_out:
        span.extent = gate::Extent::message;
        span.before = true;
        span.sent = arg.kind == ArgKind::msghdr_in;
        span.after = !span.sent;
        break;
      case ArgKind::mmsghdr_in:
      case ArgKind::mmsghdr_out:
        span.extent = gate::Extent::messages;
        span.other = static_cast<uint8_t>(i + 1);
        span.before = span.after = true;
        span.sent = arg.kind == ArgKind::mmsghdr_in;
        break;
      default:
        ASSERT(!"an argument that calls served in process cannot have");
    }
    call.span[call.spans++] = span;
  }
  return call;
}

}  // namespace

void fill_gate_table(gate::Table& table) {
  for (const SyscallRow& row : all_rows()) {
    gate::Call& call = table.calls[row.number];
    if (row.in_process) call = call_of(row);
    call.selector = argument(row.selector);
    call.selector_mask = row.selector_mask;
  }
  uint16_t made = 0;
  for (const SyscallRow* row : all_commands()) {  // those of a multiplexer are adjacent and sorted
    if (!row->in_process) continue;
    ASSERT(made < gate::kCommands);
    gate::Call& multiplexer = table.calls[row->number];
    if (multiplexer.commands++ == 0) multiplexer.first_command = made;
    table.command_numbers[made] = static_cast<uint32_t>(row->command);
    table.commands[made++] = call_of(*row);
  }
}

std::vector<int> gate_numbers(const gate::Table& table) {
  std::vector<int> numbers(std::begin(gate::kOwnCalls), std::end(gate::kOwnCalls));
  for (int number = 0; number < static_cast<int>(gate::kCalls); ++number) {
    const gate::Call& call = table.calls[number];
    if (call.serve != gate::Serve::never || call.commands) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace redrive
