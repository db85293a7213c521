#include <algorithm>
#include <cmath>

#include "tern/core/tensor/recorded_call.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/copy.h"

namespace tern {
namespace {

int64_t storage_bytes(const char* op, const Shape& shape, DType dtype) {
  int64_t bytes = 0;
  TERN_CHECK(!__builtin_mul_overflow(shape.numel(), size_of(dtype), &bytes), op, ": ", shape, " of ", dtype,
             " does not fit 64 bits");
  return bytes;
}

}  // namespace

Tensor from_storage(std::shared_ptr<Storage> storage, int64_t offset, const Shape& shape, const Strides& strides,
                    DType dtype) {
  TERN_CHECK(storage, "from_storage: the storage is a null pointer");
  TERN_CHECK(storage->data() || shape.numel() == 0, "from_storage: the storage of ", storage->bytes(),
             " bytes has no memory (its pointer is null)");
  int64_t last = offset, first = offset, span = 0, end = 0;
  bool inside = true;
  for (int d = 0; d < shape.dims(); ++d) {
    int64_t& side = strides[d] < 0 ? first : last;
    inside = inside && !__builtin_mul_overflow(shape[d] - 1, strides[d], &span) &&
             !__builtin_add_overflow(side, span, &side);
  }
  inside = inside && first >= 0 && last < INT64_MAX && !__builtin_mul_overflow(last + 1, size_of(dtype), &end);
  TERN_CHECK(shape.numel() == 0 || (inside && end <= storage->bytes()), "from_storage: shape ", shape, " at offset ",
             offset, " is not inside ", storage->bytes(), " bytes");
  auto impl = std::make_shared<detail::TensorImpl>();
  impl->storage = std::move(storage);
  impl->offset = offset;
  impl->shape = shape;
  impl->strides = strides;
  impl->dtype = dtype;
  impl->contiguous =
      shape.numel() == 0 || kernels::View(nullptr, dtype, shape.dims(), shape.data(), strides.data()).is_contiguous();
  Tensor made(std::move(impl));
  if (detail::TraceSink* const sink = detail::active_trace()) sink->made(made);
  return made;
}

Tensor empty(const Shape& shape, const TensorOptions& options) {
  const int64_t bytes = storage_bytes("empty", shape, options.dtype);
  Tensor result = from_storage(std::make_shared<Storage>(bytes, options.device), 0, shape, contiguous_strides(shape),
                               options.dtype);
  if (options.requires_grad) result.set_requires_grad(true);
  return result;
}

Tensor detail::empty_channels_last(const Shape& shape, const TensorOptions& options) {
  Strides strides{};
  int64_t step = shape[1];
  strides[1] = 1;
  for (int d = shape.dims() - 1; d >= 2; --d) {
    strides[static_cast<size_t>(d)] = step;
    step *= std::max<int64_t>(shape[d], 1);
  }
  strides[0] = step;
  return from_storage(std::make_shared<Storage>(storage_bytes("empty", shape, options.dtype), options.device), 0, shape,
                      strides, options.dtype);
}

Tensor empty_pinned(const Shape& shape, DType dtype) {
  return from_storage(Storage::pinned(storage_bytes("empty_pinned", shape, dtype)), 0, shape, contiguous_strides(shape),
                      dtype);
}

namespace {
Tensor filled(const Tensor& tensor, double value) {
  kernels::fill(current_stream(tensor.device()), value, tensor.view());
  return tensor;
}
}  // namespace

Tensor full(const Shape& shape, double value, const TensorOptions& options) {
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, "full", [](const auto&... all) { return full(all...); }, shape, value, options);
  return filled(empty(shape, options), value);
}

Tensor empty_like(const Tensor& other) { return empty(other.shape(), other.options()); }
Tensor zeros(const Shape& shape, const TensorOptions& options) { return full(shape, 0, options); }
Tensor zeros_like(const Tensor& other) { return full_like(other, 0); }
Tensor ones(const Shape& shape, const TensorOptions& options) { return full(shape, 1, options); }

