#include "tern/core/ops/indexing/index_call.h"

#include <algorithm>

#include "tern/core/autograd/function.h"
#include "tern/core/memory/index_check.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/indexing/nonzero.h"
#include "tern/core/ops/indexing/scatter.h"
#include "tern/core/ops/indexing/scatter_call.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/sort/sort.h"
#include "tern/kernels/embedding.h"

namespace tern {
namespace {

using kernels::ScatterMode;

/// The tensors of an index, and which dimensions of a view they index.
struct IndexTensors {
  const char* op;
  std::vector<Tensor> indices;
  std::vector<int> dims;

  const Shape& shape() const { return indices[0].shape(); }
  bool adjacent() const { return dims.back() - dims.front() + 1 == static_cast<int>(dims.size()); }
  /// Where the dimensions of the tensors are in the result.
  int place() const { return adjacent() ? dims[0] : 0; }
  bool has(int dim) const { return std::count(dims.begin(), dims.end(), dim) > 0; }
};

Shape indexed_shape(const Shape& x, const IndexTensors& by) {
  std::vector<int64_t> sizes;
  for (int d = 0; d < x.dims(); ++d)
    if (!by.has(d)) sizes.push_back(x[d]);
  sizes.insert(sizes.begin() + by.place(), by.shape().begin(), by.shape().end());
  return Shape(sizes);
}

/// x with one dimension of stride 1 in place of those that are indexed: its index is an element's offset.
Tensor offset_view(const Tensor& x, const IndexTensors& by) {
  std::vector<int64_t> sizes;
  Strides strides{};
  int64_t span = 1;
  bool empty_dim = false;
  for (int d = 0; d < x.dim(); ++d)
    if (by.has(d)) {
      span += (x.size(d) - 1) * x.strides()[d];
      empty_dim = empty_dim || x.size(d) == 0;
    } else {
      strides[sizes.size()] = x.strides()[d];
      sizes.push_back(x.size(d));
    }
  const auto place = static_cast<size_t>(by.place());
  std::copy_backward(strides.begin() + place, strides.begin() + sizes.size(), strides.begin() + sizes.size() + 1);
  strides[place] = 1;
  sizes.insert(sizes.begin() + by.place(), empty_dim ? 0 : span);
  return from_storage(x.storage(), x.storage_offset(), Shape(sizes), strides, x.dtype());
}

/// The offset of the element that the tensors name in a tensor like x with these strides, for each of theirs: int64
/// [n].
Tensor offsets_in(const Tensor& x, const Strides& strides, const IndexTensors& by) {
  const Tensor offsets = empty({by.shape().numel()}, {DType::kInt64, x.device()});
  for (size_t i = 0; i < by.indices.size(); ++i) {
    const int64_t size = x.size(by.dims[i]);
    IndexCheck check(by.op, x.device());
    kernels::add_offsets(current_stream(x.device()), by.indices[i].view(), size, strides[by.dims[i]], i == 0,
                         offsets.view(), check.data());
    TERN_CHECK(check.passed(), by.op, ": ",
               detail::describe_fault(check.found(), by.indices[i].reshape({-1}), 0, -size, size), " of dimension ",
               by.dims[i], " of ", x.shape());
  }
  return offsets;
}

/// A tensor over all elements that x's view has, with offsets along dimension by.place().
Tensor spread_offsets(const Tensor& offsets, const Shape& view, int place) {
  std::vector<int64_t> column(static_cast<size_t>(view.dims()), 1);
  column[static_cast<size_t>(place)] = offsets.numel();
  return offsets.reshape(column).expand(view.with(place, offsets.numel()));
}

Tensor read_tensors(const Tensor& x, const IndexTensors& by) {
  const Tensor view = offset_view(x, by),
               index = spread_offsets(offsets_in(x, x.strides(), by), view.shape(), by.place());
  const Tensor y = empty(indexed_shape(x.shape(), by), x.options());
  kernels::gather(current_stream(x.device()), view.view(), by.place(), index.view(), y.reshape(index.shape()).view(),
                  nullptr);
  return y;
}

/// Writes values, of the shape that read_tensors() gives, to x.
void write_tensors(const Tensor& x, const IndexTensors& by, ScatterMode mode, const Tensor& values) {
  const Tensor view = offset_view(x, by),
               index = spread_offsets(offsets_in(x, x.strides(), by), view.shape(), by.place());
  detail::scatter_into(view, mode, by.place(), index, values.reshape(index.shape()), nullptr);
}

/// The tensors as an op keeps them.
class SavedIndex {
 public:
  SavedIndex& operator=(const IndexTensors& by) {
    for (size_t i = 0; i < by.indices.size(); ++i) indices_[i] = by.indices[i];
    dims_ = by.dims;
    return *this;
  }
  IndexTensors get(const char* op) const {
    IndexTensors by{op, {}, dims_};
    for (size_t i = 0; i < dims_.size(); ++i) by.indices.push_back(indices_[i].get());
    return by;
  }

