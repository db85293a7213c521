#pragma once
// The node tests of ONNX that tests/golden/onnx.safetensors holds, by import of their models.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"
#include "tern/models/onnx/onnx.h"
#include "tern/tests/core/tolerance.h"
#include "tern/tests/places.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::test {

/// A model, and what it gives of these inputs. A list has one tensor, or those of a sequence.
struct OnnxCase {
  using Lists = std::vector<std::vector<Tensor>>;
  std::string name, op, missing;  // missing: why there are no numbers
  Tensor model = {};              // bytes
  Lists inputs = {}, outputs = {};
};

inline std::vector<OnnxCase> load_onnx_cases() {
  const char* other = std::getenv("TERN_ONNX_CASES");
  const SafetensorsFile file =
      load_safetensors(other != nullptr ? other : source_dir() + "/tests/golden/onnx.safetensors");
  std::map<std::string, Tensor> tensors;
  for (const NamedTensor& entry : file.tensors) tensors[entry.name] = entry.tensor;
  std::vector<OnnxCase> cases;
  for (const auto& entry : nlohmann::json::parse(file.metadata.at("cases"))) {
    OnnxCase c{.name = entry["name"], .op = entry["op"], .missing = entry.value("unread", "")};
    if (const auto model = tensors.find(c.name + "/model"); model != tensors.end()) c.model = model->second;
    const auto take = [&](const char* kind) {
      OnnxCase::Lists lists;
      for (const std::vector<int> place : entry[kind]) {  // of the first tensor, and how many
        auto& list = lists.emplace_back(place[1] == -2 ? 1 : 0);
        for (int i = 0; i < std::abs(place[1]) && place[1] != -2; ++i)
          list.push_back(tensors.at(c.name + "/" + kind + std::to_string(place[0] + i)));
      }
      return lists;
    };
    if (c.missing.empty()) {
      c.inputs = take("in");
      c.outputs = take("out");
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

/// A file with the model of a case.
inline std::string file_of(const OnnxCase& c, const TemporaryFolder& folder) {
  const std::string path = folder / (c.name + ".onnx");
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(c.model.raw_data()), static_cast<std::streamsize>(c.model.nbytes()));
  return path;
}

/// The model of a case; of layers in training in that mode.
inline std::unique_ptr<onnx::Model> model_of(const OnnxCase& c, const TemporaryFolder& folder,
                                             const onnx::LoadOptions& options = {}) {
  auto model = onnx::load(file_of(c, folder), options);
  model->train(c.name.find("training") != std::string::npos);
  return model;
}

/// Per element |got - want| <= tolerance (|want| + a tenth of the largest |want|): sums of terms of different sign.
/// Integers, infinities and NaN are equal. What differs, or nothing.
inline std::string onnx_difference(const Tensor& got, const Tensor& want, double tolerance) {
  if (got.defined() != want.defined()) return "one is undefined";
  if (!want.defined()) return "";
  if (got.dtype() != want.dtype() || got.shape() != want.shape())
    return "got " + got.describe() + ", expected " + want.describe();
  const std::vector<double> values = got.to_vector<double>(), expected = want.to_vector<double>();
  if (!is_floating(want.dtype())) return values == expected ? "" : "integers differ";
  double largest = 0;
  for (const double value : expected) largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool equal = values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i]));
    const bool near = std::abs(values[i] - expected[i]) <= tolerance * (std::abs(expected[i]) + largest / 10);
    if (!equal && !(std::isfinite(expected[i]) && near))
      return "element " + std::to_string(i) + ": got " + std::to_string(values[i]) + ", expected " +
             std::to_string(expected[i]);
  }
  return "";
}

/// What differs between the outputs of a case and those of its model on a device, or nothing.
inline std::string difference_of(const OnnxCase& c, const onnx::Model& model) {
  OnnxCase::Lists inputs = c.inputs;
  for (auto& list : inputs)
    for (Tensor& x : list)
      if (x.defined()) x = x.to(model.device());
  const OnnxCase::Lists got = model.forward_lists(inputs);
  if (got.size() != c.outputs.size()) return "another number of outputs";
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].size() != c.outputs[i].size()) return "another length of sequence " + std::to_string(i);
    for (size_t k = 0; k < got[i].size(); ++k) {
      const Tensor& want = c.outputs[i][k];
      const std::string difference =
          onnx_difference(got[i][k], want, want.defined() ? device_tolerance(want.dtype()) : 0);
      if (!difference.empty()) return "output " + std::to_string(i) + ": " + difference;
    }
  }
  return "";
}

/// Cases whose numbers cannot be compared.
inline const std::map<std::string, std::string> kOnnxLeftOut = {
    {"test_averagepool_2d_ceil_last_window_starts_on_pad", "expected numbers of four digits"},
    {"test_gridsample_bicubic", "expected numbers of four digits"},
    {"test_roialign_aligned_false", "expected numbers of four digits"},
    {"test_roialign_aligned_true", "expected numbers of four digits"},
    {"test_bernoulli", "NumPy's random numbers"},
    {"test_bernoulli_double", "NumPy's random numbers"},
    {"test_bernoulli_seed", "NumPy's random numbers"},
    {"test_training_dropout", "NumPy's random numbers"},
    {"test_training_dropout_default", "NumPy's random numbers"},
    {"test_training_dropout_default_mask", "NumPy's random numbers"},
    {"test_training_dropout_mask", "NumPy's random numbers"},
};

/// Ops that load() refuses; and cases, each with the op that an error names: Col2Im of three dimensions, inputs of
/// strings, an attribute that is a type, opset 1.
inline const std::set<std::string> kOnnxRefused = {
    "ArrayFeatureExtractor", "Binarizer",        "ImageDecoder", "LabelEncoder",    "RegexFullMatch",
    "StringConcat",          "StringNormalizer", "StringSplit",  "TfIdfVectorizer", "TreeEnsemble"};
inline const std::map<std::string, std::string> kOnnxRefusedCases = {
    {"test_col2im_5d", "Col2Im"}, {"test_equal_string", ""}, {"test_equal_string_broadcast", ""},
    {"test_if_opt", "Optional"},  {"test_not_2d", "Not"},    {"test_not_3d", "Not"},
    {"test_not_4d", "Not"},
};

}  // namespace tern::test
