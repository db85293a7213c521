#pragma once
// Element-wise kernels over operands of any dtype and strides: copies, fills and all of pointwise.h are bodies of the
// one kernel below. A body is compiled once per compute type; dtypes and strides are run-time values that are uniform
// over the grid, so that a branch on them costs one instruction and no divergence.
//
// The compute type F is float, double or int64 (operands are converted), or an unsigned type of 8 to 64 bits: then all
// operands have elements of that size, whose bits are moved unchanged.

#include <algorithm>

#include "tern/kernels/convert.h"
#include "tern/kernels/cuda/support/convert.h"
#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/cuda/support/vector.h"
#include "tern/kernels/layout.h"

namespace tern::kernels::cuda {

/// Division of n < 2^31 by a constant in [1, 2^31) as a multiplication (Granlund and Montgomery, PLDI 1994).
struct Divider {
  uint32_t divisor = 1, multiplier = 1, shift = 0;
  Divider() = default;
  explicit Divider(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((((uint64_t{1} << shift) - d) << 32) / d) + 1);
  }
  TERN_HD uint32_t quotient(uint32_t n) const {
    const uint32_t high = static_cast<uint32_t>((static_cast<uint64_t>(n) * multiplier) >> 32);
    return (high + n) >> shift;
  }
};

/// The iteration space, dimension 0 innermost. The host divides larger ones: no kernel divides 64-bit numbers.
struct Space {
  uint32_t count = 0;
  int dims = 1;
  Divider sizes[kMaxDims];
};

/// How the vector path accesses an operand; chosen once per call.
enum class Access : uint8_t {
  kVector,   // groups of neighbours: the inner stride is 1; groups are aligned and do not cross rows
  kSplat,    // one element per group: the inner stride is 0
  kStrided,  // no vector access: the whole call is computed element by element
};

struct Operand {
  void* data = nullptr;  // null: absent and never read
  DType dtype = DType::kFloat32;
  Access access = Access::kStrided;
  uint8_t bytes = 0;               // per element
  int64_t strides[kMaxDims] = {};  // in elements, dimension 0 innermost; 0 for dimensions not in the space
};

template <int kInputs>
struct ElementwiseCall {
  Space space;
  bool vectors = true;  // true: the vector path supports every operand
  // The two groups of a float thread are neighbours (16-bit operands are then accessed in 16 bytes), or a warp apart
  // (the 32-bit operands of a warp are then contiguous).
  bool neighbours = false;
  uint32_t per_block = 0;  // elements
  Operand output;
  Operand inputs[kInputs > 0 ? kInputs : 1];
};

