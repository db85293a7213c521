#include "tern/nn/layers/shape.h"

#include <algorithm>

namespace tern::nn {

Unflatten::Unflatten(const Scope& s, int dim, const std::vector<int64_t>& sizes) : Module(s), dim_(dim), sizes_(sizes) {
  TERN_CHECK(!sizes.empty(), "nn::Unflatten: sizes must not be empty");
}

Tensor Unflatten::forward(const Tensor& input) const {
  return hooked(input, [&](const Tensor& x) {
    const int at = x.shape().wrap(dim_);
    std::vector<int64_t> sizes = x.shape().vec();
    int64_t known = 1;
    for (const int64_t size : sizes_) known *= size == -1 ? 1 : size;
    const bool infers = std::count(sizes_.begin(), sizes_.end(), -1) == 1;
    const int64_t size = x.size(at);
    TERN_CHECK(infers ? known > 0 && size % known == 0 : known == size, "nn::Unflatten: dimension ", dim_, " of ",
               x.shape(), " has ", size, " elements, but the sizes multiply to ", known,
               infers ? " times the inferred one" : "");
    sizes.erase(sizes.begin() + at);
    sizes.insert(sizes.begin() + at, sizes_.begin(), sizes_.end());
    if (infers) *std::find(sizes.begin() + at, sizes.end(), -1) = size / known;
    return x.reshape(sizes);
  });
}

}  // namespace tern::nn
