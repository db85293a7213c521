// A chain of layers on a GPU: each of its kernels goes through memory in any case, so they run in turn.

#include "tern/kernels/row_chain.h"

#include "tern/kernels/row_chain_segments.h"

namespace tern::kernels::cuda {
namespace {

constexpr StepKernels kKernels = {linear_workspace, linear_forward, attention_forward_workspace, attention_forward,
                                  layer_norm_forward};

size_t one_step(const ConstView&, std::span<const RowStep>) { return 1; }

}  // namespace

int64_t row_chain_workspace(Stream stream, ConstView x, std::span<const RowStep> steps) {
  return ChainSegments(x, steps, one_step).workspace(x, [&](auto segment, const ConstView& rows, const View& result) {
    return step_workspace(kKernels, stream, segment[0], rows, result);
  });
}

void row_chain(Stream stream, ConstView x, std::span<const RowStep> steps, View out, void* workspace) {
  ChainSegments(x, steps, one_step)
      .run(x, out, workspace, [&](auto segment, const ConstView& rows, const View& result, void* memory) {
        run_step(kKernels, stream, segment[0], rows, result, memory);
      });
}

// cuBLASLt reads weights as they are.
int64_t linear_packing(Stream, DType, int64_t, int64_t, int64_t) { return 0; }
int64_t linear_packed_bytes(Stream, DType, int64_t, int64_t, int64_t) { return 0; }
void linear_pack(Stream, int64_t, ConstView, void*) {}

}  // namespace tern::kernels::cuda