 private:
  Saved indices_[kMaxDims];
  std::vector<int> dims_;
};

/// The gradient of reading: adds dy to a tensor of zeros.
struct IndexGradient final : TwiceDifferentiable<IndexGradient> {
  static constexpr const char* kName = "index_gradient";
  SavedIndex by_;
  Tensor forward(const Tensor& dy, const Shape& shape, const IndexTensors& by);
  Grads backward(const Tensor& g) override;
};

struct IndexByTensors final : TwiceDifferentiable<IndexByTensors> {
  static constexpr const char* kName = "index";
  SavedIndex by_;
  Shape shape_;
  Tensor forward(const Tensor& x, const IndexTensors& by) {
    by_ = by;
    shape_ = x.shape();
    return read_tensors(x, by);
  }
  Grads backward(const Tensor& dy) override { return {IndexGradient::apply(dy, shape_, by_.get(kName))}; }
};

Tensor IndexGradient::forward(const Tensor& dy, const Shape& shape, const IndexTensors& by) {
  by_ = by;
  const Tensor dx = zeros(shape, dy.options());
  write_tensors(dx, by, ScatterMode::kAdd, dy);
  return dx;
}
Grads IndexGradient::backward(const Tensor& g) { return {IndexByTensors::apply(g, by_.get(kName))}; }

/// What numbers, slices and new dimensions make of x: a view.
Tensor basic_view(const Tensor& x, const std::vector<detail::IndexCall::Step>& steps) {
  using Step = detail::IndexCall::Step;
  Tensor view = x;
  for (const Step& step : steps) {
    if (step.kind == Step::kSelect) view = view.select(step.dim, step.range.begin);
    if (step.kind == Step::kSlice) view = view.slice(step.dim, step.range.begin, step.range.end, step.range.step);
    if (step.kind == Step::kNewAxis) view = view.unsqueeze(step.dim);
  }
  return view;
}

/// True for each element of the tensors that is the last of those that name the same element of x.
Tensor is_last(const Tensor& x, const IndexTensors& by) {
  const NoGrad off;
  // x may be expanded: elements are told apart by the offsets that they would have in a copy.
  const Tensor offsets = offsets_in(x, contiguous_strides(x.shape()), by);
  const int64_t n = offsets.numel();
  if (n == 0) return empty(by.shape(), {DType::kBool, x.device()});
  const SortResult sorted = sort(offsets, 0);  // stable
  const Tensor differs = ne(sorted.values.slice(0, 1), sorted.values.slice(0, 0, n - 1));
  const Tensor last = cat({differs, ones({1}, differs.options())});
  return scatter(empty_like(last), 0, sorted.indices, last).reshape(by.shape());
}

struct IndexPut final : TwiceDifferentiable<IndexPut> {
  static constexpr const char* kName = "index_put";
  SavedIndex by_;
  std::vector<detail::IndexCall::Step> steps_;
  Shape values_;
  bool accumulate_ = false;
  Tensor forward(const Tensor& x, const Tensor& values, const detail::IndexCall& call) {
    by_ = IndexTensors{kName, call.indices, call.dims};
    steps_ = call.steps;
    accumulate_ = call.accumulate;
    const Tensor y = x.clone();
    detail::IndexCall with_values = call;
    with_values.values = values;
    detail::write(y, with_values);
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const IndexTensors by = by_.get(kName);
    detail::IndexCall call{steps_, by.indices, by.dims};
    Grads grads(2);
    if (needs_grad(1)) {
      const Tensor taken = detail::read(dy, kName, call);
      grads[1] = accumulate_ || by.dims.empty() ? taken : where(mask_over(taken, dy, by), taken, 0.0);
    }
    call.values = zeros({}, dy.options());
    if (needs_grad(0)) grads[0] = accumulate_ ? dy : detail::written(dy, call);
    return grads;
  }

 private:
  /// is_last(), broadcast to the elements that were read.
  Tensor mask_over(const Tensor& taken, const Tensor& dy, const IndexTensors& by) const {
    std::vector<int64_t> sizes = by.shape().vec();
    sizes.resize(static_cast<size_t>(taken.dim() - by.place()), 1);
    return is_last(basic_view(dy.detach(), steps_), by).reshape(sizes);
  }
};

/// Reads the entries of an index in turn.
class EntryReader {
 public:
  EntryReader(const char* op, const Tensor& x, const std::vector<TensorIndex>& entries) : op_(op), x_(x) {
    int taken = 0, ellipses = 0;
    for (const TensorIndex& entry : entries) {
      ellipses += std::holds_alternative<Ellipsis>(entry.value()) ? 1 : 0;
      taken += dims_of(entry);
    }
    TERN_CHECK(ellipses <= 1, op_, ": an Ellipsis may stand only once");
    rest_ = x.dim() - taken;
    TERN_CHECK(rest_ >= 0, op_, ": ", taken, " dimensions are indexed of a tensor with ", x.dim(), ", ", x.shape());
    for (const TensorIndex& entry : entries) std::visit([&](const auto& value) { add(value); }, entry.value());
    broadcast();
  }
  detail::IndexCall take() { return std::move(call_); }

 private:
  using Step = detail::IndexCall::Step;

