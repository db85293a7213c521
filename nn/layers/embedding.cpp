#include "tern/nn/layers/embedding.h"

#include "tern/core/ops/indexing.h"
#include "tern/core/profiler/profiler.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

Initializer with_padding(const EmbeddingOptions& options) {
  const Initializer fill = options.weight_init ? options.weight_init : init::normal();
  if (options.padding_index < 0) return fill;
  return [fill, row = options.padding_index](Tensor& weight, Generator& generator) {
    fill(weight, generator);
    weight.select(0, row).zero_();
  };
}

Shape checked_shape(int64_t count, int64_t width, int64_t padding_index) {
  TERN_CHECK(count >= 0 && width >= 0, "nn::Embedding: sizes must be >= 0, got count ", count, " and width ", width);
  TERN_CHECK(padding_index >= -1 && padding_index < count, "nn::Embedding: padding_index must be -1 (none) or below ",
             count, ", got ", padding_index);
  return {count, width};
}

}  // namespace

Embedding::Embedding(const Scope& s, int64_t count, int64_t width, const EmbeddingOptions& options)
    : Module(s),
      padding_index_(options.padding_index),
      weight_(this, "weight", checked_shape(count, width, options.padding_index), with_padding(options)) {
  weight_.set_few_gradient_rows();
}

Tensor Embedding::forward(const Tensor& ids) const {
  const ProfileRange range(name());
  return embedding(weight_, ids, padding_index_);
}

}  // namespace tern::nn
