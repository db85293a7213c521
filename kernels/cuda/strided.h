#pragma once
// Element-wise kernels over operands of any dtype and strides: copies, fills and all of pointwise.h are bodies of the
// one kernel in strided_kernel.h, which run() launches.

#include <algorithm>

#include "tern/kernels/cuda/strided_kernel.h"
#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/layout.h"

namespace tern::kernels::cuda::elementwise {

/// Number of elements in one vector access.
template <class F>
int64_t access_elements(DType dtype) {
  return std::is_same_v<F, float> && size_of(dtype) == 2 ? Shape<F>::kElements : Shape<F>::kWidth;
}

template <class F, int kOperands>
Access choose_access(const Layout<kOperands>& layout, int k, const void* data, DType dtype) {
  if (!converts_words<F>(dtype)) return Access::kStrided;
  const int64_t stride = layout.inner_stride(k), elements = access_elements<F>(dtype);
  if (stride == 0 && k > 0) return Access::kSplat;  // the output's access ensures that no group crosses a row
  bool whole = reinterpret_cast<uintptr_t>(data) % (elements * size_of(dtype)) == 0;
  whole &= stride == 1 && (layout.dims == 1 || layout.inner() % elements == 0);
  for (int d = 0; d + 1 < layout.dims; ++d) whole &= layout.strides[k][d] % elements == 0;
  return whole ? Access::kVector : Access::kStrided;
}

template <int kOperands>
Space make_space(const Layout<kOperands>& layout) {
  Space space;
  space.count = static_cast<uint32_t>(layout.numel());
  space.dims = layout.dims;
  for (int d = 0; d < layout.dims; ++d)
    space.sizes[d] = Divider(static_cast<uint32_t>(layout.shape[layout.dims - 1 - d]));
  return space;
}

/// Operand k of a layout; `data` null: absent.
template <class F, int kOperands>
Operand make_operand(const Layout<kOperands>& layout, int k, const void* data, DType dtype) {
  Operand operand;
  operand.data = const_cast<void*>(data);
  operand.dtype = dtype;
  operand.bytes = static_cast<uint8_t>(size_of(dtype));
  operand.access = choose_access<F>(layout, k, data, dtype);
  for (int d = 0; d < layout.dims; ++d) operand.strides[d] = layout.strides[k][layout.dims - 1 - d];
  return operand;
}

/// Indices [start, start + size) of a view's dimension `dim`.
template <class Void>
BasicView<Void> slice(BasicView<Void> view, int dim, int64_t start, int64_t size) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  if (view) view.data = static_cast<Byte*>(view.data) + start * view.strides[dim] * size_of(view.dtype);
  view.shape[dim] = size;
  return view;
}

inline constexpr int64_t kLargestCount = std::numeric_limits<int32_t>::max();

/// Launches the kernel of the body at address `body` with this many blocks.
template <int kInputs>
using StartElementwise = void (*)(Stream stream, const void* body, const ElementwiseCall<kInputs>& call,
                                  unsigned blocks);

/// What run() needs to know of a body.
template <int kInputs>
struct BodyCall {
  const void* body;
  StartElementwise<kInputs> start;
  unsigned reads;   // bit k: it reads input k
  bool in_vectors;  // it has a vector path
};

