#pragma once
// What the uses of oneDNN share. Compiles with oneDNN 2.6 and 3. All oneDNN calls run on the calling thread only: its
// libgomp threads would wait for each other even when one of them is not running.

#include <omp.h>

#include <dnnl.hpp>
#include <map>
#include <memory>
#include <mutex>

#include "tern/kernels/types.h"

namespace tern::kernels::TERN_CPU {

/// Sets the calling thread's number of OpenMP threads, which oneDNN uses, to one.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;

 private:
  int before_;
};

/// Limits oneDNN's instruction sets by TERN_CPU_LEVEL. oneDNN fixes them at its first use, so set_cpu_level() has no
/// effect on it: after set_cpu_level(v2) our code runs at v2 and oneDNN as before.
void limit_instruction_set();
/// oneDNN's CPU, after limit_instruction_set().
dnnl::engine& onednn_engine();
bool has_instruction_set(dnnl::cpu_isa wanted);

/// oneDNN before 3.12 computes some products of fp32 with the stack pointer at the beginning of a buffer from malloc()
/// (jit_avx_gemm_f32, jit_avx512_common_gemm_f32; https://github.com/uxlfoundation/oneDNN/issues/4845): a signal that
/// arrived then would overwrite the memory below the buffer. Up to k = 84 with AVX-512, and 252 without, the buffer is
/// on the stack in oneDNN 2.6; the limits here leave room for other versions.
bool moves_stack_pointer(int64_t k);

/// True under ulimit -v.
bool is_address_space_limited();
/// Throws OutOfMemoryError where the address space has no room for the code of a primitive, or of oneDNN's products,
/// which it makes when the first one runs: it does not look whether it got the memory, and writes to address 0.
void check_room_for_code();
/// The same before a call that may make code, where the address space is limited (ulimit -v); else it costs nothing.
void check_limited_room_for_code();

dnnl::memory::data_type onednn_type(DType dtype);

/// Held while a primitive is created. fork() waits for it, so that a child finds neither it nor oneDNN's locks held by
/// a thread that does not exist there.
std::mutex& onednn_mutex();

/// The primitives that were used last, by their key: at most 512 of convolutions and 512 of products, of 0.1 to 1.5 MB
/// each. oneDNN's own cache is switched off, which would keep 1,024 more.
template <class Key, class Primitive>
class PrimitiveCache {
 public:
  /// Finds or creates a primitive. Creation takes about 0.1 ms (some ms with code generation). Throws
  /// OutOfMemoryError.
  std::shared_ptr<const Primitive> find(const Key& key) {
    constexpr size_t kCapacity = 512;
    std::lock_guard<std::mutex> lock(onednn_mutex());
    if (const auto found = entries_.find(key); found != entries_.end()) {
      found->second.used = ++clock_;
      return found->second.primitive;
    }
    if (entries_.size() >= kCapacity) {
      auto oldest = entries_.begin();
      for (auto it = entries_.begin(); it != entries_.end(); ++it)
        if (it->second.used < oldest->second.used) oldest = it;
      entries_.erase(oldest);
    }
    check_room_for_code();
    return entries_.emplace(key, Entry{std::make_shared<const Primitive>(key), ++clock_}).first->second.primitive;
  }

 private:
  struct Entry {
    std::shared_ptr<const Primitive> primitive;
    uint64_t used;
  };
  std::map<Key, Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace tern::kernels::TERN_CPU
