#include "tern/kernels/cpu/gemm/onednn.h"

#include <dnnl.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tern/kernels/base/check.h"
#include "tern/kernels/base/signal_guard.h"
#include "tern/kernels/cpu/onednn.h"
#include "tern/kernels/kernel.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

dnnl::memory::desc matrix(int64_t rows, int64_t cols, DType dtype, bool transposed, int64_t stride) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return dnnl::memory::desc({rows, cols}, onednn_type(dtype), strides);
}

dnnl::matmul::primitive_desc describe(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                      const dnnl::memory::desc& bias, const dnnl::memory::desc& c) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(onednn_engine(), a, b, bias, c, attributes);
#else
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, bias, c), attributes, onednn_engine());
#endif
}

[[noreturn]] void fail_product(const MatmulKey& key, const char* why) {
  fail("gemm [", key.m, ", ", key.k, "] x [", key.k, ", ", key.n, "] ", name_of(key.input), ": oneDNN: ", why);
}

void check_not_ending() {
  static std::atomic<std::thread::id> ending = std::thread::id();  // the thread that runs exit()
  static const int registered = std::atexit([] { ending = std::this_thread::get_id(); });
  static_cast<void>(registered);
  TERN_CHECK(
      ending.load(std::memory_order_relaxed) != std::this_thread::get_id(),
      "gemm: the process ends, and what oneDNN needs is destroyed: compute products before main returns or exit() "
      "is called, not in a static object's destructor or a function given to atexit()");
}

void make_code_of_products() {
  static std::atomic<bool> made = false;
  if (made.load(std::memory_order_acquire)) return;
  std::lock_guard<std::mutex> lock(onednn_mutex());
  if (made.load(std::memory_order_relaxed)) return;
  // oneDNN has code for rows and columns, for small products, and for others, by what is transposed and by beta.
  constexpr int64_t kMost = 300;
  const std::vector<float> zeros(kMost * kMost);
  std::vector<float> c(kMost * kMost);
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 40, 40}, {40, 1, 40}, {40, 40, 40}, {kMost, kMost, kMost}})
    for (int kind = 0; kind < 8; ++kind)
      sgemm(kind & 1, kind & 2, m, n, k, 1, zeros.data(), kind & 1 ? m : k, zeros.data(), kind & 2 ? k : n,
            kind & 4 ? 1.f : 0.f, c.data(), n);
  made.store(true, std::memory_order_release);
}

}  // namespace

struct Matmul::State {
  MatmulKey key;
  dnnl::memory::desc a, b, bias, packed, c, scratch;
  dnnl::matmul product;
  bool makes_code = false;                                     // when the product runs for the first time
  bool guarded = false;                                        // the product is run with a SignalGuard
  std::vector<dnnl::reorder> packing;                          // each for some columns
  std::vector<dnnl::memory::desc> unpacked_part, packed_part;  // the same columns within the whole matrices

  void prepare_packing(int64_t k, int64_t n);
};

/// Splits packing by columns for several threads. Layouts that cannot be split are packed in one piece.
void Matmul::State::prepare_packing(int64_t k, int64_t n) {
  constexpr int64_t kStep = 64;  // a multiple of the column groups in oneDNN's layouts
  constexpr int64_t kElements = 1 << 16, kMaxParts = 16;
  const int64_t wanted = std::max(kElements / std::max<int64_t>(k, 1), n / kMaxParts);
  const int64_t cols = (wanted / kStep + 1) * kStep;
  const auto add = [&](const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
    packing.emplace_back(dnnl::reorder::primitive_desc(onednn_engine(), from, onednn_engine(), to));
    unpacked_part.push_back(from);
    packed_part.push_back(to);
  };
  try {
    for (int64_t col = 0; col < n; col += cols) {
      const dnnl::memory::dims size = {k, std::min(cols, n - col)}, offset = {0, col};
      add(b.submemory_desc(size, offset), packed.submemory_desc(size, offset));
    }
  } catch (const dnnl::error&) {
    packing.clear();
    unpacked_part.clear();
    packed_part.clear();
    add(b, packed);
  }
}

