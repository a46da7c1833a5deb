// fault.cpp: how a launch ends when something inside a kernel goes wrong: a signal of the processor, or a
// check of fiber.h that fails. Either way the fiber is left where it stands, and the engine gets a report
// that names block and thread. Nothing is unwound: the fiber's frames are forgotten with its stack.
#include "runner.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>

#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace softcuda {
namespace {

constexpr size_t kSignalStackBytes = 64 << 10;
struct sigaction previous_actions[NSIG];

[[noreturn]] void report_and_leave(int error, uintptr_t address, const char *text) {
  auto *runner = static_cast<Runner *>(engine);
  void *abandoned;
  runner->fill_report(error, address, text);
  runner->faulted = true;
  softcuda_switch(&abandoned, runner->scheduler_stack_pointer);
  __builtin_unreachable();
}

// Where the faulting instruction lies in the module's file: addr2line turns that into a source line.
void describe_code(char *text, size_t text_bytes, const ucontext_t *context) {
  auto code = static_cast<uintptr_t>(context->uc_mcontext.gregs[REG_RIP]);
  Dl_info info{};
  text[0] = 0;
  if (dladdr(reinterpret_cast<void *>(code), &info) && info.dli_fbase)
    snprintf(text, text_bytes, " (code offset 0x%zx of its module)",
             size_t(code - reinterpret_cast<uintptr_t>(info.dli_fbase)));
}

// What the signal means, as `text`; returns the error that the context keeps.
int explain_signal(int signal, const siginfo_t &info, uintptr_t &address, char *text, size_t text_bytes) {
  auto stack = reinterpret_cast<uintptr_t>(fiber->stack);
  auto accessed = reinterpret_cast<uintptr_t>(info.si_addr);
  if (signal == SIGILL) {
    snprintf(text, text_bytes, "misaligned access or index out of bounds, trapped by the sanitised build");
    return kLaunchFailed;
  }
  if (signal == SIGFPE) {
    snprintf(text, text_bytes, "integer division by zero");
    return kLaunchFailed;
  }
  if (info.si_code == SI_KERNEL) {  // the processor's general protection: no address is told
    snprintf(text, text_bytes, "misaligned vector access, or a wild pointer");
    return kMisalignedAddress;
  }
  if (accessed < stack && accessed >= stack - kPage) {
    snprintf(text, text_bytes, "stack overflow");
    return kIllegalAddress;
  }
  address = accessed;
  snprintf(text, text_bytes, "illegal address %p", info.si_addr);
  return kIllegalAddress;
}

void handle_signal(int signal, siginfo_t *info, void *context) {
  if (!fiber) {  // not ours: whoever was there before sees it at the retry
    sigaction(signal, &previous_actions[signal], nullptr);
    return;
  }
  char what[128], code[96], text[256];
  uintptr_t address = 0;
  int error = explain_signal(signal, *info, address, what, sizeof what);
  describe_code(code, sizeof code, static_cast<ucontext_t *>(context));
  snprintf(text, sizeof text, "%s%s", what, code);
  report_and_leave(error, address, text);
}

}  // namespace

void Runner::fill_report(int error, uintptr_t address, const char *text) {
  uint3 thread = fiber->thread_index;
  report.error = error;
  report.address = address;
  snprintf(report.text, sizeof report.text, "block (%u,%u,%u) thread (%u,%u,%u): %s", block_index.x,
           block_index.y, block_index.z, thread.x, thread.y, thread.z, text);
}

SignalStack::SignalStack() {
  memory_ = mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack_t stack{};
  stack.ss_sp = memory_;
  stack.ss_size = kSignalStackBytes;
  sigaltstack(&stack, nullptr);
}

// Whoever has set another stack meanwhile keeps it.
SignalStack::~SignalStack() {
  stack_t current{}, none{};
  none.ss_flags = SS_DISABLE;
  if (!sigaltstack(nullptr, &current) && current.ss_sp == memory_) sigaltstack(&none, nullptr);
  munmap(memory_, kSignalStackBytes);
}

void fail(int error, const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  report_and_leave(error, 0, text);
}

// Called once, by cuInit. Not blocked while handled: the handler never returns from a kernel's fault.
void install_fault_handlers() {
  struct sigaction action{};
  action.sa_sigaction = handle_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) sigaction(signal, &action, &previous_actions[signal]);
}

}  // namespace softcuda