  /// How many dimensions of x the entry takes.
  static int dims_of(const TensorIndex& entry) {
    if (const auto* tensor = std::get_if<Tensor>(&entry.value()))
      return tensor->dtype() == DType::kBool ? tensor->dim() : 1;
    return std::holds_alternative<Ellipsis>(entry.value()) || std::holds_alternative<NewAxis>(entry.value()) ? 0 : 1;
  }

  // `at_` is the next dimension of the view, `from_` that of x.
  void add(int64_t number) {
    const int64_t size = x_.size(from_);
    TERN_CHECK(number >= -size && number < size, op_, ": index ", number, " is out of range for dimension ", from_,
               " of ", x_.shape());
    call_.steps.push_back({Step::kSelect, at_, {number}});
    ++from_;
  }
  void add(const Slice& slice) {
    call_.steps.push_back({Step::kSlice, at_, slice});
    ++at_, ++from_;
  }
  void add(const Ellipsis&) { at_ += rest_, from_ += rest_; }
  void add(const NewAxis&) { call_.steps.push_back({Step::kNewAxis, at_++, {}}); }
  void add(const Tensor& tensor) {
    if (tensor.dtype() == DType::kBool) return add_mask(tensor);
    TERN_CHECK(tensor.dtype() == DType::kInt64 || tensor.dtype() == DType::kInt32, op_,
               ": a tensor of indices must be int64, int32 or bool, got ", tensor.describe(),
               "; convert with .to(int64), or a mask with .to(boolean)");
    call_.indices.push_back(tensor.detach().to(DType::kInt64).to(x_.device()));
    call_.dims.push_back(at_);
    ++at_, ++from_;
  }
  void add_mask(const Tensor& mask) {
    for (int d = 0; d < mask.dim(); ++d)
      TERN_CHECK(mask.size(d) == x_.size(from_ + d), op_, ": the mask ", mask.shape(), " does not fit ", x_.shape(),
                 " from dimension ", from_, " on");
    const Tensor on_device = mask.detach().to(x_.device());
    if (mask.dim() == 0) {  // takes all or nothing of a new dimension
      add(NewAxis{});
      call_.dims.push_back(at_ - 1);
      call_.indices.push_back(nonzero(on_device.reshape({1})).reshape({-1}));
      return;
    }
    const Tensor positions = nonzero(on_device);
    for (int d = 0; d < mask.dim(); ++d) {
      call_.indices.push_back(positions.select(1, d));
      call_.dims.push_back(at_);
      ++at_, ++from_;
    }
  }
  void broadcast() {
    Shape shape;
    for (const Tensor& index : call_.indices) shape = broadcast_shapes(op_, shape, index.shape());
    for (Tensor& index : call_.indices) index = index.expand(shape).contiguous();
  }

  const char* op_;
  const Tensor& x_;
  int at_ = 0, from_ = 0, rest_ = 0;
  detail::IndexCall call_;
};

}  // namespace

Tensor detail::read(const Tensor& x, const char* op, const IndexCall& call) {
  const Tensor view = basic_view(x, call.steps);
  return call.indices.empty() ? view : IndexByTensors::apply(view, IndexTensors{op, call.indices, call.dims});
}

detail::IndexCall detail::index_call(const char* op, const Tensor& x, const std::vector<TensorIndex>& entries) {
  return EntryReader(op, x, entries).take();
}

detail::IndexCall detail::index_put_call(const char* op, const Tensor& x, const std::vector<TensorIndex>& entries,
                                         const Tensor& values, bool accumulate) {
  IndexCall call = index_call(op, x, entries);
  const Shape view = basic_view(x.detach(), call.steps).shape();
  const Shape shape = call.indices.empty() ? view : indexed_shape(view, {op, call.indices, call.dims});
  TERN_CHECK(values.device() == x.device() || values.dim() == 0, op, ": x and the values are on ", x.device(), " and ",
             values.device());
  call.values = values.to(x.device()).to(x.dtype());
  // Leading dimensions of size 1 may be too many, as in PyTorch.
  while (call.values.dim() > shape.dims() && call.values.size(0) == 1) call.values = call.values.squeeze(0);
  TERN_CHECK(broadcasts_to(call.values.shape(), shape), op, ": values ", values.shape(), " do not broadcast to ", shape,
             ", the shape of what is indexed");
  call.accumulate = accumulate;
  return call;
}

void detail::write(const Tensor& y, const IndexCall& call) {
  const NoGrad off;
  Tensor view = basic_view(y, call.steps);
  if (call.indices.empty()) {
    const Tensor values = call.values.expand(view.shape());
    if (call.accumulate)
      view.add_(values);
    else
      view.copy_(values);
    return;
  }
  const IndexTensors by{"index_put", call.indices, call.dims};
  write_tensors(view, by, call.accumulate ? ScatterMode::kAdd : ScatterMode::kAssign,
                call.values.expand(indexed_shape(view.shape(), by)));
}

Tensor detail::written(const Tensor& x, const IndexCall& call) { return IndexPut::apply(x, call.values, call); }

}  // namespace tern
