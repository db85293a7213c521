#include "tern/data/samples/dataset.h"

#include <cstring>
#include <exception>

#include "tern/kernels/base/check.h"

namespace tern {

void detail::rethrow_with(const std::string& what) {
  try {
    throw;
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception& error) {
    std::throw_with_nested(Error(what + error.what()));
  }
}

namespace data {

TensorDataset::TensorDataset(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
  TERN_CHECK(!tensors_.empty(), "TensorDataset: no tensors");
  for (Tensor& tensor : tensors_) {
    TERN_CHECK(tensor.defined() && tensor.dim() >= 1 && tensor.device().is_cpu(),
               "TensorDataset: every tensor must be on the CPU with a first dimension of samples, got ",
               tensor.defined() ? tensor.describe() : "an undefined one");
    TERN_CHECK(tensor.size(0) == tensors_[0].size(0), "TensorDataset: ", tensor.describe(), " and ",
               tensors_[0].describe(), ": the first dimensions differ");
    tensor = tensor.detach().contiguous();
  }
}

std::vector<Tensor> TensorDataset::get(const ItemKey& key) const {
  TERN_CHECK(key.row >= 0 && key.row < size(), "TensorDataset: sample ", key.row, " of ", size());
  std::vector<Tensor> sample;
  for (const Tensor& tensor : tensors_) sample.push_back(tensor.select(0, key.row));
  return sample;
}

std::vector<Tensor> TensorDataset::get_batch(std::span<const ItemKey> keys) const {
  std::vector<Tensor> batch;
  for (const Tensor& tensor : tensors_) {
    const Shape shape = tensor.shape().with(0, static_cast<int64_t>(keys.size()));
    Tensor out = empty(shape, {.dtype = tensor.dtype()});
    const int64_t row_bytes = size() > 0 ? tensor.nbytes() / size() : 0;
    char* to = static_cast<char*>(out.raw_data());
    const char* from = static_cast<const char*>(tensor.raw_data());
    for (const ItemKey& key : keys) {
      TERN_CHECK(key.row >= 0 && key.row < size(), "TensorDataset: sample ", key.row, " of ", size());
      if (row_bytes == 0) continue;
      std::memcpy(to, from + key.row * row_bytes, static_cast<size_t>(row_bytes));
      to += row_bytes;
    }
    batch.push_back(std::move(out));
  }
  return batch;
}

}  // namespace data
}  // namespace tern
