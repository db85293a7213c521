#include "tern/bench/scale/workload.h"

#include <cmath>

#include "tern/core/autograd/autocast.h"
#include "tern/core/ops/ops.h"
#include "tern/models/distilbert/distilbert.h"
#include "tern/models/vit/vit.h"

namespace tern::bench {
namespace {

constexpr int64_t kBatches = 4;  // used in turn

Tensor random_integers(int64_t count, int64_t below, Generator& generator) {
  std::vector<int64_t> values;
  for (const float u : rand({count}, generator).to_vector<float>())
    values.push_back(std::min(below - 1, static_cast<int64_t>(u * static_cast<float>(below))));
  return from_vector(values, {count});
}

/// Ids as frequent as words in natural language: the probability of id i is proportional to 1 / (i + 1) (Zipf's law).
Tensor random_words(int64_t count, int64_t vocabulary, Generator& generator) {
  std::vector<int64_t> values;
  for (const float u : rand({count}, generator).to_vector<float>())
    values.push_back(
        std::min(vocabulary, static_cast<int64_t>(std::pow(static_cast<double>(vocabulary + 1), double{u}))) - 1);
  return from_vector(values, {count});
}

}  // namespace

Workload::Workload(const std::string& model, int64_t batch, int64_t length, int rank) {
  const uint64_t seed = 2 + static_cast<uint64_t>(rank);
  if (model == "vit")
    make_vit(batch, seed);
  else
    make_text(batch, length, seed);
  module_->train();
}

void Workload::make_text(int64_t batch, int64_t length, uint64_t seed) {
  models::DistilBertConfig config = models::DistilBertConfig::preset("small");
  config.classifier_dropout = 0.1;
  auto model = std::make_unique<models::DistilBert>(nn::Scope({.generator = Generator(1)}), config);
  struct Batch {
    data::TokenInput input;
    Tensor labels;
  };
  std::vector<Batch> batches;
  Generator generator(seed);
  for (int64_t i = 0; i < kBatches; ++i)
    batches.push_back(
        {data::padded_input(random_words(batch * length, config.vocab_size, generator).reshape({batch, length})),
         random_integers(batch, config.num_labels(), generator)});
  loss_ = [&net = *model, batches, next = size_t{0}](DType dtype) mutable {
    const Batch& current = batches[next++ % batches.size()];
    return autocast({}, dtype, [&] { return cross_entropy(net.forward(current.input), current.labels); });
  };
  module_ = std::move(model);
}

void Workload::make_vit(int64_t batch, uint64_t seed) {
  const models::ViTConfig config = models::ViTConfig::preset("tiny");
  auto model = std::make_unique<models::ViT>(nn::Scope({.generator = Generator(1)}), config);
  struct Batch {
    Tensor images, labels;
  };
  std::vector<Batch> batches;
  Generator generator(seed);
  for (int64_t i = 0; i < kBatches; ++i)
    batches.push_back({randn({batch, 3, config.image_size, config.image_size}, generator),
                       random_integers(batch, config.num_labels(), generator)});
  loss_ = [&net = *model, batches, next = size_t{0}](DType dtype) mutable {
    const Batch& current = batches[next++ % batches.size()];
    return autocast({}, dtype, [&] { return cross_entropy(net.forward(current.images), current.labels); });
  };
  module_ = std::move(model);
}

}  // namespace tern::bench
