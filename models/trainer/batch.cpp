#include "tern/models/trainer/batch.h"

namespace tern::models {

std::vector<Tensor> AnyBatch::tensors() const {
  std::vector<Tensor> tensors;
  AnyBatch copy = *this;
  if (list_)
    for (const Tensor* tensor : copy.list_(copy.batch_)) tensors.push_back(*tensor);
  return tensors;
}

int64_t AnyBatch::longest() const {
  AnyBatch copy = *this;
  return longest_ ? *longest_(copy.batch_) : 0;
}

AnyBatch AnyBatch::with(std::span<const Tensor> tensors, int64_t longest) const {
  AnyBatch copy = *this;
  if (list_) {
    const std::vector<Tensor*> places = copy.list_(copy.batch_);
    for (size_t i = 0; i < places.size(); ++i) *places[i] = tensors[i];
  }
  if (longest_) *longest_(copy.batch_) = longest;
  return copy;
}

}  // namespace tern::models