namespace elementwise {

inline constexpr int kThreads = 256;

/// A thread's share of a tile: kGroups groups of kWidth elements.
template <class F>
struct Shape {
  static constexpr int kWidth = static_cast<int>(16 / sizeof(F));
  static constexpr int kGroups = std::is_same_v<F, float> ? 2 : 1;
  static constexpr int kElements = kWidth * kGroups;
  static constexpr uint32_t kTile = kThreads * kElements;
};

template <class F, int kInputs>
constexpr int steps() {
  const int accesses = Shape<F>::kGroups * (kInputs > 0 ? kInputs : 1);
  return accesses <= 1 ? 4 : accesses <= 6 ? 2 : 1;
}

template <class F>
inline constexpr bool kMovesBits = std::is_unsigned_v<F>;

/// Calls f.template operator()<T>() with an operand's storage type; kernels that move bits do not use dtypes.
template <class F, class Function>
__device__ inline void with_storage([[maybe_unused]] DType dtype, const Function& f) {
  if constexpr (kMovesBits<F>) {
    f.template operator()<F>();
  } else {
    switch (dtype) {
      case DType::kFloat64:
        return f.template operator()<double>();
      case DType::kFloat32:
        return f.template operator()<float>();
      case DType::kBFloat16:
        return f.template operator()<BFloat16>();
      case DType::kFloat16:
        return f.template operator()<Float16>();
      case DType::kInt64:
        return f.template operator()<int64_t>();
      case DType::kInt32:
        return f.template operator()<int32_t>();
      case DType::kUInt8:
        return f.template operator()<uint8_t>();
      case DType::kBool:
        return f.template operator()<bool>();
    }
  }
}

/// An element's column and its row number, counted over all outer dimensions.
struct Place {
  uint32_t row, column;
};
__device__ inline Place place_of(const Space& space, uint32_t index) {
  if (space.dims == 1) return {0, index};
  const uint32_t row = space.sizes[0].quotient(index);
  return {row, index - row * space.sizes[0].divisor};
}
/// Offset of a row's first element.
__device__ inline int64_t row_offset(const Space& space, const Operand& operand, uint32_t row) {
  int64_t offset = 0;
  int d = 1;
#pragma unroll 1
  for (; d + 1 < space.dims; ++d) {
    const uint32_t next = space.sizes[d].quotient(row);
    offset += (row - next * space.sizes[d].divisor) * operand.strides[d];
    row = next;
  }
  return offset + row * operand.strides[d];
}
__device__ inline int64_t offset_of(const Space& space, const Operand& operand, uint32_t index) {
  const Place place = place_of(space, index);
  return place.column * operand.strides[0] + row_offset(space, operand, place.row);
}

/// out[j] = body(in[0][j], in[1][j]...). Doubles use one copy of the body in turn, because their functions are long and
/// call subroutines; values are shifted instead of indexed, so that they stay in registers.
template <class F, int kCount, int kSlots, class Body>
__device__ inline void evaluate(const Body& body, F (&in)[kSlots][kCount], F (&out)[kCount]) {
  constexpr bool kMove = std::is_same_v<F, double>;
#pragma unroll(kMove ? 1 : kCount)
  for (int j = 0; j < kCount; ++j) {
    F arguments[kSlots];
#pragma unroll
    for (int k = 0; k < kSlots; ++k) arguments[k] = body.reads(k) ? in[k][kMove ? 0 : j] : F(0);
    const F value = body(arguments);
    if constexpr (kMove) {
#pragma unroll
      for (int t = 0; t + 1 < kCount; ++t) {
#pragma unroll
        for (int k = 0; k < kSlots; ++k) in[k][t] = in[k][t + 1];
        out[t] = out[t + 1];
      }
    }
    out[kMove ? kCount - 1 : j] = value;
  }
}

// --- element by element: any dtypes and strides, ends that are no whole tile ---

inline constexpr int kBatch = 4;  // elements that a thread loads at a time, kThreads apart

template <class F>
__device__ inline void load_batch(const Operand& operand, const int64_t (&offsets)[kBatch], F (&values)[kBatch]) {
  with_storage<F>(operand.dtype, [&]<class T>() {
    const auto* data = static_cast<const Stored<T>*>(operand.data);
#pragma unroll
    for (int e = 0; e < kBatch; ++e) values[e] = convert<T, F>(load_vector<1>(data + offsets[e]).v[0]);
  });
}
template <class F>
__device__ inline void store_batch(const Operand& operand, const int64_t (&offsets)[kBatch], int count,
                                   const F (&values)[kBatch]) {
  with_storage<F>(operand.dtype, [&]<class T>() {
    auto* data = static_cast<Stored<T>*>(operand.data);
#pragma unroll
    for (int e = 0; e < kBatch; ++e)
      if (e < count) store_vector(data + offsets[e], Vector<Stored<T>, 1>{{convert<F, T>(values[e])}});
  });
}

/// Elements [begin, end).
template <class F, class Body>
__device__ inline void run_elements(const ElementwiseCall<Body::kInputs>& call, const Body& body, uint32_t begin,
                                    uint32_t end) {
  constexpr int kInputs = Body::kInputs, kSlots = kInputs > 0 ? kInputs : 1;
#pragma unroll 1
  for (uint32_t first = begin + threadIdx.x; first < end; first += kBatch * kThreads) {
    const uint32_t left = (end - first + kThreads - 1) / kThreads;
    const int count = left < kBatch ? static_cast<int>(left) : kBatch;
    F in[kSlots][kBatch] = {}, out[kBatch] = {};
    int64_t offsets[kBatch];
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      if (!body.reads(k)) continue;
        // Indices after the end read the first element.
#pragma unroll
      for (int e = 0; e < kBatch; ++e)
        offsets[e] = offset_of(call.space, call.inputs[k], e < count ? first + e * kThreads : first);
      load_batch(call.inputs[k], offsets, in[k]);
    }
    evaluate(body, in, out);
#pragma unroll
    for (int e = 0; e < kBatch; ++e)
      offsets[e] = offset_of(call.space, call.output, e < count ? first + e * kThreads : first);
    store_batch(call.output, offsets, count, out);
  }
}

// --- in vectors: whole tiles, every operand's access is kVector or kSplat ---

/// The elements of a thread in one step: the start indices of its groups in the space.
template <class F>
struct Share {
  using S = Shape<F>;
  uint32_t start[S::kGroups];

  __device__ Share(uint32_t tile, bool neighbours) {
    const uint32_t thread = threadIdx.x, lane = thread % kWarpSize;
    const uint32_t first = neighbours ? thread * S::kElements : (thread - lane) * S::kElements + lane * S::kWidth;
    const uint32_t apart = neighbours ? S::kWidth : S::kWidth * kWarpSize;
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g) start[g] = tile * S::kTile + first + g * apart;
  }
};

template <class F>
using Values = F[Shape<F>::kElements];
/// The words loaded by the vector accesses to one operand, before conversion.
template <class F>
struct Words {
  uint32_t v[Shape<F>::kGroups * 4];
};

