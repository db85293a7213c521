#pragma once
// Comparison with numbers that PyTorch computed in float64 (tests/golden/README.md).

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tern/core/io/safetensors.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/places.h"

namespace tern::test::golden {

using Json = nlohmann::json;
using Tensors = std::map<std::string, Tensor>;
/// The result of a case. What it puts into `in` under the name of an input is the leaf whose gradient is compared.
using Run = std::function<Tensor(const std::string& op, const Json& params, Tensors& in)>;

inline Tensor optional(const Tensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? Tensor() : found->second;
}

inline double norm_of(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

/// The case's results by name: "out" and "d_INPUT".
inline Tensors results_of(const Json& test_case, const StateView& file, DType dtype, const Run& run) {
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
  results["out"] = run(test_case["op"], test_case["params"], in);
  if (results["out"].requires_grad()) results["out"].backward(in.at("d_out"));
  for (const auto& [name, tensor] : in) results["d_" + name] = tensor.grad();
  return results;
}

/// Compares the cases of a group with its file, in `least` results at least; elements that are not finite exactly.
inline void check(const char* index_file, const char* group, DType dtype, const Run& run, int least = 40) {
  const std::string folder = source_dir() + "/tests/golden/";
  const Json index = Json::parse(std::ifstream(folder + index_file));
  const double floor = index["tolerances"][group]["floor"];
  const StateView file = load_safetensors(folder + index[group]["file"].get<std::string>()).tensors;
  int compared = 0;
  for (const Json& test_case : index[group]["cases"]) {
    const std::string name = test_case["name"];
    // Four times the error of PyTorch's float32, and eight units, because a result with few roundings may be exact
    // there. In float64 the same number of roundings, scaled, and twice, because the reference has them too.
    const double single = 4 * test_case["float32_error"].get<double>() + 8 * 0x1p-24;
    const double tolerance = dtype == float64 ? 2 * single * 0x1p-29 : single;
    const Tensors results = results_of(test_case, file, dtype, run);
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

}  // namespace tern::test::golden
