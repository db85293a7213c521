#pragma once
// ONNX files for the tests of models that are made of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/core/ops/ops.h"
#include "tern/models/log.h"
#include "tern/models/onnx/classifiers/files.h"
#include "tern/models/onnx/classifiers/onnx_models.h"
#include "tern/models/onnx/export.h"
#include "tern/models/onnx/onnx.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/models/golden_texts.h"
#include "tern/tests/models/onnx_writer.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {

namespace fs = std::filesystem;
using test::error_of;
using test::has;
using test::Message;
using Floats = std::vector<float>;

class OnnxModels : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(file(name)).parent_path());
    std::ofstream(file(name), std::ios::binary) << text;
  }
  void write(const std::string& name, const Message& model) const { write(name, model.bytes()); }
  static void expect_near(const Tensor& got, const Tensor& want, double tolerance = 1e-5) {
    ASSERT_EQ(got.shape(), want.shape());
    const auto a = got.to_vector<double>(), b = want.to_vector<double>();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << i;
  }

  const test::TemporaryFolder folder_;
};

/// [rows, 2] of pixels: the means of the channels x a matrix. Channels last where `last`.
inline Message image_network(const std::vector<int64_t>& dims, bool last, const std::string& end = "") {
  const int64_t channels = std::max<int64_t>(1, dims[last ? 3 : 1]);
  Message graph;
  graph.message(
      1, test::onnx_node("ReduceMean", {"x", "axes"}, {"means"}).message(5, test::onnx_attribute("keepdims", 0)));
  graph.message(1, test::onnx_node("Gemm", {"means", "fc.weight", "fc.bias"}, {end.empty() ? "y" : "h"}));
  if (!end.empty()) graph.message(1, test::onnx_node(end, {"h"}, {"y"}));
  graph.text(2, "g");
  Floats weight;
  for (int64_t i = 0; i < 2 * channels; ++i) weight.push_back(0.5f * static_cast<float>(i) - 1);
  graph.message(5, test::onnx_floats("fc.weight", {channels, 2}, weight));
  graph.message(5, test::onnx_floats("fc.bias", {2}, {0.25f, -0.125f}));
  const std::vector<int64_t> axes = last ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 3};
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), axes.data(), 16);
  graph.message(5, Message().number(1, 2).number(2, 7).text(8, "axes").text(9, bytes));
  graph.message(11, test::onnx_value("x", dims)).message(12, test::onnx_value("y", {dims[0], 2}));
  return test::onnx_model(graph);
}

/// The same of [n, 3, h, w] by hand.
inline Tensor image_logits(const Tensor& means) {
  Floats weight;
  for (int64_t i = 0; i < 2 * means.size(1); ++i) weight.push_back(0.5f * static_cast<float>(i) - 1);
  return matmul(means, from_vector(weight, {means.size(1), 2})) + from_vector(Floats{0.25f, -0.125f}, {2});
}

}  // namespace tern::models
