#pragma once
// Comparison of ops with numbers that PyTorch computed in float64 (tests/golden/README.md).

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tern/core/io/safetensors.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/places.h"

namespace tern::test {

using Json = nlohmann::json;
using GoldenTensors = std::map<std::string, Tensor>;
/// The op's result, from its name, parameters and inputs.
using RunGolden = std::function<Tensor(const std::string& op, const Json& params, const GoldenTensors& in)>;

inline const std::string kGolden = source_dir() + "/tests/golden/";

inline Tensor optional(const GoldenTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? Tensor() : found->second;
}

inline double norm_of(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

/// The case's results by name: "out" and "d_INPUT".
inline GoldenTensors results_of(const Json& test_case, const StateView& file, DType dtype, const RunGolden& run) {
  const std::string prefix = test_case["name"].get<std::string>() + "/";
  GoldenTensors in;
  for (const NamedTensor& entry : file) {
    if (!entry.name.starts_with(prefix)) continue;
    const std::string name = entry.name.substr(prefix.size());
    if (name == "out" || (name.starts_with("d_") && name != "d_out")) continue;
    in[name] = is_floating(entry.tensor.dtype()) ? entry.tensor.to(dtype).clone() : entry.tensor;
    if (is_floating(entry.tensor.dtype()) && name != "d_out") in[name].set_requires_grad(true);
  }
  GoldenTensors results;
  results["out"] = run(test_case["op"], test_case["params"], in);
  if (results["out"].requires_grad()) results["out"].backward(in.at("d_out"));
  for (const auto& [name, tensor] : in) results["d_" + name] = tensor.grad();
  return results;
}

/// Expects the results of all cases; elements that are not finite exactly.
/// `least`: number of results that must have been compared.
inline void expect_golden(const Json& cases, const std::string& path, double floor, DType dtype, const RunGolden& run,
                          int least = 40) {
  const StateView file = load_safetensors(path).tensors;
  int compared = 0;
  for (const Json& test_case : cases) {
    const std::string name = test_case["name"];
    // Four times the error of PyTorch's float32, and eight units, because a result with few roundings may be exact
    // there. In float64 the same number of roundings, scaled, and twice, because the reference has them too.
    const double single = 4 * test_case["float32_error"].get<double>() + 8 * 0x1p-24;
    const double tolerance = dtype == float64 ? 2 * single * 0x1p-29 : single;
    const GoldenTensors results = results_of(test_case, file, dtype, run);
    std::map<std::string, std::vector<double>> references;
    double all = 0;
    for (const std::string result : test_case["results"]) {
      references[result] = find(file, name + "/" + result).to_vector<double>();
      for (const double value : references[result]) all += std::isfinite(value) ? value * value : 0;
    }
    for (auto& [result, reference] : references) {
      ASSERT_TRUE(results.at(result).defined()) << name << "/" << result;
      std::vector<double> difference = results.at(result).to_vector<double>();
      ASSERT_EQ(difference.size(), reference.size()) << name << "/" << result;
      for (size_t i = 0; i < reference.size(); ++i) {
        const double expected = reference[i], found = difference[i];
        difference[i] -= expected;
        if (std::isfinite(expected)) continue;
        EXPECT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)))
            << name << "/" << result << " element " << i << ": got " << found << ", expected " << expected;
        difference[i] = reference[i] = 0;
      }
      EXPECT_LE(norm_of(difference), tolerance * std::max(norm_of(reference), floor * std::sqrt(all)))
          << name << "/" << result << " " << test_case["params"];
      ++compared;
    }
  }
  EXPECT_GE(compared, least);
}

}  // namespace tern::test