template <class F>
__device__ inline int64_t group_offset(const Space& space, const Operand& operand, uint32_t start) {
  if (space.dims == 1) return operand.access == Access::kVector ? start : 0;
  const Place place = place_of(space, start);
  return (operand.access == Access::kVector ? place.column : 0) + row_offset(space, operand, place.row);
}

/// Calls f(first word, offset of its element) for each vector access of a thread: one word for a group of 1-byte
/// elements, one access for both groups of 16-bit elements (neighbours), one access of four words for any other group.
template <class F, class Function>
__device__ inline void for_each_access(const Space& space, const Operand& operand, const Share<F>& share,
                                       const Function& f) {
  const int64_t first = group_offset<F>(space, operand, share.start[0]);
  if constexpr (!std::is_same_v<F, float>) {
    f.template operator()<4>(0, first);
  } else {
    if (operand.bytes == 2) return f.template operator()<4>(0, first);
    const int64_t second = group_offset<F>(space, operand, share.start[1]);
    if (operand.bytes == 4) {
      f.template operator()<4>(0, first);
      f.template operator()<4>(4, second);
    } else {
      f.template operator()<1>(0, first);
      f.template operator()<1>(1, second);
    }
  }
}

template <class F>
__device__ inline void load_words(const Space& space, const Operand& operand, const Share<F>& share, Words<F>& words) {
  for_each_access<F>(space, operand, share, [&]<int kWords>(int first, int64_t offset) {
    const char* address = static_cast<const char*>(operand.data) + offset * operand.bytes;
    const auto access = load_vector<kWords>(reinterpret_cast<const uint32_t*>(address));
#pragma unroll
    for (int i = 0; i < kWords; ++i) words.v[first + i] = access.v[i];
  });
}
template <class F>
__device__ inline void store_words(const Space& space, const Operand& operand, const Share<F>& share,
                                   const Words<F>& words) {
  for_each_access<F>(space, operand, share, [&]<int kWords>(int first, int64_t offset) {
    char* address = static_cast<char*>(operand.data) + offset * operand.bytes;
    Vector<uint32_t, kWords> access;
#pragma unroll
    for (int i = 0; i < kWords; ++i) access.v[i] = words.v[first + i];
    store_vector(reinterpret_cast<uint32_t*>(address), access);
  });
}

/// True for the dtypes that the vector path can convert.
template <class F>
constexpr bool converts_words(DType dtype) {
  if constexpr (kMovesBits<F>)
    return true;
  else if constexpr (std::is_same_v<F, float>)
    return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16 || dtype == DType::kBool;
  else
    return dtype == dtype_of<F>();
}

template <class F>
__device__ inline void from_words([[maybe_unused]] DType dtype, const Words<F>& words, Values<F>& values) {
  if constexpr (!std::is_same_v<F, float>) {
    static_assert(sizeof(words) == sizeof(values));
    std::memcpy(values, words.v, sizeof(values));
  } else {
    constexpr int n = Shape<float>::kElements;
    if (dtype == DType::kFloat32) {
#pragma unroll
      for (int j = 0; j < n; ++j) values[j] = std::bit_cast<float>(words.v[j]);
    } else if (dtype == DType::kBFloat16) {
#pragma unroll
      for (int j = 0; j < n; ++j) values[j] = std::bit_cast<float>(words.v[j / 2] >> (j % 2 * 16) << 16);
    } else if (dtype == DType::kFloat16) {
#pragma unroll
      for (int j = 0; j < n; ++j) {
        Float16 half;
        half.bits = static_cast<uint16_t>(words.v[j / 2] >> (j % 2 * 16));
        values[j] = to_compute(half);
      }
    } else {
#pragma unroll
      for (int j = 0; j < n; ++j) values[j] = (words.v[j / 4] >> (j % 4 * 8) & 0xffu) != 0 ? 1.0f : 0.0f;
    }
  }
}

template <class F>
__device__ inline Words<F> to_words([[maybe_unused]] DType dtype, const Values<F>& values) {
  Words<F> words = {};
  if constexpr (!std::is_same_v<F, float>) {
    std::memcpy(words.v, values, sizeof(values));
  } else {
    constexpr int n = Shape<float>::kElements;
    if (dtype == DType::kFloat32) {
#pragma unroll
      for (int j = 0; j < n; ++j) words.v[j] = std::bit_cast<uint32_t>(values[j]);
    } else if (dtype == DType::kBFloat16) {
#pragma unroll
      for (int j = 0; j < n / 2; ++j) words.v[j] = pack2<BFloat16>(values[2 * j], values[2 * j + 1]);
    } else if (dtype == DType::kFloat16) {
#pragma unroll
      for (int j = 0; j < n / 2; ++j) words.v[j] = pack2<Float16>(values[2 * j], values[2 * j + 1]);
    } else {
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const bool set = values[j] != 0;  // named: UBSan of g++ 12.2 shifts a condition with a subscript in it wrongly
        words.v[j / 4] |= static_cast<uint32_t>(set) << (j % 4 * 8);
      }
    }
  }
  return words;
}

