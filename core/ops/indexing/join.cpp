#include "tern/core/ops/indexing/join.h"

#include <algorithm>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/image/images.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/profiler/profiler.h"
#include "tern/core/tensor/size_checks.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/copy.h"

namespace tern {
namespace {

/// Concatenates tensors of one dtype along a dimension: a node with any number of inputs.
class Concatenation final : public detail::Node {
 public:
  Concatenation(int dim, std::vector<int64_t> sizes) : dim_(dim), sizes_(std::move(sizes)) {
    detail::end_construction();
  }
  const char* name() const override { return "cat"; }
  bool twice_differentiable() const override { return true; }
  Grads run(const Grads& output_grads) override { return output_grads[0].split(sizes_, dim_); }

 private:
  int dim_;
  std::vector<int64_t> sizes_;
};

Tensor concatenate(const std::vector<Tensor>& tensors, int dim) {
  constexpr const char* kName = "cat";
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, kName, [](const auto&... all) { return concatenate(all...); }, tensors, dim);
  std::vector<const Tensor*> inputs;
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (const Tensor& x : tensors) {
    inputs.push_back(&x);
    sizes.push_back(x.size(dim));
    total = detail::checked_sum(kName, total, x.size(dim));
  }
  const int count = static_cast<int>(inputs.size());
  detail::check_one_device(kName, inputs.data(), count);
  const ProfileRange range(kName, RangeKind::kOp);
  AllocationTag tag(kName);
  const bool record = detail::should_record(inputs.data(), count);
  const Shape shape = tensors[0].shape().with(dim, total);
  // In memory like the first tensor; the copies then follow the order of memory.
  const bool last = detail::has_channels_last(tensors[0]);
  const Tensor y = last ? detail::empty_channels_last(shape, tensors[0].options()) : empty(shape, tensors[0].options());
  const auto in_order = [&](const Tensor& t) { return last ? detail::channels_moved_last(t.view()) : t.view(); };
  int64_t begin = 0;
  for (const Tensor& x : tensors) {
    if (record) detail::check_input(kName, x);
    kernels::copy(current_stream(y.device()), in_order(x), in_order(y.slice(dim, begin, begin + x.size(dim))));
    begin += x.size(dim);
  }
  if (range.recording()) range.count_tensors(inputs.data(), count, &y, 1);
  if (anomaly_mode() != Anomaly::kOff) detail::check_anomaly_forward(kName, inputs.data(), count, y);
  if (record && is_floating(y.dtype())) {
    auto node = std::make_shared<Concatenation>(dim, std::move(sizes));
    node->add_inputs(inputs.data(), count, true);
    detail::set_history(y, node, 0);
  }
  return y;
}

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int dim) {
  TERN_CHECK(!tensors.empty(), "cat: expected at least one tensor");
  const auto is_nothing = [](const Tensor& x) { return x.dim() == 1 && x.numel() == 0; };
  const auto first = std::find_if_not(tensors.begin(), tensors.end(), is_nothing);
  const Shape& shape = (first == tensors.end() ? tensors.front() : *first).shape();
  const int i = shape.wrap(dim);
  DType dtype = tensors[0].dtype();
  for (const Tensor& x : tensors) {
    TERN_CHECK(is_nothing(x) || (x.dim() == shape.dims() && x.shape().with(i, 0) == shape.with(i, 0)), "cat: ", shape,
               " and ", x.shape(), " differ outside dimension ", dim);
    dtype = promote(dtype, x.dtype());
  }
  std::vector<Tensor> converted;
  for (const Tensor& x : tensors) converted.push_back((is_nothing(x) ? x.reshape(shape.with(i, 0)) : x).to(dtype));
  return converted.size() == 1 ? converted[0] : concatenate(converted, i);
}

Tensor stack(const std::vector<Tensor>& tensors, int dim) {
  TERN_CHECK(!tensors.empty(), "stack: expected at least one tensor");
  const int max_dim = tensors[0].dim(), i = dim < 0 ? dim + max_dim + 1 : dim;
  TERN_CHECK(i >= 0 && i <= max_dim, "stack: dimension ", dim, " is outside [", -max_dim - 1, ", ", max_dim, "]");
  std::vector<Tensor> rows;
  for (const Tensor& x : tensors) {
    TERN_CHECK(x.shape() == tensors[0].shape(), "stack: shapes ", tensors[0].shape(), " and ", x.shape(), " differ");
    rows.push_back(x.unsqueeze(i));
  }
  return cat(rows, i);
}

Tensor hstack(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> all;
  for (const Tensor& x : tensors) all.push_back(x.dim() == 0 ? x.reshape({1}) : x);
  return cat(all, !all.empty() && all[0].dim() > 1 ? 1 : 0);
}

Tensor vstack(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> all;
  for (const Tensor& x : tensors) all.push_back(x.dim() < 2 ? x.reshape({1, x.numel()}) : x);
  return cat(all, 0);
}

Tensor dstack(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> all;
  for (const Tensor& x : tensors)
    all.push_back(x.dim() < 2 ? x.reshape({1, x.numel(), 1}) : x.dim() == 2 ? x.unsqueeze(2) : x);
  return cat(all, 2);
}

Tensor column_stack(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> all;
  for (const Tensor& x : tensors) all.push_back(x.dim() < 2 ? x.reshape({x.numel(), 1}) : x);
  return cat(all, 1);
}

Tensor block_diag(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> blocks;
  int64_t cols = 0;
  for (const Tensor& x : tensors) {
    TERN_CHECK(x.dim() <= 2, "block_diag: expected matrices, got ", x.shape());
    blocks.push_back(x.dim() == 2 ? x : x.reshape({1, x.numel()}));
    cols = detail::checked_sum("block_diag", cols, blocks.back().size(1));
  }
  int64_t before = 0;
  for (Tensor& block : blocks) {
    const int64_t width = block.size(1);
    block = pad(block, {before, cols - before - width});
    before += width;
  }
  return cat(blocks, 0);
}

}  // namespace tern
