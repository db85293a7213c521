#include "tern/core/ops/recurrent/sequence.h"

#include <algorithm>

#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/matmul/linear_inputs.h"
#include "tern/core/ops/recurrent/layout.h"
#include "tern/core/ops/workspace.h"
#include "tern/kernels/recurrent/sequence.h"

namespace tern::detail {
namespace {

/// Rows and states as the library takes them, and back.
class SequenceOrder {
 public:
  SequenceOrder(const RecurrentLayout& layout, bool reverse) : layout_(layout), rows_(layout.rows_kind(reverse)) {
    if (rows_.gathered) by_step_ = layout.by_step(reverse);
  }
  kernels::SequenceRows kind() const { return rows_.kind; }
  Tensor rows_to(const Tensor& x) const { return moved(x, by_step_.rows); }
  Tensor rows_from(const Tensor& x) const { return moved(x, by_step_.places); }
  Tensor states_to(const Tensor& x) const { return rows_.sorted ? moved(x, layout_.order()) : x; }
  Tensor states_from(const Tensor& x) const { return rows_.sorted ? moved(x, layout_.places()) : x; }

 private:
  static Tensor moved(const Tensor& x, const Tensor& index) {
    return x.defined() && index.defined() ? index_select(x, 0, index) : x;
  }
  const RecurrentLayout& layout_;
  RecurrentLayout::RowsKind rows_;
  RecurrentLayout::ByStep by_step_;
};

kernels::RecurrentSequence describe_sequence(RecurrentKind kind, const RecurrentLayout& layout,
                                             const SequenceOrder& order, const SequenceInputs& in) {
  kernels::RecurrentSequence s;
  s.kind = kind;
  s.rows = order.kind();
  s.lengths = layout.sorted_lengths().data();
  s.batch = layout.batch();
  s.x = in.x.view();
  s.input = in.input.view();
  s.state = in.state.view();
  s.input_bias = in.input_bias.view();
  s.state_bias = in.state_bias.view();
  s.projection = in.projection.view();
  s.initial = in.initial.view();
  s.initial_cell = in.initial_cell.view();
  return s;
}

/// In the library's order.
SequenceInputs in_library_order(const SequenceInputs& in, const SequenceOrder& order) {
  SequenceInputs result = in;
  result.x = order.rows_to(in.x);
  result.initial = order.states_to(in.initial);
  result.initial_cell = order.states_to(in.initial_cell);
  return result;
}

/// A gradient that begins at a multiple of 16 bytes, as libraries take it.
Tensor aligned_gradient(const Tensor& x) {
  return x.defined() && reinterpret_cast<uintptr_t>(x.view().data) % 16 != 0 ? x.clone() : x;
}

/// At least one: null tells the kernel that there is no training.
int64_t kept_bytes(const kernels::RecurrentSequenceSizes& sizes) { return std::max<int64_t>(sizes.kept, 1); }

void count_sequence(const SequenceInputs& in) {
  const int64_t rows = in.x.size(0), width = in.input.size(0);
  count_product(rows, width, in.x.size(1), in.x.dtype());
  count_product(rows, width, in.state.size(1), in.x.dtype());
}

}  // namespace

std::optional<SequenceResults> sequence_forward(RecurrentKind kind, const RecurrentLayout& layout, bool reverse,
                                                const SequenceInputs& in, bool training) {
  const TensorOptions options = in.x.options();
  if (options.device.is_cpu() || layout.batch() == 0 || options.dtype == float64) return std::nullopt;
  const kernels::Stream stream = current_stream(options.device);
  const SequenceOrder order(layout, reverse);
  // Before rows are moved: where the answer is no, nothing has been done.
  kernels::RecurrentSequence s = describe_sequence(kind, layout, order, in);
  const kernels::RecurrentSequenceSizes sizes = kernels::recurrent_sequence_sizes(stream, s, training);
  if (!sizes.taken) return std::nullopt;
  const SequenceInputs moved = in_library_order(in, order);
  s = describe_sequence(kind, layout, order, moved);
  const int64_t state = in.state.size(1);
  SequenceResults results{empty({layout.rows(), state}, options), empty({layout.batch(), state}, options), {}, {}};
  if (kind == RecurrentKind::kLstm) results.last_cell = empty({layout.batch(), s.hidden()}, options);
  if (training) results.kept = empty({kept_bytes(sizes)}, {.dtype = uint8, .device = options.device});
  {
    const Workspace workspace(options.device, [&] { return sizes.forward; });
    if (!kernels::recurrent_sequence_forward(stream, s, results.output.view(), results.last.view(),
                                             results.last_cell.view(), results.kept.view().data, workspace.data()))
      return std::nullopt;
  }
  count_sequence(in);
  results.output = order.rows_from(results.output);
  results.last = order.states_from(results.last);
  results.last_cell = order.states_from(results.last_cell);
  return results;
}

SequenceInputs sequence_backward(RecurrentKind kind, const RecurrentLayout& layout, bool reverse,
                                 const SequenceInputs& in, const Tensor& output, const Tensor& kept,
                                 const SequenceGradients& gradients, const SequenceInputs& wanted) {
  const TensorOptions options = in.x.options();
  const kernels::Stream stream = current_stream(options.device);
  const SequenceOrder order(layout, reverse);
  const SequenceInputs moved = in_library_order(in, order);
  const kernels::RecurrentSequence s = describe_sequence(kind, layout, order, moved);
  const Tensor y = order.rows_to(output), dy = aligned_gradient(order.rows_to(gradients.output));
  const Tensor dlast = aligned_gradient(order.states_to(gradients.last));
  const Tensor dlast_cell = aligned_gradient(order.states_to(gradients.last_cell));
  const auto fresh = [&](const Tensor& like) { return like.defined() ? empty(like.shape(), options) : like; };
  SequenceInputs found = wanted;
  found.x = fresh(wanted.x);
  found.initial = fresh(wanted.initial);
  found.initial_cell = fresh(wanted.initial_cell);
  kernels::RecurrentSequenceGradients g;
  g.output = dy.view();
  g.last = dlast.view();
  g.last_cell = dlast_cell.view();
  g.x = found.x.view();
  g.initial = found.initial.view();
  g.initial_cell = found.initial_cell.view();
  g.input = found.input.view();
  g.state = found.state.view();
  g.input_bias = found.input_bias.view();
  g.state_bias = found.state_bias.view();
  g.projection = found.projection.view();
  {
    const kernels::RecurrentSequenceSizes sizes = kernels::recurrent_sequence_sizes(stream, s, true);
    TERN_CHECK(sizes.taken && kept_bytes(sizes) == kept.numel(),
               "recurrent: the settings of CUDA have changed between a forward pass and its backward pass");
    const Workspace workspace(options.device, [&] { return sizes.backward; });
    kernels::recurrent_sequence_backward(stream, s, y.view(), g, kept.view().data, workspace.data());
  }
  for (int pass = 0; pass < 2; ++pass) count_sequence(in);  // of the inputs and states, and of the weights
  found.x = order.rows_from(found.x);
  found.initial = order.states_from(found.initial);
  found.initial_cell = order.states_from(found.initial_cell);
  return found;
}

}  // namespace tern::detail
