// Networks that PyTorch's exporter wrote (tests/models/python/export_torch.py): what they give, how they train beside
// PyTorch, and the same written as ONNX files once more, which onnxruntime reads.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/core/graph/graph.h"
#include "tern/core/io/npy.h"
#include "tern/core/ops/ops.h"
#include "tern/models/onnx/export.h"
#include "tern/models/onnx/onnx.h"
#include "tern/optim/optim.h"
#include "tern/tests/places.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

using Tensors = std::vector<Tensor>;

class Exported {
 public:
  Exported(std::string folder, const nlohmann::json& row) : folder_(std::move(folder)), row_(row) {
    for (int64_t i = 0; i < row.at("inputs"); ++i) inputs_.push_back(read("in" + std::to_string(i)));
  }

  void run() const {
    const auto model = onnx::load(path(".onnx"));
    check_outputs(*model);
    if (row_.at("rate") > 0) train(row_.at("normed") ? ".train.onnx" : ".onnx");
    write_again(*model);
  }

 private:
  std::string name() const { return row_.at("name"); }
  std::string path(const std::string& end) const { return folder_ + "/" + name() + end; }
  Tensor read(const std::string& part) const { return load_npy(path("." + part + ".npy")); }

  /// Within 1e-4 of the largest.
  void check_outputs(const onnx::Model& model) const {
    NoGrad off;
    const Tensors outputs = model.forward(inputs_);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor want = read("out" + std::to_string(i));
      ASSERT_EQ(outputs[i].shape(), want.shape());
      const double most = max(abs(want)).item<double>();
      EXPECT_GT(most, 0.05);
      EXPECT_LE(max(abs(outputs[i] - want)).item<double>(), 1e-4 * most) << "output " << i;
    }
  }

  void train(const std::string& end) const {
    // Networks with batch norms are exported without them folded, for inference.
    const auto model = onnx::load(path(end), {.train_inference_nodes = row_.at("normed")});
    model->train();
    optim::SGD optimizer(model->parameters(), {.lr = row_.at("rate")});
    const Tensor labels = read("labels");
    const std::vector<double> want = read("losses").to_vector<double>();
    for (size_t step = 0; step < want.size(); ++step) {
      const Tensor logits = model->forward(inputs_)[0];
      const Tensor loss = cross_entropy(logits, labels);
      EXPECT_NEAR(loss.item<double>(), want[step], 1e-3) << "step " << step;
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
  }

  /// The traced network as a file, which is read again and kept for check_onnx.py.
  void write_again(const onnx::Model& model) const {
    NoGrad off;
    const Graph graph = trace([&](const Tensors& in) { return model.forward(in); }, inputs_, {});
    const std::string folder = folder_ + "/again", to = folder + "/" + name() + ".onnx";
    std::filesystem::create_directory(folder);
    onnx::save(graph, to);
    const Tensors outputs = model.forward(inputs_), found = onnx::load(to)->forward(inputs_);
    for (size_t i = 0; i < inputs_.size(); ++i)
      save_npy(inputs_[i], folder + "/" + name() + ".in" + std::to_string(i) + ".npy");
    for (size_t i = 0; i < outputs.size(); ++i) {
      save_npy(outputs[i], folder + "/" + name() + ".out" + std::to_string(i) + ".npy");
      EXPECT_LE(max(abs(found[i] - outputs[i])).item<double>(), 1e-5 * (1 + max(abs(outputs[i])).item<double>()));
    }
  }

  std::string folder_;
  const nlohmann::json row_;
  Tensors inputs_;
};

TEST(OnnxTorch, NetworksGiveTrainAndAreWrittenAgain) {
  const char* const python = std::getenv("TERN_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "python: TERN_PYTHON names no Python with torch, torchvision and transformers";
  const test::TemporaryFolder folder;
  const auto run = [&](const std::string& script, const std::string& arguments) {
    const std::string command =
        "'" + std::string(python) + "' '" + test::source_dir() + "/tests/models/python/" + script + "' " + arguments;
    return WEXITSTATUS(std::system(command.c_str()));
  };
  const int status = run("export_torch.py", "'" + folder.path().string() + "'");
  if (status == 77) GTEST_SKIP() << "python: TERN_PYTHON names no Python with torch, torchvision and transformers";
  ASSERT_EQ(status, 0);
  for (const nlohmann::json& row : nlohmann::json::parse(std::ifstream(folder / "networks.json"))) {
    SCOPED_TRACE(row.at("name").get<std::string>());
    try {
      Exported(folder.path().string(), row).run();
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_EQ(run("check_onnx.py", "'" + (folder / "again") + "' 1e-4"), 0);
}

}  // namespace
}  // namespace tern::models