Matmul::Matmul(const MatmulKey& key) try : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.key = key;
  s.a = matrix(key.m, key.k, key.input, key.transpose_a, key.lda);
  s.b = matrix(key.k, key.n, key.input, key.transpose_b, key.ldb);
  s.c = matrix(key.m, key.n, key.output, false, key.ldc);
  if (key.bias) s.bias = matrix(1, key.n, DType::kFloat32, false, key.n);
  const dnnl::memory::desc any({key.k, key.n}, onednn_type(key.input), dnnl::memory::format_tag::any);
  const OneThread guard;
  const dnnl::matmul::primitive_desc chosen = describe(s.a, key.pack_b ? any : s.b, s.bias, s.c);
  s.packed = chosen.weights_desc();
  s.scratch = chosen.scratchpad_desc();
  s.product = dnnl::matmul(chosen);
  const bool is_brgemm = std::string_view(chosen.impl_info_str()).substr(0, 3) == "brg";  // keeps the stack pointer
  s.makes_code = !is_brgemm;
  s.guarded = !is_brgemm && moves_stack_pointer(key.k);
  if (key.pack_b) s.prepare_packing(key.k, key.n);
} catch (const dnnl::error& error) {
  fail_product(key, error.what());
}

Matmul::~Matmul() = default;

int64_t Matmul::packed_bytes() const { return static_cast<int64_t>(state_->packed.get_size()); }
int64_t Matmul::scratch_bytes() const { return static_cast<int64_t>(state_->scratch.get_size()); }
bool Matmul::same_packing(const Matmul& other) const { return state_->packed == other.state_->packed; }

void Matmul::pack(const void* b, void* packed) const {
  parallel_for(static_cast<int64_t>(state_->packing.size()), 1, [&](int64_t part, int64_t) {
    const auto i = static_cast<size_t>(part);
    try {
      const OneThread guard;
      dnnl::memory from(state_->unpacked_part[i], onednn_engine(), const_cast<void*>(b));
      dnnl::memory to(state_->packed_part[i], onednn_engine(), packed);
      dnnl::stream stream(onednn_engine());
      dnnl::reorder(state_->packing[i]).execute(stream, from, to);
      stream.wait();
    } catch (const dnnl::error& error) {
      fail_product(state_->key, error.what());
    }
  });
}

void Matmul::run(const void* a, const void* b, const void* bias, void* c, void* scratch) const try {
  const State& s = *state_;
  if (s.makes_code) check_limited_room_for_code();
  const OneThread one;
  std::optional<SignalGuard> guard;
  if (s.guarded) guard.emplace();
  dnnl::stream stream(onednn_engine());
  std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, dnnl::memory(s.a, onednn_engine(), const_cast<void*>(a))},
      {DNNL_ARG_WEIGHTS, dnnl::memory(s.packed, onednn_engine(), const_cast<void*>(b))},
      {DNNL_ARG_DST, dnnl::memory(s.c, onednn_engine(), c)},
      {DNNL_ARG_SCRATCHPAD, dnnl::memory(s.scratch, onednn_engine(), scratch)}};
  if (s.bias) arguments.emplace(DNNL_ARG_BIAS, dnnl::memory(s.bias, onednn_engine(), const_cast<void*>(bias)));
  s.product.execute(stream, arguments);
  stream.wait();
} catch (const dnnl::error& error) {
  fail_product(state_->key, error.what());
}

std::shared_ptr<const Matmul> find_matmul(const MatmulKey& key) {
  static auto* const products =
      new PrimitiveCache<MatmulKey, Matmul>;  // never destroyed: worker threads may outlive main
  return products->find(key);
}

bool has_packed_matmul(DType dtype) {
  if (cpu_level() != CpuLevel::kV4) return false;
  static const bool fp32 = has_instruction_set(dnnl::cpu_isa::avx512_core);
  static const bool bf16 = has_instruction_set(dnnl::cpu_isa::avx512_core_bf16);
  return (dtype == DType::kFloat32 && fp32) || (dtype == DType::kBFloat16 && bf16);
}

void sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
           int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  limit_instruction_set();
  check_limited_room_for_code();
  const OneThread one;
  std::optional<SignalGuard> guard;
  if (moves_stack_pointer(k)) guard.emplace();
  const dnnl_status_t status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  if (status == dnnl_success) return;
  fail_product({.m = m, .n = n, .k = k}, status == dnnl_out_of_memory ? "out of memory" : "it cannot multiply these");
}

void prepare_products() {
  check_not_ending();
  if (is_address_space_limited()) make_code_of_products();
}

}  // namespace tern::kernels::TERN_CPU