Tensor full_like(const Tensor& other, double value) {
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, "full_like", [](const auto&... all) { return full_like(all...); }, other, value);
  return filled(detail::empty_ordered_like(other, other.options()), value);
}
Tensor ones_like(const Tensor& other) { return full_like(other, 1); }

Tensor eye(int64_t rows, int64_t cols, const TensorOptions& options) {
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, "eye", [](const auto&... all) { return eye(all...); }, rows, cols, options);
  const Tensor result = zeros({rows, cols}, options);
  const int64_t size = std::min(rows, cols), step = cols + 1;
  if (size > 0) kernels::fill(current_stream(options.device), 1, {result.raw_data(), options.dtype, 1, &size, &step});
  return result;
}
Tensor eye(int64_t size, const TensorOptions& options) { return eye(size, size, options); }

Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options) {
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, "linspace", [](const auto&... all) { return linspace(all...); }, start, end, steps, options);
  TERN_CHECK(std::isfinite(start) && std::isfinite(end), "linspace: start and end must be finite");
  TERN_CHECK(steps >= 0, "linspace: the number of steps must not be negative, got ", steps);
  const Tensor result = empty({steps}, options);
  const kernels::Stream stream = current_stream(options.device);
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  kernels::arange(stream, start, step, result.view());
  if (steps < 2) return result;
  // The second half counts from the end, which thus is exact: in another tensor, because a kernel's steps ascend.
  const int64_t half = steps / 2, backward = -1;
  const Tensor rest = empty({steps - half}, {options.dtype, options.device});
  kernels::arange(stream, end, -step, rest.view());
  const kernels::View last(static_cast<char*>(rest.raw_data()) + (steps - half - 1) * size_of(options.dtype),
                           options.dtype, 1, rest.shape().data(), &backward);
  kernels::View target = result.view();
  target.data = static_cast<char*>(target.data) + half * size_of(options.dtype);
  target.shape[0] = steps - half;
  kernels::copy(stream, last, target);
  return result;
}

namespace {
/// Whole numbers are recorded as integers: the end is often a size.
Tensor recorded_arange(detail::TraceSink& sink, double start, double end, double step, const TensorOptions& options) {
  const auto again = [](auto first, auto last, auto by, const TensorOptions& wanted) {
    return arange(static_cast<double>(first), static_cast<double>(last), static_cast<double>(by), wanted);
  };
  const auto is_whole = [](double x) { return x == std::trunc(x) && std::abs(x) < 0x1p53; };
  if (!is_whole(start) || !is_whole(end) || !is_whole(step))
    return detail::record_call(sink, "arange", again, start, end, step, options);
  return detail::record_call(sink, "arange", again, static_cast<int64_t>(start), static_cast<int64_t>(end),
                             static_cast<int64_t>(step), options);
}
}  // namespace

Tensor arange(double start, double end, double step, const TensorOptions& options) {
  TERN_CHECK(std::isfinite(start) && std::isfinite(end) && std::isfinite(step) && step != 0,
             "arange: start, end and step must be finite and step not 0");
  TERN_CHECK(is_floating(options.dtype) || (start == std::trunc(start) && step == std::trunc(step)),
             "arange: ", options.dtype, " needs a whole start and step, got ", start, " and ", step,
             "; give it {.dtype = float32}");
  const double count = std::max(0.0, std::ceil((end - start) / step));
  TERN_CHECK(count < 9e15, "arange: ", count, " elements are too many");
  if (detail::TraceSink* const sink = detail::active_trace()) return recorded_arange(*sink, start, end, step, options);
  const Tensor result = empty({static_cast<int64_t>(count)}, options);
  kernels::arange(current_stream(options.device), start, step, result.view());
  return result;
}

Tensor rand(const Shape& shape, Generator& generator, const TensorOptions& options) {
  TERN_CHECK(is_floating(options.dtype), "rand: expected a floating dtype, got ", options.dtype);
  const Tensor result = empty(shape, options);
  kernels::fill_uniform(current_stream(options.device), generator.next(options.device), 0, 1, result.view());
  return result;
}

