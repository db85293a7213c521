#pragma once
// Which rows of a data set an epoch has, and in which order.

#include <cstdint>
#include <functional>
#include <vector>

namespace tern::data {

/// The rows of each epoch, `size` of them. `order` depends on the epoch alone and is called from any thread, so a run
/// continues from its epoch and step, and every process of a job computes the same order.
struct Sampler {
  int64_t size = 0;
  std::function<std::vector<int32_t>(int64_t epoch)> order = {};

  explicit operator bool() const { return order != nullptr; }
};

/// 0, 1, ..., size - 1.
Sampler sequential_sampler(int64_t size);
/// All rows in an order that depends on (seed, epoch).
Sampler random_sampler(int64_t size, uint64_t seed);
/// These rows (Split::train, say) in an order that depends on (seed, epoch).
Sampler subset_sampler(std::vector<int32_t> rows, uint64_t seed);

struct WeightedOptions {
  int64_t samples = 0;      // rows of an epoch
  bool replacement = true;  // a row may occur several times
  uint64_t seed = 0;
};

/// Row i with a probability proportional to weights[i], as PyTorch's WeightedRandomSampler; without replacement each
/// draw is from the rows that are left (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
/// Throws Error unless the weights are finite and >= 0, and one (without replacement: `samples` of them) is positive.
Sampler weighted_sampler(std::vector<double> weights, const WeightedOptions& options);

struct DistributedOptions {
  int64_t rank = 0, ranks = 1;
  bool drop_last = false;  // leave out the last rows, if they do not fill all ranks; otherwise repeat the first rows
};

/// The rank's share of another sampler's rows, as PyTorch's DistributedSampler: every ranks-th, from rank on. All ranks
/// get the same number. Throws Error for a rank that is not in 0 .. ranks - 1.
Sampler distributed_sampler(const Sampler& all, const DistributedOptions& options);

}  // namespace tern::data
