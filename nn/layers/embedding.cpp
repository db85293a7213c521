#include "tern/nn/layers/embedding.h"

#include <algorithm>

#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/core/tensor/size_checks.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

Initializer with_padding(const Initializer& given, int64_t padding_index) {
  const Initializer fill = given ? given : init::normal();
  if (padding_index < 0) return fill;
  return [fill, row = padding_index](Tensor& weight, Generator& generator) {
    fill(weight, generator);
    weight.select(0, row).zero_();
  };
}

Shape table_shape(const char* type, int64_t count, int64_t width, int64_t padding_index) {
  TERN_CHECK(count >= 0 && width >= 0, type, ": sizes must be >= 0, got count ", count, " and width ", width);
  TERN_CHECK(padding_index >= -1 && padding_index < count, type, ": padding_index must be -1 (none) or below ", count,
             ", got ", padding_index);
  return {count, width};
}

/// Bags of one length: ids [bags, length], weights as ids (or undefined), and where a place holds no id: bool as ids.
struct PaddedBags {
  Tensor ids, weights, absent;
};

PaddedBags padded_bags(const Tensor& ids, const Tensor& offsets, const Tensor& weights, bool include_last) {
  TERN_CHECK(ids.dim() == 1 && offsets.dim() == 1 && offsets.dtype() == DType::kInt64 &&
                 offsets.numel() >= (include_last ? 1 : 0),
             "nn::EmbeddingBag: with offsets, ids must be [n] and offsets int64 [bags], got ", ids.describe(), " and ",
             offsets.describe());
  std::vector<int64_t> starts = offsets.to_vector<int64_t>();
  const int64_t n = ids.numel();
  if (!include_last) starts.push_back(n);
  TERN_CHECK(starts[0] == 0 && starts.back() == n && std::is_sorted(starts.begin(), starts.end()),
             "nn::EmbeddingBag: offsets must begin with 0, not decrease, ",
             include_last ? "and end with the number of ids, " : "and be at most the number of ids, ", n);
  const auto bags = static_cast<int64_t>(starts.size()) - 1;
  int64_t length = 1;
  for (size_t b = 0; b + 1 < starts.size(); ++b) length = std::max(length, starts[b + 1] - starts[b]);
  tern::detail::check_host_list("nn::EmbeddingBag", tern::detail::checked_product("nn::EmbeddingBag", bags, length));
  std::vector<int64_t> places(static_cast<size_t>(bags * length), n);  // n: a place after the ids, which holds a 0
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    for (int64_t i = starts[b]; i < starts[b + 1]; ++i)
      places[b * static_cast<size_t>(length) + static_cast<size_t>(i - starts[b])] = i;
  const Tensor index = from_vector(places, {bags * length}).to(ids.device());
  const auto padded = [&](const Tensor& values) {
    return index_select(cat({values, zeros({1}, values.options())}), 0, index).reshape({bags, length});
  };
  return {padded(ids), weights.defined() ? padded(weights) : weights,
          (index == static_cast<double>(n)).reshape({bags, length})};
}

}  // namespace

Embedding::Embedding(const Scope& s, int64_t count, int64_t width, const EmbeddingOptions& options)
    : Module(s),
      padding_index_(options.padding_index),
      weight_(this, "weight", table_shape("nn::Embedding", count, width, options.padding_index),
              with_padding(options.weight_init, options.padding_index)) {
  weight_.set_few_gradient_rows();
}

Tensor Embedding::forward(const Tensor& input) const {
  const ProfileRange range(name());
  return hooked(input, [&](const Tensor& ids) { return embedding(weight_, ids, padding_index_); });
}

EmbeddingBag::EmbeddingBag(const Scope& s, int64_t count, int64_t width, const EmbeddingBagOptions& options)
    : Module(s),
      options_(options),
      weight_(this, "weight", table_shape("nn::EmbeddingBag", count, width, options.padding_index),
              with_padding(options.weight_init, options.padding_index)) {
  weight_.set_few_gradient_rows();
}

Tensor EmbeddingBag::forward(const Tensor& input, const Tensor& offsets, const Tensor& sample_weights) const {
  const ProfileRange range(name());
  return hooked(input, [&](const Tensor& ids) {
    TERN_CHECK(offsets.defined() || ids.dim() == 2,
               "nn::EmbeddingBag: without offsets ids must be [bags, length], got ", ids.shape());
    TERN_CHECK(!sample_weights.defined() || (options_.mode == BagMode::kSum && sample_weights.shape() == ids.shape()),
               "nn::EmbeddingBag: sample_weights are for BagMode::kSum and must be ", ids.shape());
    const PaddedBags bags = offsets.defined()
                                ? padded_bags(ids, offsets, sample_weights, options_.include_last_offset)
                                : PaddedBags{ids, sample_weights, zeros(ids.shape(), {DType::kBool, ids.device()})};
    const auto padding = static_cast<double>(options_.padding_index);
    const Tensor absent = options_.padding_index < 0 ? bags.absent : logical_or(bags.absent, bags.ids == padding);
    const Tensor rows = embedding(weight_, bags.ids, options_.padding_index), holes = absent.unsqueeze(2);
    const Tensor counts = sum(logical_not(absent).to(DType::kInt64), {1}, true);
    if (options_.mode == BagMode::kMax) {
      if (bags.ids.size(1) == 0) return sum(rows, {1});
      return masked_fill(max(masked_fill(rows, holes, -INFINITY), {1}), counts == 0.0, 0);
    }
    Tensor kept = masked_fill(rows, holes, 0);
    if (bags.weights.defined()) kept = kept * bags.weights.unsqueeze(2);
    const Tensor total = sum(kept, {1});
    return options_.mode == BagMode::kSum ? total : total / clamp(counts, 1, INFINITY).to(total.dtype());
  });
}

}  // namespace tern::nn
