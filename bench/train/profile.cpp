#include "tern/bench/train/profile.h"

#include "tern/bench/roofline.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"

namespace tern::bench {
namespace {

/// Median seconds of a call, over a tenth of a second and at least five calls.
template <class Body>
double median_seconds(Body&& body) {
  const Measurement m = measure(
      0.1, [&] { return body(), int64_t{0}; }, [] {});
  return median(m.seconds);
}

/// A linear layer's products alone: forward and, in training, both gradients. Seconds of one layer, under their names.
std::vector<std::pair<const char*, double>> product_seconds(const Product& product, const ModelOptions& options,
                                                            Generator& generator) {
  NoGrad off;
  const auto random = [&](int64_t rows, int64_t cols) { return randn({1, rows, cols}, generator).to(options.dtype); };
  const Tensor x = random(product.rows, product.in), weight = random(product.out, product.in);
  const Tensor y = random(product.rows, product.out);
  const auto seconds = [&](bool transpose_a, bool transpose_b, const Tensor& a, const Tensor& b, const Tensor& c) {
    const Tensor space = empty({kernels::gemm_workspace({}, transpose_a, transpose_b, a.view(), b.view(), c.view())},
                               {.dtype = DType::kUInt8});
    return median_seconds(
        [&] { kernels::gemm({}, transpose_a, transpose_b, 1, a.view(), b.view(), 0, c.view(), space.raw_data()); });
  };
  if (!options.train) return {{"forward", seconds(false, true, x, weight, y)}};
  return {{"forward", seconds(false, true, x, weight, y)},
          {"input_gradient", seconds(false, false, y, weight, x)},
          {"weight_gradient", seconds(true, false, y, x, weight)}};
}

/// Attention of all layers, forward and, in training, backward.
double attention_seconds(const ModelStep& step, const models::DistilBertConfig& config,
                         const models::EncoderInput& input, Generator& generator) {
  const ModelOptions& options = step.options();
  const int64_t rows = input.tokens.numel(), head_size = config.width / config.heads;
  const int64_t layers = options.full_last_layer ? config.layers : config.layers - 1;
  Tensor qkv = randn({rows, 3, config.heads, head_size}, generator).to(options.dtype);
  qkv.set_requires_grad(options.train);
  const Tensor gradient = randn({rows, config.width}, generator).to(options.dtype);
  const AttentionOptions attention{.dropout = options.train ? config.attention_dropout : 0, .generator = &generator};
  const GradMode mode(options.train);
  return static_cast<double>(layers) * median_seconds([&] {
           const Tensor out = self_attention(qkv, input.layout, attention);
           if (!options.train) return;
           out.backward(gradient);
           qkv.set_grad({});
         });
}

}  // namespace

Json profile(ModelStep& step, const models::EncoderInput& input, const std::vector<int64_t>& lengths,
             double step_seconds, const PhaseSeconds& phases, size_t steps) {
  const models::DistilBertConfig& config = step.model().config();
  const ModelOptions& options = step.options();
  Generator generator(1);
  double gemm = 0;
  Json rates = Json::array();
  for (const Product& product : products(config, lengths, options.full_last_layer)) {
    Json line = {{"rows", product.rows}, {"in", product.in}, {"out", product.out}, {"layers", product.layers}};
    for (const auto& [pass, seconds] : product_seconds(product, options, generator)) {
      gemm += seconds * static_cast<double>(product.layers);
      line[std::string(pass) + "_gflops"] =
          2e-9 * static_cast<double>(product.rows * product.in * product.out) / seconds;
    }
    rates.push_back(line);
  }
  const double attention = attention_seconds(step, config, input, generator);
  const double all = phases.forward + phases.backward + phases.update;
  const double rate = matrix_rate(options.dtype);
  Json result = {{"step_seconds", step_seconds},
                 {"steps", steps},
                 {"forward_share", phases.forward / all},
                 {"backward_share", phases.backward / all},
                 {"update_share", phases.update / all},
                 {"gemm_share", gemm / step_seconds},
                 {"attention_share", attention / step_seconds},
                 {"rest_share", 1 - (gemm + attention) / step_seconds},
                 {"library_gflops", rate / 1e9},
                 {"products", rates}};
  if (rate > 0) result["gemm_rate_share"] = step_flops(config, lengths, options) / step_seconds / rate;
  return result;
}

}  // namespace tern::bench
