// Layers, data and metrics that take a size, a count or a list, given numbers far outside of what memory holds: they
// throw tern::Error or return, without a loop or an allocation of that length. core/huge_sizes_test.cpp has the ops.

#include "tern/tests/core/huge_sizes.h"
#include "tern/data/datasets/documents.h"
#include "tern/data/images/image_cache.h"
#include "tern/data/loaders/loader.h"
#include "tern/data/loaders/stream_loader.h"
#include "tern/data/plan/batch_plan.h"
#include "tern/data/plan/sampler.h"
#include "tern/data/transforms/augment.h"
#include "tern/data/transforms/color.h"
#include "tern/data/transforms/geometry.h"
#include "tern/data/transforms/resize.h"
#include "tern/nn/metrics/classification.h"
#include "tern/nn/nn.h"
#include "tern/optim/optim.h"

namespace tern::test {
namespace {

/// Runs a module's constructor alone.
template <class Layer, class... Args>
void make(const Args&... args) {
  const Layer layer(nn::Scope(), args...);
}

std::vector<SizedCall> layers() {
  using namespace nn;
  return {{"Linear in", [](int64_t n) { make<Linear>(n, 2); }},
          {"Linear out", [](int64_t n) { make<Linear>(2, n); }},
          {"Linear both", [](int64_t n) { make<Linear>(n, n); }},
          {"Bilinear", [](int64_t n) { make<Bilinear>(n, n, 2); }},
          {"Embedding", [](int64_t n) { make<Embedding>(n, 2); }},
          {"Embedding width", [](int64_t n) { make<Embedding>(2, n); }},
          {"Embedding padding", [](int64_t n) { make<Embedding>(2, 3, EmbeddingOptions{.padding_index = n}); }},
          {"EmbeddingBag", [](int64_t n) { make<EmbeddingBag>(n, n); }},
          {"Conv1d in", [](int64_t n) { make<Conv1d>(n, 2, 3); }},
          {"Conv2d out", [](int64_t n) { make<Conv2d>(2, n, 3); }},
          {"Conv2d kernel", [](int64_t n) { make<Conv2d>(2, 2, n); }},
          {"Conv2d groups", [](int64_t n) { make<Conv2d>(4, 4, 3, ConvOptions{.groups = n}); }},
          {"Conv2d stride", [](int64_t n) { make<Conv2d>(4, 4, 3, ConvOptions{.stride = n}); }},
          {"ConvTranspose2d", [](int64_t n) { make<ConvTranspose2d>(n, n, n); }},
          {"BatchNorm2d", [](int64_t n) { make<BatchNorm2d>(n); }},
          {"LayerNorm", [](int64_t n) { make<LayerNorm>(n); }},
          {"RMSNorm", [](int64_t n) { make<RMSNorm>(n); }},
          {"GroupNorm groups", [](int64_t n) { make<GroupNorm>(n, 4); }},
          {"GroupNorm channels", [](int64_t n) { make<GroupNorm>(2, n); }},
          {"InstanceNorm2d", [](int64_t n) { make<InstanceNorm2d>(n, InstanceNormLayerOptions{.affine = true}); }},
          {"LocalResponseNorm", [](int64_t n) { make<LocalResponseNorm>(n); }},
          {"PReLU", [](int64_t n) { make<PReLU>(n); }},
          {"FeedForward", [](int64_t n) { make<FeedForward>(2, n); }},
          {"GatedFeedForward", [](int64_t n) { make<GatedFeedForward>(n, n); }},
          {"LSTM input", [](int64_t n) { make<LSTM>(n, 2); }},
          {"LSTM hidden", [](int64_t n) { make<LSTM>(2, n); }},
          {"LSTM layers", [](int64_t n) { make<LSTM>(2, 2, LSTMOptions{.layers = n}); }},
          {"LSTM proj_size", [](int64_t n) { make<LSTM>(2, 3, LSTMOptions{.proj_size = n}); }},
          {"GRU layers", [](int64_t n) { make<GRU>(2, 2, RecurrentOptions{.layers = n, .bidirectional = true}); }},
          {"RNN layers", [](int64_t n) { make<RNN>(1, 1, RNNOptions{.layers = n}); }},
          {"LSTMCell", [](int64_t n) { make<LSTMCell>(2, n); }},
          {"GRUCell", [](int64_t n) { make<GRUCell>(n, n); }},
          {"PackedAttention width", [](int64_t n) { make<nn::PackedAttention>(n, 2); }},
          {"PackedAttention heads", [](int64_t n) { make<nn::PackedAttention>(4, n); }},
          {"MultiheadAttention", [](int64_t n) { make<nn::MultiheadAttention>(n, n); }},
          {"TransformerEncoder layers", [](int64_t n) { make<TransformerEncoder>(n, 4, 2); }},
          {"TransformerEncoder width", [](int64_t n) { make<TransformerEncoder>(1, n, 2); }},
          {"TransformerDecoder layers", [](int64_t n) { make<TransformerDecoder>(n, 4, 2); }},
          {"ModuleList", [](int64_t n) { make<ModuleList<Linear>>(n, 1, 1); }},
          {"DropBlock2d", [](int64_t n) { make<DropBlock2d>(0.1, n); }},
          {"square mask", [](int64_t n) { generate_square_subsequent_mask(n); }},
          {"pad_packed_sequence",
           [](int64_t n) {
             pad_packed_sequence({ones({3, 2}), packed_layout({1, 2})}, true, 0, n);
           }},
          {"pack_padded_sequence",
           [](int64_t n) {
             pack_padded_sequence(ones({3, 2, 2}), {n, n});
           }},
          {"KeyValueCache layers", [](int64_t n) { KeyValueCache(n, 2); }},
          {"KeyValueCache sequences", [](int64_t n) { KeyValueCache(2, n); }},
          {"KeyValueCache capacity",
           [](int64_t n) {
             KeyValueCache(2, 2, {.capacity = n}).extend({1, 1});
           }},
          {"KeyValueCache extend", [](int64_t n) { KeyValueCache(1, 1).extend({n}); }},
          {"KeyValueCache extend both",
           [](int64_t n) {
             KeyValueCache(1, 2).extend({n, n});
           }},
          {"KeyValueCache truncate", [](int64_t n) { KeyValueCache(1, 1).truncate({n}); }},
          {"KeyValueCache select", [](int64_t n) { KeyValueCache(1, 1).select({n}); }},
          {"spectral_norm",
           [](int64_t n) {
             Linear layer(nn::Scope(), 2, 2);
             spectral_norm(layer, {.power_iterations = n});
             layer.forward(ones({1, 2}));
           }},
          {"add_lora", [](int64_t n) {
             Linear layer(nn::Scope(), 2, 2);
             add_lora(layer, {.lora = {.rank = n}});
           }}};
}

std::vector<SizedCall> optimizers() {
  const auto at = [](const optim::Schedule& schedule, int64_t step) { return schedule.factor(step); };
  return {
      {"LBFGS history",
       [](int64_t n) {
         optim::LBFGS({{"w", ones({2}).set_requires_grad(true)}}, {.history_size = n}).state_dict();
       }},
      {"step_lr", [=](int64_t n) { at(optim::step_lr({.step_size = n}), n); }},
      {"multi_step_lr",
       [=](int64_t n) {
         at(optim::multi_step_lr({.milestones = {n, n}}), n);
       }},
      {"cosine restarts", [](int64_t n) { optim::cosine_annealing_warm_restarts({.t_0 = 3, .t_mult = 2}).factor(n); }},
      {"cosine restarts, long",
       [](int64_t n) { optim::cosine_annealing_warm_restarts({.t_0 = n, .t_mult = n}).factor(n); }}};
}

data::Image picture() { return {5, 7, 3}; }

/// The samples 0 ... 9.
struct Numbers final : data::Dataset<std::vector<Tensor>> {
  int64_t size() const override { return 10; }
  std::vector<Tensor> get(const data::ItemKey& key) const override { return {full({1}, static_cast<double>(key.row))}; }
};

int64_t batches_of(const data::LoaderOptions& options) {
  data::Loader loader(Numbers(), options);
  int64_t count = 0;
  for (const auto& batch : loader.epoch(0)) count += batch[0].size(0) > 0;
  return count;
}

int64_t batches_of(const data::StreamLoaderOptions& options) {
  data::StreamLoader loader(
      [](int64_t) {
        return [next = 0]() mutable -> std::optional<std::vector<Tensor>> {
          if (next == 10) return std::nullopt;
          return std::vector<Tensor>{full({1}, next++)};
        };
      },
      options);
  int64_t count = 0;
  for (const auto& batch : loader.epoch(0)) count += batch[0].size(0) > 0;
  return count;
}

std::vector<SizedCall> data_calls() {
  using namespace data;
  return {{"Image", [](int64_t n) { Image(n, 2, 3); }},
          {"Image of both", [](int64_t n) { Image(n, n, n); }},
          {"crop", [](int64_t n) { crop(picture(), n, n, 3, 3); }},
          {"crop to", [](int64_t n) { crop(picture(), 0, 0, n, n); }},
          {"center_crop", [](int64_t n) { center_crop(picture(), n, 3); }},
          {"five_crop", [](int64_t n) { five_crop(picture(), n, n); }},
          {"ten_crop", [](int64_t n) { ten_crop(picture(), 3, n); }},
          {"resize", [](int64_t n) { resize(picture(), n, 3); }},
          {"resize both", [](int64_t n) { resize(picture(), n, n); }},
          {"resize_shorter", [](int64_t n) { resize_shorter(picture(), n); }},
          {"resize_images",
           [](int64_t n) {
             resize_images(zeros({1, 5, 7, 3}, {uint8}), n, n);
           }},
          {"gaussian_blur", [](int64_t n) { gaussian_blur(picture(), n); }},
          {"gaussian_blur of nothing", [](int64_t n) { gaussian_blur(Image(), n | 1); }},
          {"ImageCache", [](int64_t n) { const ImageCache cache(n); }},
          {"sequential_sampler", [](int64_t n) { sequential_sampler(n).order(0); }},
          {"random_sampler", [](int64_t n) { random_sampler(n, 1).order(0); }},
          {"weighted_sampler",
           [](int64_t n) {
             weighted_sampler({1, 2}, {.samples = n}).order(0);
           }},
          {"distributed_sampler ranks",
           [](int64_t n) { distributed_sampler(sequential_sampler(5), {.ranks = n}).order(0); }},
          {"distributed_sampler rank",
           [](int64_t n) { distributed_sampler(sequential_sampler(5), {.rank = n, .ranks = INT64_MAX}).order(0); }},
          {"plan_epoch batch_size",
           [](int64_t n) {
             const std::vector<int32_t> rows = {0, 1, 2}, lengths = {4, 5, 6};
             plan_epoch(rows, lengths, {.batch_size = n, .group_by_length = true}, 0);
           }},
          {"plan_epoch batch_tokens",
           [](int64_t n) {
             const std::vector<int32_t> rows = {0, 1, 2}, lengths = {4, 5, 6};
             plan_epoch(rows, lengths, {.batch_tokens = n, .window = n}, 0);
           }},
          {"TokenBlocks",
           [](int64_t n) {
             TokenBlocks({1, 2, 3}, n);
           }},
          {"TokenBlocks stride",
           [](int64_t n) {
             TokenBlocks({1, 2, 3}, 1, n);
           }},
          {"Loader batch_size", [](int64_t n) { batches_of(LoaderOptions{.batch_size = n}); }},
          {"Loader prefetch", [](int64_t n) { batches_of(LoaderOptions{.batch_size = 2, .prefetch = n}); }},
          {"Loader workers",
           [](int64_t n) { batches_of(LoaderOptions{.batch_size = 2, .workers = static_cast<int>(n >> 32)}); }},
          {"StreamLoader batch_size", [](int64_t n) { batches_of(StreamLoaderOptions{.batch_size = n}); }},
          {"StreamLoader prefetch", [](int64_t n) { batches_of(StreamLoaderOptions{.prefetch = n}); }},
          {"StreamLoader workers",
           [](int64_t n) { batches_of(StreamLoaderOptions{.workers = static_cast<int>(n >> 32)}); }},
          {"StreamLoader shuffle_buffer", [](int64_t n) { batches_of(StreamLoaderOptions{.shuffle_buffer = n}); }},
          {"StreamLoader ranks", [](int64_t n) { batches_of(StreamLoaderOptions{.ranks = n}); }},
          {"StreamLoader rank", [](int64_t n) { batches_of(StreamLoaderOptions{.rank = n - 1, .ranks = n}); }}};
}

std::vector<SizedCall> metrics() {
  using namespace nn;
  return {{"TopKAccuracy", [](int64_t n) { TopKAccuracy(n).compute(); }},
          {"ConfusionMatrix", [](int64_t n) { ConfusionMatrix(n).matrix(); }},
          {"F1", [](int64_t n) { F1({.classes = n}).compute(); }},
          {"Precision", [](int64_t n) { Precision({.classes = n}).per_class(); }},
          {"AUROC", [](int64_t n) { AUROC(n).compute(); }},
          {"AUROC state", [](int64_t n) { AUROC(n).state_dict(); }},
          {"Perplexity", [](int64_t n) { Perplexity(n).compute(); }},
          {"CalibrationError", [](int64_t n) { CalibrationError(n).compute(); }},
          {"Accuracy", [](int64_t n) {
             const Tensor one = from_vector(std::vector<int64_t>{n}, {1});
             Accuracy().update(one, one);
           }}};
}

TEST(HugeSizes, AreErrorsOrNoWork) {
  expect_errors_or_no_work({layers(), optimizers(), data_calls(), metrics()}, INT64_MIN + 1);
}

/// The last ranks repeat samples of the beginning, whatever the number of ranks.
TEST(HugeSizes, ManyRanksShareAStream) {
  for (const int64_t rank : {0, 9, 10, 13, 999}) {
    data::StreamLoader loader(
        [](int64_t) {
          return [next = 0]() mutable -> std::optional<std::vector<Tensor>> {
            if (next == 10) return std::nullopt;
            return std::vector<Tensor>{full({1}, next++)};
          };
        },
        data::StreamLoaderOptions{.rank = rank, .ranks = int64_t{1} << 50});
    std::vector<double> seen;
    for (const auto& batch : loader.epoch(0)) seen.push_back(batch[0].item<double>());
    EXPECT_EQ(seen, std::vector<double>{static_cast<double>(rank % 10)});
  }
}

}  // namespace
}  // namespace tern::test
