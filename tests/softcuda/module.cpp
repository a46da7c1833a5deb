// module.cpp: kernel modules and launches. A module is a host shared object made by build.py; each load has
// its own globals. A launch is checked as a real driver checks it, and a little more: parameters must fit the
// kernel, and pointers must point into live memory.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "driver.h"

// CUmodule and CUfunction point to these.
struct CUfunc_st {
  softcuda::LaunchFunction launch;
  void *(*shared_anchor)();
  const softcuda::KernelInfo *info;
  const char *name;
  int max_dynamic_shared_bytes;
};

struct CUmod_st {
  void *library;
  int file;  // of the image; open while the library is
  std::map<std::string, CUfunc_st> functions;
  std::vector<CUdeviceptr> globals;  // entries in driver.allocations
};

namespace softcuda {
namespace {

constexpr int kDefaultDynamicSharedBytes = 48 << 10;

struct Shape {
  unsigned grid[3], block[3], dynamic_shared_bytes;
};

CUresult load_file(CUmodule *module, int file) {
  std::string path = "/proc/self/fd/" + std::to_string(file);
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    message("cannot load the module: %s", dlerror());
    close(file);
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *module = new CUmod_st{library, file, {}, {}};
  return CUDA_SUCCESS;
}

// Through an anonymous file, so that loading the same image twice gives two sets of globals.
CUresult load_image(CUmodule *module, const void *image, size_t bytes) {
  int file = memfd_create("softcuda-module", MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (write(file, image, bytes) == ssize_t(bytes)) return load_file(module, file);
  close(file);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

bool is_host_object(const Elf64_Ehdr &header) {
  return !memcmp(header.e_ident, ELFMAG, SELFMAG) && header.e_machine == EM_X86_64;
}

CUresult refuse_image() {
  message("the module isn't a host object made by softcuda's build.py (a cubin, a fatbin or PTX?)");
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult check_shape(const CUfunc_st &function, const Shape &shape) {
  const unsigned *grid = shape.grid, *block = shape.block;
  uint64_t threads = uint64_t(block[0]) * block[1] * block[2];
  bool empty = !threads || !grid[0] || !grid[1] || !grid[2];
  bool large = grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535 || block[2] > 64;
  if (empty || large || threads > function.info->max_threads) {
    message(
        "%s: grid (%u,%u,%u) of blocks (%u,%u,%u) is out of range; the kernel takes 1 to %u threads per "
        "block",
        function.name, grid[0], grid[1], grid[2], block[0], block[1], block[2], function.info->max_threads);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (shape.dynamic_shared_bytes > unsigned(function.max_dynamic_shared_bytes)) {
    message(
        "%s: %u bytes of dynamic shared memory, the limit is %d (attribute MAX_DYNAMIC_SHARED_SIZE_BYTES)",
        function.name, shape.dynamic_shared_bytes, function.max_dynamic_shared_bytes);
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// From CU_LAUNCH_PARAM_BUFFER, or from one pointer per parameter.
CUresult pack_params(const CUfunc_st &function, void **params, void **extra, std::string &buffer) {
  const KernelInfo &info = *function.info;
  buffer.resize(info.param_bytes);
  if (!extra) {
    if (!params && info.param_count) return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < info.param_count; ++i)
      memcpy(&buffer[info.params[i].offset], params[i], info.params[i].bytes);
    return CUDA_SUCCESS;
  }
  const void *packed = nullptr;
  size_t bytes = 0;
  for (void **option = extra; *option != CU_LAUNCH_PARAM_END; option += 2) {
    if (option[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) packed = option[1];
    if (option[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<size_t *>(option[1]);
  }
  if (bytes != info.param_bytes) {
    message("%s: %zu bytes of parameters, the kernel takes %u", function.name, bytes, info.param_bytes);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes) memcpy(&buffer[0], packed, bytes);
  return CUDA_SUCCESS;
}

// Null pointers are allowed: a kernel may have optional operands.
CUresult find_uses(const CUfunc_st &function, const std::string &buffer, std::vector<Use> &uses) {
  const KernelInfo &info = *function.info;
  for (uint32_t i = 0; i < info.param_count; ++i) {
    if (info.params[i].access == Access::value) continue;
    uintptr_t address;
    memcpy(&address, &buffer[info.params[i].offset], sizeof address);
    if (!address) continue;
    bool live = find_range(driver.allocations, address) != driver.allocations.end() ||
                find_range(driver.pinned, address) != driver.pinned.end() || is_mapped(address, 1, false);
    if (!live) {
      message("%s: argument %u (%p) points to no live device allocation (%s)", function.name, i,
              reinterpret_cast<void *>(address), describe_address(address).c_str());
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (driver.settings.race) uses.push_back(used_range(address, info.params[i].access == Access::write));
  }
  return CUDA_SUCCESS;
}

CUresult run_kernel(const CUfunc_st &function, const Shape &shape, const std::string &params, uint64_t seed) {
  const Settings &settings = driver.settings;
  FaultReport fault{};
  LaunchConfig config{};
  std::copy(shape.grid, shape.grid + 3, config.grid);
  std::copy(shape.block, shape.block + 3, config.block);
  config.dynamic_shared_bytes = shape.dynamic_shared_bytes;
  config.order = settings.order;
  config.seed = seed;
  config.params = params.data();
  config.workers = settings.workers;
  config.poison = settings.poison;
  config.shared_anchor = function.shared_anchor;
  config.fault = &fault;
  auto error = CUresult(function.launch(&config));
  if (!error) return error;
  Lock lock(driver.mutex);
  std::string where = fault.address ? ", " + describe_address(fault.address) : "";
  message("%s: %s%s", function.name, fault.text, where.c_str());
  return error;
}

int optin_shared_bytes() { return driver.settings.compute_capability >= 90 ? 232448 : 101376; }

}  // namespace
}  // namespace softcuda

using namespace softcuda;

// ---- modules ------------------------------------------------------------------------------------

SOFTCUDA_API cuModuleLoadData(CUmodule *module, const void *image) {
  SOFTCUDA_ENTER;
  Elf64_Ehdr header;
  memcpy(&header, image, EI_NIDENT);  // enough to tell what it is: a shorter image may be all there is
  if (memcmp(header.e_ident, ELFMAG, SELFMAG)) return refuse_image();
  memcpy(&header, image, sizeof header);
  if (!is_host_object(header)) return refuse_image();
  // The section table ends the file.
  return load_image(module, image, header.e_shoff + size_t(header.e_shentsize) * header.e_shnum);
}

SOFTCUDA_API cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                                void **values) {
  for (unsigned i = 0; i < count; ++i) {
    bool log_size =
        options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
    if (log_size) values[i] = nullptr;  // bytes written to the log
  }
  return cuModuleLoadData(module, image);
}

SOFTCUDA_API cuModuleLoad(CUmodule *module, const char *path) {
  SOFTCUDA_ENTER;
  FILE *file = fopen(path, "rb");
  if (!file) {
    message("cannot open the module %s", path);
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  std::string image;
  char part[1 << 16];
  for (size_t bytes; (bytes = fread(part, 1, sizeof part, file));) image.append(part, bytes);
  fclose(file);
  Elf64_Ehdr header{};
  memcpy(&header, image.data(), std::min(image.size(), sizeof header));
  return is_host_object(header) ? load_image(module, image.data(), image.size()) : refuse_image();
}

SOFTCUDA_API cuModuleUnload(CUmodule module) {
  Lock lock(driver.mutex);
  synchronize_all(lock);
  for (CUdeviceptr global : module->globals) driver.allocations.erase(global);
  dlclose(module->library);
  close(module->file);
  delete module;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  SOFTCUDA_ENTER;
  auto symbol = [&](const std::string &prefix) { return dlsym(module->library, (prefix + name).c_str()); };
  auto *launch = reinterpret_cast<LaunchFunction>(symbol("__softcuda_launch_"));
  if (!launch) return CUDA_ERROR_NOT_FOUND;
  auto *anchor = reinterpret_cast<void *(*)()>(dlsym(module->library, "__softcuda_shared_anchor"));
  auto *info = static_cast<const KernelInfo *>(symbol("__softcuda_info_"));
  auto [found, is_new] = module->functions.try_emplace(name);
  if (is_new) found->second = {launch, anchor, info, intern(name), kDefaultDynamicSharedBytes};
  *function = &found->second;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
  SOFTCUDA_ENTER;
  void *variable = dlsym(module->library, name);
  if (!variable) return CUDA_ERROR_NOT_FOUND;
  Dl_info info;
  const ElfW(Sym) *symbol = nullptr;
  dladdr1(variable, &info, reinterpret_cast<void **>(const_cast<ElfW(Sym) **>(&symbol)), RTLD_DL_SYMENT);
  auto begin = reinterpret_cast<CUdeviceptr>(variable);
  size_t size = symbol ? symbol->st_size : 0;
  if (address) *address = begin;
  if (bytes) *bytes = size;
  if (driver.allocations.emplace(begin, Allocation{{}, size, nullptr}).second)
    module->globals.push_back(begin);
  return CUDA_SUCCESS;
}

// ---- functions ----------------------------------------------------------------------------------

SOFTCUDA_API cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = int(function->info->max_threads); break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->max_dynamic_shared_bytes; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;  // there are none to count
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  if (value < 0 || value > optin_shared_bytes()) return CUDA_ERROR_INVALID_VALUE;
  function->max_dynamic_shared_bytes = value;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
SOFTCUDA_API cuFuncSetBlockShape(CUfunction, int, int, int) {
  return CUDA_SUCCESS;
}  // PyCUDA calls it, then launches
SOFTCUDA_API cuFuncSetSharedSize(CUfunction, unsigned) { return CUDA_SUCCESS; }

SOFTCUDA_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction, int threads, size_t) {
  *blocks = std::max(1, 2048 / std::max(1, threads));
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned dynamic_shared_bytes, CUstream handle, void **params, void **extra) {
  if (driver.settings.drop) {  // before anything else: what is left is the caller's own time
    ++driver.counters.dropped_launches;
    return CUDA_SUCCESS;
  }
  SOFTCUDA_ENTER;
  Shape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared_bytes};
  std::string buffer;
  std::vector<Use> uses;
  if (CUresult error = check_shape(*function, shape)) return error;
  if (CUresult error = pack_params(*function, params, extra, buffer)) return error;
  if (CUresult error = find_uses(*function, buffer, uses)) return error;
  StreamPtr stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  ++driver.counters.launches;
  auto run = [=, buffer = std::move(buffer), seed = random_number()] {
    return run_kernel(*function, shape, buffer, seed);
  };
  return enqueue(lock, stream, {function->name, std::move(run), std::move(uses), nullptr});
}