/// Loads one element into the first of the words.
template <class F>
__device__ inline void load_first(const Operand& operand, int64_t offset, Words<F>& words) {
  const char* address = static_cast<const char*>(operand.data) + offset * operand.bytes;
  if constexpr (!std::is_same_v<F, float>) {
    std::memcpy(words.v, load_vector<1>(reinterpret_cast<const F*>(address)).v, sizeof(F));
  } else {
    if (operand.bytes == 4) words.v[0] = load_vector<1>(reinterpret_cast<const uint32_t*>(address)).v[0];
    if (operand.bytes == 2) words.v[0] = load_vector<1>(reinterpret_cast<const uint16_t*>(address)).v[0];
    if (operand.bytes == 1) words.v[0] = load_vector<1>(reinterpret_cast<const uint8_t*>(address)).v[0];
  }
}

/// An operand's values for a thread. `words` already holds them if the access is a vector access.
template <class F>
__device__ inline void fetch(const Space& space, const Operand& operand, const Share<F>& share, const Words<F>& words,
                             Values<F>& values) {
  if (operand.access == Access::kVector) return from_words<F>(operand.dtype, words, values);
  using S = Shape<F>;
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
    Words<F> one = {};
    load_first<F>(operand, group_offset<F>(space, operand, share.start[g]), one);
    Values<F> splat;
    from_words<F>(operand.dtype, one, splat);
#pragma unroll
    for (int i = 0; i < S::kWidth; ++i) values[g * S::kWidth + i] = splat[0];
  }
}

/// Computes kSteps tiles from first_tile on. All loads are issued before the first value is used.
template <class F, class Body>
__device__ inline void run_vectors(const ElementwiseCall<Body::kInputs>& call, const Body& body, uint32_t first_tile) {
  constexpr int kInputs = Body::kInputs, kSlots = kInputs > 0 ? kInputs : 1, kSteps = steps<F, kInputs>();
  Words<F> words[kSteps][kSlots] = {};
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const Share<F> share(first_tile + s, call.neighbours);
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      if (body.reads(k) && call.inputs[k].access == Access::kVector)
        load_words<F>(call.space, call.inputs[k], share, words[s][k]);
  }
#pragma unroll 1
  for (int s = 0; s < kSteps; ++s) {
    const Share<F> share(first_tile + s, call.neighbours);
    Values<F> in[kSlots] = {}, out = {};
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      if (body.reads(k)) fetch<F>(call.space, call.inputs[k], share, words[0][k], in[k]);
    evaluate(body, in, out);
    store_words<F>(call.space, call.output, share, to_words<F>(call.output.dtype, out));
    // The next step's words move to the front, so that all steps use one copy of the body.
#pragma unroll
    for (int t = 0; t + 1 < kSteps; ++t)
#pragma unroll
      for (int k = 0; k < kInputs; ++k) words[t][k] = words[t + 1][k];
  }
}

/// Minimum number of blocks per multiprocessor. With four, ptxas spills registers of bodies with `kInDouble` (of float)
/// and, except on sm_90, of those with `kManyRegisters`.
template <class F, class Body>
constexpr int blocks() {
  if (!std::is_same_v<F, float>) return 2;
  if constexpr (requires { requires Body::kInDouble; }) return 2;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
  if constexpr (requires { requires Body::kManyRegisters; }) return 3;
#endif
  return 4;
}

/// Whether there is a vector path. It would be a quarter of the work of compiling; without it 32 lanes still
/// access neighbours. Double does not need it, and rarely used bodies have `kOneByOne`.
template <class F, class Body>
inline constexpr bool kInVectors = !std::is_same_v<F, double> && !requires {
  requires Body::kOneByOne;
};

/// output = body(inputs) element by element. Body has `kInputs`, `reads(k)` (whether it reads input k) and
/// `F operator()(const F* inputs)`.
template <class F, class Body>
__global__ void __launch_bounds__(kThreads, blocks<F, Body>())
    elementwise_kernel(TERN_GRID_CONSTANT(ElementwiseCall<Body::kInputs>) call, const Body body) {
  const uint32_t begin = blockIdx.x * call.per_block, left = call.space.count - begin;
  if constexpr (kInVectors<F, Body>)
    if (call.vectors && left >= call.per_block)
      return run_vectors<F>(call, body, blockIdx.x * steps<F, Body::kInputs>());
  run_elements<F>(call, body, begin, begin + (left < call.per_block ? left : call.per_block));
}

}  // namespace elementwise
}  // namespace tern::kernels::cuda