/// The part of run() that does not depend on the body.
template <class F, int kInputs>
void run_parts(Stream stream, const ConstView* inputs, View output, const BodyCall<kInputs>& body, int64_t largest) {
  const int64_t count = output.numel();
  if (count == 0) return;
  if (count > largest) {
    const int dim = static_cast<int>(std::max_element(output.shape, output.shape + output.dims) - output.shape);
    const int64_t size = output.shape[dim], half = size / 2 > 64 ? size / 2 / 64 * 64 : size / 2;  // keeps alignment
    for (const auto& [begin, length] : {std::pair(int64_t{0}, half), std::pair(half, size - half)}) {
      ConstView parts[kInputs > 0 ? kInputs : 1];
      for (int k = 0; k < kInputs; ++k) parts[k] = slice(inputs[k], dim, begin, length);
      run_parts<F, kInputs>(stream, parts, slice(output, dim, begin, length), body, largest);
    }
    return;
  }
  const auto is_read = [&](int k) { return (body.reads >> k & 1) != 0; };
  const int64_t zeros[kMaxDims] = {};
  const int64_t* strides[kInputs + 1];
  // The output comes first, because its strides determine the order of the dimensions.
  strides[0] = output.strides;
  for (int k = 0; k < kInputs; ++k) strides[k + 1] = is_read(k) ? inputs[k].strides : zeros;
  const auto layout = make_layout(output.dims, output.shape, strides);

  ElementwiseCall<kInputs> call;
  call.space = make_space(layout);
  call.vectors = body.in_vectors;
  const auto describe = [&](int k, const void* data, DType dtype) {
    const Operand operand = make_operand<F>(layout, k, data, dtype);
    call.vectors &= operand.access != Access::kStrided;
    call.neighbours |= operand.access == Access::kVector && size_of(dtype) == 2;
    return operand;
  };
  call.output = describe(0, output.data, output.dtype);
  for (int k = 0; k < kInputs; ++k)
    if (is_read(k)) call.inputs[k] = describe(k + 1, inputs[k].data, inputs[k].dtype);
  call.per_block = call.vectors ? Shape<F>::kTile * steps<F, kInputs>() : uint32_t{kBatch * kThreads};
  body.start(stream, body.body, call, static_cast<unsigned>((count + call.per_block - 1) / call.per_block));
}

template <class Body>
unsigned reads_of(const Body& body) {
  unsigned reads = 0;
  for (int k = 0; k < Body::kInputs; ++k) reads |= body.reads(k) ? 1u << k : 0u;
  return reads;
}

template <class F, class Body>
void run_body(Stream stream, const ConstView* inputs, View output, const Body& body, int64_t largest) {
  constexpr int kInputs = Body::kInputs;
  const StartElementwise<kInputs> start = [](Stream on, const void* any, const ElementwiseCall<kInputs>& call,
                                             unsigned blocks) {
    launch(elementwise_kernel<F, Body>, dim3(blocks), dim3(kThreads), 0, on, call, *static_cast<const Body*>(any));
  };
  const BodyCall<kInputs> described = {&body, start, reads_of(body), kInVectors<F, Body>};
  run_parts<F, kInputs>(stream, inputs, output, described, largest);
}

#ifdef TERN_SIMT
/// Any body of kCount inputs, called through a pointer. The emulated build thus has one kernel for the hundreds of
/// bodies, each of which would take g++ with a sanitizer a third of a second.
template <class F, int kCount, bool kVectors>
struct AnyBody {
  static constexpr int kInputs = kCount;
  static constexpr bool kOneByOne = !kVectors;
  alignas(16) unsigned char bytes[64] = {};
  F (*call)(const unsigned char* bytes, const F* in) = nullptr;
  unsigned read = 0;  // bit k: reads input k

  template <class Body>
  explicit AnyBody(const Body& body) {
    static_assert(Body::kInputs == kInputs && sizeof(Body) <= sizeof(bytes) && alignof(Body) <= 16);
    std::memcpy(bytes, &body, sizeof(Body));
    call = [](const unsigned char* body_bytes, const F* in) {
      return (*reinterpret_cast<const Body*>(body_bytes))(in);
    };
    read = reads_of(body);
  }
  bool reads(int k) const { return (read >> k & 1) != 0; }
  F operator()(const F* in) const { return call(bytes, in); }
};
#endif

/// output = body(inputs) over output's shape; inputs[k] has its shape, or is absent if the body does not read it. More
/// than `largest` elements take several launches.
template <class F, class Body>
void run(Stream stream, const ConstView* inputs, View output, const Body& body, int64_t largest = kLargestCount) {
#ifdef TERN_SIMT
  run_body<F>(stream, inputs, output, AnyBody<F, Body::kInputs, kInVectors<F, Body>>(body), largest);
#else
  run_body<F>(stream, inputs, output, body, largest);
#endif
}

}  // namespace tern::kernels::cuda::elementwise
