// Every op against numbers that PyTorch computed in float64 (tests/golden/README.md), in float32 and float64.

#include <optional>

#include "tern/tests/core/golden.h"

namespace tern::test {
namespace {

using golden::Json;
using golden::optional;
using golden::Tensors;

/// Converts [batch, sequence, heads, size] tensors to the packed layout of the op.
Tensor run_attention(const Json& params, const Tensors& in) {
  const Tensor &q = in.at("q"), &k = in.at("k"), &v = in.at("v");
  const auto rows = [](const Tensor& x) { return x.reshape({x.size(0) * x.size(1), x.size(2), x.size(3)}); };
  const SequenceLayout queries = padded_layout(q.size(0), q.size(1));
  const SequenceLayout keys = padded_layout(k.size(0), k.size(1), optional(in, "key_mask"));
  AttentionOptions options{.scale = params["scale"], .causal = params["causal"], .window = params["window"]};
  options.bias = optional(in, "bias");
  return attention(rows(q), rows(k), rows(v), queries, keys, options).reshape(q.shape());
}

Tensor run_op(const std::string& op, const Json& params, Tensors& in) {
  if (op == "attention") return run_attention(params, in);
  if (op == "layer_norm") return layer_norm(in.at("x"), optional(in, "weight"), optional(in, "bias"), params["eps"]);
  if (op == "rms_norm")
    return rms_norm(in.at("x"), optional(in, "weight"),
                    params["eps"].is_null() ? std::nullopt : std::optional<double>(params["eps"].get<double>()));
  if (op == "gelu") return params["approximate"] == "none" ? gelu(in.at("x")) : gelu_tanh(in.at("x"));
  if (op == "softmax") return softmax(in.at("x"));
  if (op == "log_softmax") return log_softmax(in.at("x"));
  if (op == "linear") return linear(in.at("x"), in.at("weight"), optional(in, "bias"));
  if (op == "embedding") return embedding(in.at("weight"), in.at("ids"), params["padding_index"]);
  if (op == "cross_entropy") {
    const std::string reduction = params["reduction"];
    return cross_entropy(in.at("x"), in.at("target"),
                         {.ignore_index = params["ignore_index"],
                          .label_smoothing = params["label_smoothing"],
                          .reduction = reduction == "mean"  ? LossReduction::kMean
                                       : reduction == "sum" ? LossReduction::kSum
                                                            : LossReduction::kNone});
  }
  fail("the test does not know the op ", op);
}

TEST(Golden, OpsFloat32) { golden::check("index.json", "ops", float32, run_op); }
TEST(Golden, OpsFloat64) { golden::check("index.json", "ops", float64, run_op); }
TEST(Golden, NormsFloat32) { golden::check("nn.json", "norms", float32, run_op, 14); }
TEST(Golden, NormsFloat64) { golden::check("nn.json", "norms", float64, run_op, 14); }
TEST(Golden, AttentionFloat32) { golden::check("index.json", "attention", float32, run_op); }
TEST(Golden, AttentionFloat64) { golden::check("index.json", "attention", float64, run_op); }

}  // namespace
}  // namespace tern::test
