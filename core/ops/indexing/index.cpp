#include "tern/core/ops/indexing/index.h"

#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/index_call.h"
#include "tern/core/ops/indexing/nonzero.h"

namespace tern {

Tensor Tensor::index(const std::vector<TensorIndex>& indices) const {
  return detail::read(*this, "index", detail::index_call("index", *this, indices));
}

Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Tensor& values, bool accumulate) {
  return detail::written(x, detail::index_put_call("index_put", x, indices, values, accumulate));
}

Tensor take(const Tensor& x, const Tensor& index) {
  TERN_CHECK(index.dtype() == DType::kInt64, "take: index must be int64, got ", index.describe());
  detail::check_one_device("take", {&x, &index});
  return detail::read(x.flatten(), "take", {.steps = {}, .indices = {index.detach().contiguous()}, .dims = {0}});
}

Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate) {
  TERN_CHECK(index.numel() == source.numel() && source.dtype() == x.dtype(),
             "put: the source must be of x's dtype with as many elements as the index, got ", source.describe(),
             " for ", index.shape(), " and ", x.describe());
  return index_put(x.flatten(), {index.flatten()}, source.flatten(), accumulate).reshape(x.shape());
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  detail::check_one_device("masked_scatter", {&x, &mask, &source});
  TERN_CHECK(mask.dtype() == DType::kBool && source.dtype() == x.dtype(),
             "masked_scatter: expected a bool mask and a source of x's dtype, got ", mask.describe(), " and ",
             source.describe(), " for x ", x.describe());
  const Shape shape = broadcast_shapes("masked_scatter", x.shape(), mask.shape());
  const Tensor positions = nonzero(mask.expand(shape).reshape({shape.numel()})).reshape({-1});
  TERN_CHECK(positions.numel() <= source.numel(), "masked_scatter: the mask is true for ", positions.numel(),
             " elements, the source has ", source.numel());
  const Tensor values = source.reshape({source.numel()}).slice(0, 0, positions.numel());
  return index_put(x.expand(shape).reshape({shape.numel()}), {positions}, values).reshape(shape);
}

}  // namespace tern