Tensor randn(const Shape& shape, Generator& generator, const TensorOptions& options) {
  TERN_CHECK(is_floating(options.dtype), "randn: expected a floating dtype, got ", options.dtype);
  const Tensor result = empty(shape, options);
  kernels::fill_normal(current_stream(options.device), generator.next(options.device), 0, 1, result.view());
  return result;
}

Tensor rand_like(const Tensor& other, Generator& generator) { return rand(other.shape(), generator, other.options()); }
Tensor randn_like(const Tensor& other, Generator& generator) {
  return randn(other.shape(), generator, other.options());
}

template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, const TensorOptions& options) {
  TERN_CHECK(static_cast<int64_t>(values.size()) == shape.numel(), "from_vector: ", values.size(), " values for shape ",
             shape);
  if (detail::TraceSink* const sink = detail::active_trace()) {
    const detail::TraceScope off(nullptr);
    const Tensor result = from_vector(values, shape, options);
    sink->constant(result);
    return result;
  }
  Tensor result = empty(shape, {.dtype = dtype_of<T>()});
  T* data = static_cast<T*>(result.raw_data());
  for (size_t i = 0; i < values.size(); ++i) data[i] = values[i];
  result = result.to(options.dtype).to(options.device);
  if (options.requires_grad) result.set_requires_grad(true);
  return result;
}
template Tensor from_vector(const std::vector<double>&, const Shape&, const TensorOptions&);
template Tensor from_vector(const std::vector<float>&, const Shape&, const TensorOptions&);
template Tensor from_vector(const std::vector<BFloat16>&, const Shape&, const TensorOptions&);
template Tensor from_vector(const std::vector<Float16>&, const Shape&, const TensorOptions&);
template Tensor from_vector(const std::vector<int64_t>&, const Shape&, const TensorOptions&);
template Tensor from_vector(const std::vector<int32_t>&, const Shape&, const TensorOptions&);
template Tensor from_vector(const std::vector<uint8_t>&, const Shape&, const TensorOptions&);
template Tensor from_vector(const std::vector<bool>&, const Shape&, const TensorOptions&);

Tensor tensor(const std::vector<double>& values, const TensorOptions& options) {
  return from_vector(values, {static_cast<int64_t>(values.size())}, options);
}

Tensor from_blob(void* data, const Shape& shape, DType dtype, std::function<void()> release, Device device) {
  const Strides strides = contiguous_strides(shape);
  return from_blob(data, shape, std::vector<int64_t>(strides.begin(), strides.begin() + shape.dims()), dtype,
                   std::move(release), device);
}

Tensor from_blob(void* data, const Shape& shape, const std::vector<int64_t>& strides, DType dtype,
                 std::function<void()> release, Device device) {
  TERN_CHECK(data || shape.numel() == 0, "from_blob: the pointer is null");
  TERN_CHECK(strides.size() == static_cast<size_t>(shape.dims()), "from_blob: shape ", shape, " needs ", shape.dims(),
             " strides, got ", strides.size());
  int64_t bytes = storage_bytes("from_blob", shape, dtype);
  require_available(device);
  Strides steps = contiguous_strides(shape);
  int64_t last = 0, span = 0;
  for (int d = 0; d < shape.dims() && shape.numel() > 0; ++d) {
    if (shape[d] == 1) continue;  // its stride has no effect, and may be any number
    const int64_t step = steps[static_cast<size_t>(d)] = strides[static_cast<size_t>(d)];
    TERN_CHECK(step >= 0, "from_blob: stride ", step, " of dimension ", d, " is negative; copy the elements instead");
    TERN_CHECK(!__builtin_mul_overflow(shape[d] - 1, step, &span) && !__builtin_add_overflow(last, span, &last) &&
                   last < INT64_MAX && !__builtin_mul_overflow(last + 1, size_of(dtype), &bytes),
               "from_blob: shape ", shape, " with stride ", step, " of dimension ", d, " is larger than any memory");
  }
  const Tensor result =
      from_storage(std::make_shared<Storage>(data, bytes, device, std::move(release)), 0, shape, steps, dtype);
  if (detail::TraceSink* const sink = detail::active_trace()) sink->constant(result);
  return result;
}

}  // namespace tern
