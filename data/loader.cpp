#include "tern/data/loader.h"

#include <cstring>
#include <limits>
#include <numeric>

#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

Shape batched(const Shape& sample, int64_t count) {
  std::vector<int64_t> sizes = sample.vec();
  sizes.insert(sizes.begin(), count);
  return Shape(sizes);
}

char* bytes(const Tensor& tensor) { return static_cast<char*>(tensor.raw_data()); }

std::string name_of_sample(std::span<const int32_t> indices, size_t place) {
  return detail::concatenate("sample ", indices[place], " of the data set (place ", place, " of its batch)");
}

/// Stacks sample tensors of equal shape and dtype along a new first dimension.
Tensor stack_samples(const std::vector<std::vector<Tensor>>& samples, size_t part, std::span<const int32_t> indices) {
  const Tensor& first = samples[0][part];
  for (size_t i = 0; i < samples.size(); ++i)
    TERN_CHECK(samples[i][part].defined(), "loader: tensor ", part, " of ", name_of_sample(indices, i),
               " is undefined");
  Tensor out = empty(batched(first.shape(), static_cast<int64_t>(samples.size())), {.dtype = first.dtype()});
  for (size_t i = 0; i < samples.size(); ++i) {
    const Tensor& sample = samples[i][part];
    TERN_CHECK(sample.shape() == first.shape() && sample.dtype() == first.dtype() && sample.device().is_cpu() &&
                   sample.is_contiguous(),
               "loader: tensor ", part, " of ", name_of_sample(indices, i), " is ", sample.describe(),
               sample.is_contiguous() ? "" : " and not contiguous",
               "; a batch needs contiguous CPU tensors like that of sample ", indices[0], ": ", first.describe());
    if (first.nbytes() > 0)
      std::memcpy(bytes(out) + static_cast<int64_t>(i) * first.nbytes(), bytes(sample), first.nbytes());
  }
  return out;
}

}  // namespace

std::vector<Tensor> Dataset::get_batch(std::span<const int32_t> indices) const {
  TERN_CHECK(!indices.empty(), "loader: an empty batch");
  std::vector<std::vector<Tensor>> samples;
  for (const int32_t index : indices) {
    samples.push_back(get(index));
    TERN_CHECK(samples.back().size() == samples[0].size(), "loader: ", name_of_sample(indices, samples.size() - 1),
               " has ", samples.back().size(), " tensors, sample ", indices[0], " has ", samples[0].size());
  }
  std::vector<Tensor> batch;
  for (size_t part = 0; part < samples[0].size(); ++part) batch.push_back(stack_samples(samples, part, indices));
  return batch;
}

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

std::vector<Tensor> TensorDataset::get(int64_t index) const {
  TERN_CHECK(index >= 0 && index < size(), "TensorDataset: sample ", index, " of ", size());
  std::vector<Tensor> sample;
  for (const Tensor& tensor : tensors_) sample.push_back(tensor.select(0, index));
  return sample;
}

std::vector<Tensor> TensorDataset::get_batch(std::span<const int32_t> indices) const {
  std::vector<Tensor> batch;
  for (const Tensor& tensor : tensors_) {
    const Shape shape = tensor.shape().with(0, static_cast<int64_t>(indices.size()));
    Tensor out = empty(shape, {.dtype = tensor.dtype()});
    const int64_t row_bytes = size() > 0 ? tensor.nbytes() / size() : 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      TERN_CHECK(indices[i] >= 0 && indices[i] < size(), "TensorDataset: sample ", indices[i], " of ", size());
      if (row_bytes == 0) continue;
      std::memcpy(bytes(out) + static_cast<int64_t>(i) * row_bytes, bytes(tensor) + indices[i] * row_bytes, row_bytes);
    }
    batch.push_back(std::move(out));
  }
  return batch;
}

Loader::Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : BatchLoader(
          "loader",
          [options, dataset](int64_t epoch) {
            TERN_CHECK(epoch >= 0, "loader: the epoch must not be negative, got ", epoch);
            std::vector<int32_t> rows(static_cast<size_t>(dataset->size()));
            std::iota(rows.begin(), rows.end(), 0);
            const BatchPlanOptions plan{.batch_size = options.batch_size,
                                        .shuffle = options.shuffle,
                                        .drop_last = options.drop_last,
                                        .seed = options.seed};
            return std::make_shared<const EpochPlan>(plan_epoch(rows, {}, plan, epoch));
          },
          [dataset](std::span<const int32_t> rows, int64_t, int64_t) { return dataset->get_batch(rows); },
          {.workers = options.workers, .prefetch = options.prefetch}) {
  TERN_CHECK(dataset != nullptr, "loader: no data set");
  TERN_CHECK(options.batch_size >= 1, "loader: batch_size must be at least 1, got ", options.batch_size);
  size_ = dataset->size();
  TERN_CHECK(size_ >= 0 && size_ <= std::numeric_limits<int32_t>::max(),
             "loader: a data set has 0 to 2^31 - 1 samples, got ", size_);
  steps_ = size_ / options.batch_size + (!options.drop_last && size_ % options.batch_size != 0 ? 1 : 0);
}

}  // namespace tern::data
