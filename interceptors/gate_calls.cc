#include "interceptors/gate_calls.h"

#include "base/check.h"
#include "interceptors/syscall_table.h"

namespace redrive {
namespace {

void set_extent(gate::Span& span, const Extent& extent) {
  CHECK(extent.header == 0);
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
      CHECK(extent.scale == 1);
      span.extent = gate::Extent::pointee;
      span.other = static_cast<uint8_t>(extent.value);
      return;
    default:
      CHECK(!"an extent that calls served in process cannot have");
  }
}

gate::Call call_of(const SyscallRow& row) {
  gate::Call call;
  call.serve = row.may_block ? gate::Serve::sleeps : gate::Serve::always;
  if (row.traffic == Traffic::send || row.traffic == Traffic::receive) {
    call.descriptor = static_cast<uint8_t>(row.fd_arg);
  }
  if (row.timeout_arg >= 0) call.timeout = static_cast<uint8_t>(row.timeout_arg);
  call.yields = row.may_block && row.args[0].kind == ArgKind::none;
  call.send = row.traffic == Traffic::send;
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
        span.extent = gate::Extent::path;
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
        CHECK(arg.extent.kind == ExtentKind::none);
        span.extent = gate::Extent::vector;
        span.other = static_cast<uint8_t>(i + 1);
        span.before = true;
        span.after = arg.kind == ArgKind::iovec_out;
        break;
      default:
        CHECK(!"an argument that calls served in process cannot have");
    }
    call.span[call.spans++] = span;
  }
  return call;
}

}  // namespace

std::vector<gate::Call> gate_calls() {
  std::vector<gate::Call> calls(gate::kCalls);
  for (const SyscallRow& row : all_rows()) {
    if (row.in_process) calls[static_cast<size_t>(row.number)] = call_of(row);
  }
  return calls;
}

}  // namespace redrive
