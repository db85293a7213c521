// Every op against numbers that PyTorch computed in float64 (tests/golden/README.md), in float32 and float64.

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tern/core/io/safetensors.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/places.h"

namespace tern::test {
namespace {

using Json = nlohmann::json;
using Tensors = std::map<std::string, Tensor>;

const std::string kFolder = source_dir() + "/tests/golden/";

Tensor optional(const Tensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? Tensor() : found->second;
}

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

Tensor run_op(const std::string& op, const Json& params, const Tensors& in) {
  if (op == "attention") return run_attention(params, in);
  if (op == "layer_norm") return layer_norm(in.at("x"), optional(in, "weight"), optional(in, "bias"), params["eps"]);
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

double norm_of(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

/// The case's results by name: "out" and "d_INPUT".
Tensors results_of(const Json& test_case, const StateView& file, DType dtype) {
  const std::string prefix = test_case["name"].get<std::string>() + "/";
  Tensors in;
  for (const NamedTensor& entry : file) {
    if (!entry.name.starts_with(prefix)) continue;
    const std::string name = entry.name.substr(prefix.size());
    if (name == "out" || (name.starts_with("d_") && name != "d_out")) continue;
    in[name] = is_floating(entry.tensor.dtype()) ? entry.tensor.to(dtype).clone() : entry.tensor;
    if (is_floating(entry.tensor.dtype()) && name != "d_out") in[name].set_requires_grad(true);
  }
  Tensors results;
  results["out"] = run_op(test_case["op"], test_case["params"], in);
  results["out"].backward(in.at("d_out"));
  for (const auto& [name, tensor] : in) results["d_" + name] = tensor.grad();
  return results;
}

void check_file(const char* group, DType dtype) {
  const Json index = Json::parse(std::ifstream(kFolder + "index.json"));
  const double floor = index["tolerances"][group]["floor"];
  const StateView file = load_safetensors(kFolder + index[group]["file"].get<std::string>()).tensors;
  int compared = 0;
  for (const Json& test_case : index[group]["cases"]) {
    const std::string name = test_case["name"];
    // Four times the error of PyTorch's float32, and eight units, because a result with few roundings may be exact
    // there. In float64 the same number of roundings, scaled, and twice, because the reference has them too.
    const double single = 4 * test_case["float32_error"].get<double>() + 8 * 0x1p-24;
    const double tolerance = dtype == float64 ? 2 * single * 0x1p-29 : single;
    const Tensors results = results_of(test_case, file, dtype);
    std::map<std::string, std::vector<double>> references;
    double all = 0;
    for (const std::string result : test_case["results"]) {
      references[result] = find(file, name + "/" + result).to_vector<double>();
      all += std::pow(norm_of(references[result]), 2);
    }
    for (const auto& [result, reference] : references) {
      ASSERT_TRUE(results.at(result).defined()) << name << "/" << result;
      std::vector<double> difference = results.at(result).to_vector<double>();
      ASSERT_EQ(difference.size(), reference.size()) << name << "/" << result;
      for (size_t i = 0; i < reference.size(); ++i) difference[i] -= reference[i];
      EXPECT_LE(norm_of(difference), tolerance * std::max(norm_of(reference), floor * std::sqrt(all)))
          << name << "/" << result << " " << test_case["params"];
      ++compared;
    }
  }
  EXPECT_GE(compared, 40);
}

TEST(Golden, OpsFloat32) { check_file("ops", float32); }
TEST(Golden, OpsFloat64) { check_file("ops", float64); }
TEST(Golden, AttentionFloat32) { check_file("attention", float32); }
TEST(Golden, AttentionFloat64) { check_file("attention", float64); }

}  // namespace
}  // namespace tern::test
