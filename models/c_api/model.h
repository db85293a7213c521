#pragma once
// Models of the C API: one way to run them, whatever they are.

#include <memory>
#include <string>
#include <vector>

#include "tern/models/c_api/call.h"
#include "tern/models/model.h"
#include "tern/models/onnx/onnx.h"
#include "tern/nn/layers/containers.h"
#include "tern/nn/layers/linear.h"
#include "tern/optim/optimizer.h"

namespace tern::models::c_api {

/// Linear layers with an op of tern_unary between them.
class Perceptron final : public nn::Module {
 public:
  Perceptron(const nn::Scope& scope, const std::vector<int64_t>& sizes, int32_t activation);
  Tensor forward(const Tensor& x) const;
  int64_t inputs() const { return inputs_; }

 private:
  nn::ModuleList<nn::Linear> layers_;
  int32_t activation_;
  int64_t inputs_;
};

/// What a handle and optimizers share.
struct SharedModel {
  std::atomic<const Call*> user = nullptr;
  std::unique_ptr<nn::Module> module;
  // The same as what it is; the others are null.
  onnx::Model* graph = nullptr;
  const SequenceClassifier* texts = nullptr;
  const ImageClassifier* images = nullptr;
  const Perceptron* layers = nullptr;
  std::vector<std::string> inputs, outputs;
  size_t required = 0;  // inputs that may not be left out; those of `graph` it checks itself
  Generator generator;
  DType autocast = DType::kFloat32;

  /// The model as Tern's families have it; null for the others.
  const Model* family_model() const;
  /// All outputs. inputs: as many as there are or fewer, undefined ones are left out.
  std::vector<Tensor> run(std::vector<Tensor> inputs) const;

 private:
  std::vector<Tensor> compute(const std::vector<Tensor>& given) const;
};

struct ModelHandle final : Object {
  std::shared_ptr<SharedModel> model;
};
struct OptimizerHandle final : Object {
  std::shared_ptr<SharedModel> model;  // whose weights it changes; null for tensors of the caller
  std::unique_ptr<optim::Optimizer> optimizer;
};

/// The model or the optimizer of a handle. The call then also holds the model.
SharedModel& model_of(Call& call, tern_model* model);
OptimizerHandle& optimizer_of(Call& call, tern_optimizer* optimizer);

}  // namespace tern::models::c_api
