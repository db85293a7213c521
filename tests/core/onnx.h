#pragma once
// The node tests of ONNX that tests/golden/onnx.safetensors holds: cases, the ops that compute them, comparison.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"
#include "tern/tests/core/tolerance.h"
#include "tern/tests/places.h"

namespace tern::test::onnx {

using Json = nlohmann::json;
using Tensors = std::vector<Tensor>;

/// One node with its inputs and the outputs that ONNX gives.
struct Case {
  std::string name, op, missing;  // missing: why the file has no tensors of it
  Json attributes = {};
  Tensors inputs = {};  // undefined where the node has none
  Tensors outputs = {};
  Device device;

  Tensor in(size_t i) const { return i < inputs.size() ? inputs[i] : Tensor(); }
  bool has(size_t i) const { return in(i).defined(); }
  /// The attribute, or the value that ONNX takes without it.
  template <class T>
  T get(const char* attribute, const T& otherwise) const {
    return attributes.value(attribute, otherwise);
  }
  int64_t integer(const char* attribute, int64_t otherwise) const { return get<int64_t>(attribute, otherwise); }
  int axis(int otherwise) const { return get<int>("axis", otherwise); }
  /// An input of numbers (axes, sizes) as the arguments of an op.
  template <class T = int64_t>
  std::vector<T> list(size_t i) const {
    const std::vector<int64_t> values = in(i).to_vector<int64_t>();
    return std::vector<T>(values.begin(), values.end());
  }
  double scalar(size_t i) const { return in(i).item<double>(); }
};

using Run = std::function<Tensors(const Case&)>;
/// By the name of ONNX's op.
using Table = std::map<std::string, Run>;

/// dim from the front.
inline int wrapped(int dim, int dims) { return dim < 0 ? dim + dims : dim; }

/// All cases of the file, with their tensors on the device.
inline std::vector<Case> load_cases(Device device) {
  const SafetensorsFile file = load_safetensors(source_dir() + "/tests/golden/onnx.safetensors");
  std::map<std::string, Tensor> tensors;
  for (const NamedTensor& entry : file.tensors) tensors[entry.name] = entry.tensor;
  std::vector<Case> cases;
  for (const Json& entry : Json::parse(file.metadata.at("cases"))) {
    Case c{.name = entry["name"], .op = entry["op"], .missing = entry.value("missing", ""), .device = device};
    if (c.missing.empty()) {
      c.attributes = entry["attributes"];
      const auto take = [&](const char* kind, size_t count) {
        Tensors list(count);
        for (size_t i = 0; i < count; ++i) {
          const auto found = tensors.find(c.name + "/" + kind + std::to_string(i));
          if (found != tensors.end()) list[i] = found->second.to(device);
        }
        return list;
      };
      c.inputs = take("in", entry["inputs"]);
      c.outputs = take("out", entry["outputs"]);
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

/// Per element |got - want| <= tolerance (|want| + a tenth of the largest |want|): sums of terms of different sign.
/// Integers, infinities and NaN are equal.
inline void expect_output(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_TRUE(got.defined());
  EXPECT_EQ(got.device(), want.device());
  ASSERT_EQ(name_of(got.dtype()), std::string(name_of(want.dtype())));
  ASSERT_EQ(got.shape(), want.shape());
  if (!is_floating(want.dtype())) {
    EXPECT_EQ(got.to_vector<int64_t>(), want.to_vector<int64_t>());
    return;
  }
  const std::vector<double> values = got.to_vector<double>(), expected = want.to_vector<double>();
  double largest = 0;
  for (const double value : expected) largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool equal = values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i]));
    const bool near = std::abs(values[i] - expected[i]) <= tolerance * (std::abs(expected[i]) + largest / 10);
    EXPECT_TRUE(equal || (std::isfinite(expected[i]) && near))
        << "element " << i << ": got " << values[i] << ", expected " << expected[i];
  }
}

inline void expect_outputs(const Case& c, const Run& run) {
  SCOPED_TRACE(testing::Message() << c.name << ", " << c.op << " " << c.attributes);
  try {
    const Tensors got = run(c);
    ASSERT_EQ(got.size(), c.outputs.size());
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "output " << i);
      expect_output(got[i], c.outputs[i], device_tolerance(c.outputs[i].dtype()));
    }
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

}  // namespace tern::test::onnx
