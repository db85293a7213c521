#include "tern/kernels/cpu/onednn.h"

#include <dnnl.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tern/kernels/base/address_space.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels::TERN_CPU {

void limit_instruction_set() {
  static const bool done = [] {
    const char* text = std::getenv("TERN_CPU_LEVEL");
    const std::string level = text ? text : "";
    if (level == name_of(CpuLevel::kV2)) dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
    if (level == name_of(CpuLevel::kV3)) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    return true;
  }();
  static_cast<void>(done);
}

dnnl::engine& onednn_engine() {
  static dnnl::engine* instance = [] {
    limit_instruction_set();
    dnnl::set_primitive_cache_capacity(0);                // PrimitiveCache keeps them; oneDNN would keep 1,024 more
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);  // never destroyed: worker threads may outlive main
  }();
  return *instance;
}

bool has_instruction_set(dnnl::cpu_isa wanted) {
  onednn_engine();
  const unsigned have = static_cast<unsigned>(dnnl::get_effective_cpu_isa()), want = static_cast<unsigned>(wanted);
  return (have & want) == want;  // oneDNN's values are bit sets that each contain their predecessors
}

bool moves_stack_pointer(int64_t k) {
  static const int64_t most_on_stack = [] {
    const dnnl_version_t* version = dnnl_version();
    if (version->major > 3 || (version->major == 3 && version->minor >= 12)) return INT64_MAX;
    return has_instruction_set(dnnl::cpu_isa::avx512_core) ? int64_t{64} : int64_t{128};
  }();
  return k > most_on_stack;
}

void check_room_for_code() {
  // oneDNN 2.6.3 takes up to 3 MiB for a primitive and 14 for the products, each kernel apart.
  constexpr size_t kBytes = size_t{24} << 20;
  void* const room = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    throw OutOfMemoryError(
        "out of memory: oneDNN needs up to 24 MiB of address space for the code of a product or convolution, which the "
        "system refuses; raise the limit (ulimit -v), or take fewer threads or a smaller batch");
  munmap(room, kBytes);
}

bool is_address_space_limited() {
  static const bool limited = address_space_limit() != INT64_MAX;
  return limited;
}

void check_limited_room_for_code() {
  if (is_address_space_limited()) check_room_for_code();
}

dnnl::memory::data_type onednn_type(DType dtype) {
  return dtype == DType::kBFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

std::mutex& onednn_mutex() {
  static std::mutex* const instance = [] {
    pthread_atfork([] { onednn_mutex().lock(); }, [] { onednn_mutex().unlock(); }, [] { onednn_mutex().unlock(); });
    return new std::mutex;  // never destroyed: worker threads may outlive main
  }();
  return *instance;
}

}  // namespace tern::kernels::TERN_CPU
