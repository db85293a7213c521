#pragma once
// A model compared with the library that it is from: tests/golden.

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tern/core/autograd/parameter.h"
#include "tern/core/io/safetensors.h"
#include "tern/core/memory/allocator.h"
#include "tern/models/key_map.h"
#include "tern/nn/module.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/places.h"

namespace tern::models {

using test::expect_near;

inline const std::string kGolden = test::source_dir() + "/tests/golden/";
inline constexpr double kClose = 20 * 4 * 0x1p-24;  // some twenty roundings of numbers below 4

inline const nlohmann::json& golden_index() {
  static const nlohmann::json index = nlohmann::json::parse(std::ifstream(kGolden + "index.json"));
  return index;
}
/// Inputs and results of a model.
inline StateView expected_of(const std::string& folder) {
  return load_safetensors(kGolden + folder + "/expected.safetensors").tensors;
}
/// Tolerances from tests/golden: PyTorch's float32 uses at most half of them.
inline double tolerance(const char* part, const char* name) {
  return golden_index().at("tolerances").at(part).at(name).get<double>();
}
/// Tolerance of a model's gradients: four times the error of PyTorch's float32.
inline double tolerance(const std::string& folder) {
  for (const auto& model : golden_index().at("models"))
    if (model.at("folder") == folder) return 4 * model.at("float32_error").get<double>();
  fail("tests/golden/index.json has no model ", folder);
}

inline double l2(const std::vector<double>& v) {
  return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
}
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  std::vector<double> difference(a.size());
  std::transform(a.begin(), a.end(), b.begin(), difference.begin(), std::minus());
  return l2(difference);
}

/// Compares logits and loss, and the gradients of all parameters, whose references are named "grad/NAME" by the key
/// map. Returns how many were compared; those whose name ends with `zero`, zero in exact arithmetic, are left out.
inline size_t expect_golden_pass(nn::Module& model, const KeyMap& names, const Tensor& logits,
                                 const std::string& folder, const std::string& zero = "none") {
  const StateView expected = expected_of(folder);
  expect_near(logits, find(expected, "logits"), kClose);
  const Tensor loss = cross_entropy(logits, find(expected, "labels"));
  EXPECT_NEAR(loss.item<double>(), find(expected, "loss").item<double>(), kClose);
  loss.backward();

  double squares = 0;
  for (const NamedTensor& entry : expected)
    if (entry.name.starts_with("grad/")) squares += std::pow(l2(entry.tensor.to_vector<double>()), 2);
  const double least = tolerance("models", "floor") * std::sqrt(squares);
  StateView gradients;
  for (const NamedTensor& p : model.parameters()) {
    EXPECT_TRUE(p.tensor.grad().defined()) << p.name;
    gradients.push_back({p.name, p.tensor.grad()});
  }
  size_t compared = 0;
  for (const NamedTensor& gradient : to_checkpoint_names(names, gradients)) {
    if (gradient.name.ends_with(zero)) continue;
    const std::vector<double> reference = find(expected, "grad/" + gradient.name).to_vector<double>();
    EXPECT_LE(distance(gradient.tensor.to_vector<double>(), reference),
              tolerance(folder) * std::max(l2(reference), least))
        << gradient.name;
    ++compared;
  }
  return compared;
}

/// Logits and gradients of one training pass, and the bytes that it keeps for backward.
struct TrainingPass {
  std::vector<std::vector<double>> values;
  int64_t kept_bytes = 0;
};
template <class Forward>
TrainingPass training_pass(nn::Module& model, const Forward& forward, const Tensor& labels) {
  const int64_t before = allocator(cpu).statistics().live_bytes;
  const Tensor logits = forward();
  TrainingPass pass{{logits.to_vector<double>()}, allocator(cpu).statistics().live_bytes - before};
  cross_entropy(logits, labels).backward();
  for (const NamedTensor& p : model.parameters()) pass.values.push_back(p.tensor.grad().to_vector<double>());
  return pass;
}

}  // namespace tern::models
