// context.cpp: the Driver itself; initialisation, device, contexts, errors, counters and messages.
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "driver.h"

// From the file that build.py generates: the names that cuda.h gives the results.
extern "C" const char *softcuda_result_name(int result);

namespace softcuda {

Driver &driver = *new Driver;  // never destroyed: stream threads outlive exit handlers

namespace {

std::string last_message;
thread_local std::vector<CUcontext> context_stack;

struct ResultText {
  int result;
  const char *text;
};

// What CUDA says too, for the results that this driver returns.
constexpr ResultText kResultTexts[] = {
    {CUDA_SUCCESS, "no error"},
    {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
    {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
    {CUDA_ERROR_FILE_NOT_FOUND, "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"},
};

// When its last reference goes: its allocations are freed, as CUDA does, and reported if asked for.
void end_context(Lock &lock, CUcontext context) {
  drain_all(lock);
  if (!driver.contexts.erase(context)) return;
  if (!context_stack.empty() && context_stack.back() == context) context_stack.pop_back();
  if (driver.primary == context) driver.primary = nullptr;
  free_all(context);
  report_mapping_leaks(context);
  delete context;
}

CUcontext make_context(CUdevice device, unsigned flags) {
  auto *context = new CUctx_st{device, flags, 1};
  driver.contexts.insert(context);
  return context;
}

}  // namespace

uint64_t random_number() {  // xorshift64
  uint64_t &state = driver.random_state;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

const char *intern(const std::string &text) {
  static std::set<std::string> &texts = *new std::set<std::string>;
  return texts.insert(text).first->c_str();
}

// With the lock held: to stderr, and kept for softcuda_message().
void message(const char *format, ...) {
  char text[768];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  last_message = text;
  fprintf(stderr, "softcuda: %s\n", text);
}

CUcontext current_context() { return context_stack.empty() ? nullptr : context_stack.back(); }

CUresult check_callable() {
  if (!driver.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  return driver.dead;
}

}  // namespace softcuda

using namespace softcuda;

// ---- initialisation, device ---------------------------------------------------------------------

SOFTCUDA_API cuInit(unsigned) {
  Lock lock(driver.mutex);
  if (driver.initialised) return CUDA_SUCCESS;
  try {
    driver.settings = read_settings();
  } catch (const std::invalid_argument &error) {
    message("%s", error.what());
    return CUDA_ERROR_INVALID_VALUE;
  }
  driver.random_state = driver.settings.seed * 2654435761u | 1;
  driver.initialised = true;
  install_fault_handlers();
  driver.null_stream = make_stream(true);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDriverGetVersion(int *version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDeviceGetCount(int *count) {
  if (!driver.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *count = 1;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDeviceGet(CUdevice *device, int ordinal) {
  if (!driver.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (ordinal) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDeviceGetName(char *name, int bytes, CUdevice) {
  snprintf(name, bytes, "softcuda (CPU)");
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDeviceGetPCIBusId(char *id, int bytes, CUdevice) {
  snprintf(id, bytes, "0000:00:00.0");
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDeviceGetByPCIBusId(CUdevice *device, const char *) {
  *device = 0;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDeviceComputeCapability(int *major, int *minor, CUdevice) {
  *major = driver.settings.compute_capability / 10;
  *minor = driver.settings.compute_capability % 10;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDeviceTotalMem(size_t *bytes, CUdevice) {
  *bytes = driver.settings.capacity_bytes;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDeviceCanAccessPeer(int *possible, CUdevice, CUdevice) {
  *possible = 0;
  return CUDA_SUCCESS;
}

// Limits as on GPUs of the compute capability; what has no meaning here is 0.
SOFTCUDA_API cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
  int capability = driver.settings.compute_capability;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 0x7fffffff; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = capability >= 90 ? 232448 : 101376;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 233472; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *value = 65536; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *value = 2; break;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = 1; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}

// ---- contexts -----------------------------------------------------------------------------------

SOFTCUDA_API cuCtxCreate(CUcontext *context, CUctxCreateParams *, unsigned flags, CUdevice device) {
  Lock lock(driver.mutex);
  if (!driver.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *context = make_context(device, flags);
  context_stack.push_back(*context);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  Lock lock(driver.mutex);
  if (!driver.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (driver.primary)
    ++driver.primary->references;
  else
    driver.primary = make_context(device, 0);
  *context = driver.primary;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDevicePrimaryCtxRelease(CUdevice) {
  Lock lock(driver.mutex);
  if (!driver.primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (!--driver.primary->references) end_context(lock, driver.primary);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuDevicePrimaryCtxGetState(CUdevice, unsigned *flags, int *active) {
  Lock lock(driver.mutex);
  *flags = 0;
  *active = driver.primary != nullptr;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuCtxPushCurrent(CUcontext context) {
  context_stack.push_back(context);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuCtxPopCurrent(CUcontext *context) {
  if (context_stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = context_stack.back();
  context_stack.pop_back();
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuCtxGetCurrent(CUcontext *context) {
  *context = current_context();
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuCtxSetCurrent(CUcontext context) {
  if (!context_stack.empty()) context_stack.pop_back();
  if (context) context_stack.push_back(context);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuCtxAttach(CUcontext *context, unsigned) {
  Lock lock(driver.mutex);
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = current_context();
  ++(*context)->references;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuCtxDetach(CUcontext context) {
  Lock lock(driver.mutex);
  if (!driver.contexts.count(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!--context->references) end_context(lock, context);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuCtxDestroy(CUcontext context) {
  Lock lock(driver.mutex);
  if (!driver.contexts.count(context)) return CUDA_ERROR_INVALID_CONTEXT;
  end_context(lock, context);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuCtxGetDevice(CUdevice *device) {
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuCtxSynchronize() {
  SOFTCUDA_ENTER;
  if (refuse_while_capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return synchronize_all(lock);
}

SOFTCUDA_API cuCtxGetApiVersion(CUcontext, unsigned *version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }
SOFTCUDA_API cuCtxGetLimit(size_t *value, CUlimit) {
  *value = 0;
  return CUDA_SUCCESS;
}
SOFTCUDA_API cuCtxSetCacheConfig(CUfunc_cache) { return CUDA_SUCCESS; }
SOFTCUDA_API cuCtxGetCacheConfig(CUfunc_cache *config) {
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

// ---- errors -------------------------------------------------------------------------------------

SOFTCUDA_API cuGetErrorName(CUresult result, const char **name) {
  *name = softcuda_result_name(result);
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFTCUDA_API cuGetErrorString(CUresult result, const char **text) {
  for (const ResultText &known : kResultTexts) {
    if (known.result != result) continue;
    *text = known.text;
    return CUDA_SUCCESS;
  }
  *text = softcuda_result_name(result);
  if (!*text) *text = "unknown error";  // callers print it without asking whether there is one
  return CUDA_SUCCESS;
}

// The generated stubs of all functions that are not here come to this one.
extern "C" int softcuda_not_supported(const char *function) {
  Lock lock(driver.mutex);
  message("%s is not supported", function);
  return CUDA_ERROR_NOT_SUPPORTED;
}

// ---- extras -------------------------------------------------------------------------------------

// One of the Counters by name; the largest value there is if there is no such counter.
SOFTCUDA_EXTRA(uint64_t) softcuda_counter(const char *name) {
  Lock lock(driver.mutex);
  const Counters &c = driver.counters;
  const std::pair<const char *, uint64_t> counters[] = {
      {"allocations", c.allocations},
      {"frees", c.frees},
      {"bytes_live", c.bytes_live},
      {"bytes_peak", c.bytes_peak},
      {"reservations_live", driver.reservations.size()},
      {"mappings_live", driver.mappings.size()},
      {"pinned_allocations", c.pinned_allocations},
      {"pinned_bytes_live", c.pinned_bytes_live},
      {"launches", c.launches},
      {"dropped_launches", c.dropped_launches},
      {"copies", c.copies},
      {"memsets", c.memsets},
      {"graph_launches", c.graph_launches},
      {"bytes_to_device", c.bytes_to_device},
      {"bytes_to_host", c.bytes_to_host},
      {"races", c.races},
      {"overruns", c.overruns},
  };
  for (const auto &[known, value] : counters)
    if (!strcmp(known, name)) return value;
  return UINT64_MAX;
}

// The last message, until the calling thread asks again.
SOFTCUDA_EXTRA(const char *) softcuda_message() {
  static thread_local std::string copy;
  Lock lock(driver.mutex);
  copy = last_message;
  return copy.c_str();
}
