// The C API's models, optimizers and files.

#include <filesystem>
#include <fstream>

#include "tern/tests/models/c_api_test.h"

namespace tern::models {
namespace {

using CApiModels = CApi;

/// y = w2 tanh(w1 x + b1) + b2.
Doubles perceptron(const Doubles& x, const Doubles& w1, const Doubles& b1, const Doubles& w2, const Doubles& b2) {
  const size_t hidden = b1.size(), out = b2.size(), in = w1.size() / hidden, rows = x.size() / in;
  Doubles y;
  for (size_t r = 0; r < rows; ++r)
    for (size_t o = 0; o < out; ++o) {
      double sum = b2[o];
      for (size_t h = 0; h < hidden; ++h) {
        double inner = b1[h];
        for (size_t i = 0; i < in; ++i) inner += w1[h * in + i] * x[r * in + i];
        sum += w2[o * hidden + h] * std::tanh(inner);
      }
      y.push_back(sum);
    }
  return y;
}

TEST_F(CApiModels, ModelsOfLinearLayersComputeWhatLoopsDo) {
  tern_model* const model = mlp({3, 7, 5}, TERN_TANH);
  const Doubles x = random(4 * 3);
  const auto wanted = perceptron(x, parameter(model, "layers.0.weight"), parameter(model, "layers.0.bias"),
                                 parameter(model, "layers.1.weight"), parameter(model, "layers.1.bias"));
  tern_tensor* const y = run(model, tensor(x, {4, 3}));
  EXPECT_EQ(shape(y), (Sizes{4, 5}));
  expect_near(values(y), wanted, 1e-12);
  int64_t tensors = 0, elements = 0;
  ok(tern_model_parameter_count(model, &tensors, &elements, status_));
  EXPECT_EQ(tensors, 4);
  EXPECT_EQ(elements, 3 * 7 + 7 + 7 * 5 + 5);
  // By name; what is missing, unknown or twice.
  const char *x_name[] = {"x", "x"}, *y_name[] = {"y"}, *other[] = {"z"};
  tern_tensor *inputs[] = {tensor(x, {4, 3}), tensor(x, {4, 3})}, *output = nullptr;
  ok(tern_model_run_named(model, x_name, inputs, 1, y_name, &output, 1, status_));
  expect_near(values(kept(output)), wanted, 1e-12);
  fails(tern_model_run_named(model, other, inputs, 1, y_name, &output, 1, status_), TERN_ERROR_ARGUMENT,
        "no 'z', but 'x'");
  fails(tern_model_run_named(model, x_name, inputs, 2, y_name, &output, 1, status_), TERN_ERROR_ARGUMENT, "twice");
  fails(tern_model_run_named(model, x_name, inputs, 1, other, &output, 1, status_), TERN_ERROR_ARGUMENT, "no 'z'");
  fails(tern_model_run(model, inputs, 0, &output, 1, status_), TERN_ERROR_ARGUMENT, "'x' is missing");
  fails(tern_model_run(model, inputs, 2, &output, 1, status_), TERN_ERROR_ARGUMENT, "1 inputs, got 2");
  tern_tensor* outputs[2] = {};
  fails(tern_model_run(model, inputs, 1, outputs, 2, status_), TERN_ERROR_ARGUMENT, "1 outputs");
  fails(tern_model_run(model, inputs, -1, outputs, 1, status_), TERN_ERROR_ARGUMENT, "-1");
  tern_tensor* wide = tensor(x, {3, 4});
  fails(tern_model_run(model, &wide, 1, &output, 1, status_), TERN_ERROR_FAILED, "linear");
  EXPECT_EQ(output, nullptr);
  const Sizes zero{3, 0};
  tern_model* none = nullptr;
  fails(tern_model_mlp(zero.data(), 2, TERN_TANH, nullptr, &none, status_), TERN_ERROR_ARGUMENT, "sizes[1] is 0");
  fails(tern_model_mlp(zero.data(), 1, TERN_TANH, nullptr, &none, status_), TERN_ERROR_ARGUMENT, "count");
  fails(tern_model_mlp(zero.data(), 2, 16, nullptr, &none, status_), TERN_ERROR_ARGUMENT, "sizes");
}

TEST_F(CApiModels, AStepOfSgdIsThatOfLoops) {
  const Doubles x = random(4 * 3), t = random(4);
  tern_model* const model = mlp({3, 1}, TERN_TANH);
  tern_optimizer* const updated = optimizer(model, "sgd", 0.1, 0);
  const Doubles w = parameter(model, "layers.0.weight"), b = parameter(model, "layers.0.bias");
  Doubles dw(3);
  double db = 0, loss = 0;
  for (size_t r = 0; r < 4; ++r) {
    double error = b[0] - t[r];
    for (size_t i = 0; i < 3; ++i) error += w[i] * x[3 * r + i];
    loss += error * error / 4;
    db += 2 * error / 4;
    for (size_t i = 0; i < 3; ++i) dw[i] += 2 * error * x[3 * r + i] / 4;
  }
  tern_tensor *input = tensor(x, {4, 3}), *target = tensor(t, {4, 1});
  double found = 0;
  ok(tern_set_grad_enabled(0, nullptr, status_));  // a step records by itself
  ok(tern_model_train_step(model, updated, &input, 1, TERN_MSE, target, nullptr, nullptr, &found, status_));
  ok(tern_set_grad_enabled(1, nullptr, status_));
  EXPECT_NEAR(found, loss, 1e-12);
  expect_near(parameter(model, "layers.0.bias"), {b[0] - 0.1 * db}, 1e-12);
  expect_near(parameter(model, "layers.0.weight"), {w[0] - 0.1 * dw[0], w[1] - 0.1 * dw[1], w[2] - 0.1 * dw[2]}, 1e-12);
  // An error changes nothing and leaves no gradients.
  const Doubles before = weights(model);
  tern_tensor *wrong = tensor(x, {4, 3}), *sum = nullptr;
  ok(tern_reduce(TERN_SUM, run(model, input), nullptr, 0, 0, &sum, status_));
  kept(sum);
  ok(tern_backward(&sum, nullptr, 1, 0, status_));
  fails(tern_model_train_step(model, updated, &input, 1, TERN_MSE, wrong, nullptr, nullptr, &found, status_),
        TERN_ERROR_FAILED, "mse");
  EXPECT_EQ(weights(model), before);
  ok(tern_optimizer_step(updated, nullptr, nullptr, status_));
  EXPECT_EQ(weights(model), before);
  tern_loss_options none{.size = sizeof none, .reduction = TERN_REDUCE_NONE};
  fails(tern_model_train_step(model, updated, &input, 1, TERN_MSE, target, &none, nullptr, &found, status_),
        TERN_ERROR_ARGUMENT, "one number");
  fails(tern_model_train_step(mlp({3, 1}, TERN_TANH), updated, &input, 1, TERN_MSE, target, nullptr, nullptr, &found,
                              status_),
        TERN_ERROR_ARGUMENT, "another model");
}

TEST_F(CApiModels, OptimizersClipSkipAndOutliveTheirModel) {
  tern_model* const model = mlp({3, 1}, TERN_TANH);
  tern_optimizer* const updated = optimizer(model, "adamw", 0.1);
  tern_tensor *input = tensor(random(12), {4, 3}), *target = tensor({1e3, 1e3, 1e3, 1e3}, {4, 1}), *loss = nullptr;
  const auto backward = [&](double last) {
    tern_tensor* const of = tensor({1e3, 1e3, 1e3, last}, {4, 1});
    ok(tern_loss(TERN_MSE, run(model, input), of, nullptr, &loss, status_));
    kept(loss);
    ok(tern_backward(&loss, nullptr, 1, 0, status_));
  };
  (void)target;
  tern_step_options options{.size = sizeof options, .skip_non_finite = 1, .max_norm = 1};
  tern_step_result result{.size = sizeof result, .skipped = -1, .grad_norm = -1};
  backward(1e3);
  ok(tern_optimizer_step(updated, &options, &result, status_));
  EXPECT_EQ(result.skipped, 0);
  EXPECT_GT(result.grad_norm, 100);
  ok(tern_optimizer_zero_grad(updated, status_));
  const Doubles before = weights(model);
  backward(NAN);
  ok(tern_optimizer_step(updated, &options, &result, status_));
  EXPECT_EQ(result.skipped, 1);
  EXPECT_EQ(weights(model), before);
  ok(tern_model_zero_grad(model, status_));
  double lr = 0;
  ok(tern_optimizer_lr(updated, &lr, status_));
  EXPECT_EQ(lr, 0.1);
  ok(tern_optimizer_set_lr(updated, 0.05, status_));
  ok(tern_optimizer_lr(updated, &lr, status_));
  EXPECT_EQ(lr, 0.05);
  fails(tern_optimizer_set_lr(updated, -1, status_), TERN_ERROR_FAILED, "");
  options.max_norm = -1;
  fails(tern_optimizer_step(updated, &options, nullptr, status_), TERN_ERROR_ARGUMENT, "max_norm");
  tern_tensors* state = nullptr;
  ok(tern_optimizer_state(updated, &state, status_));
  tern_tensor* count = nullptr;
  ok(tern_tensors_find(kept(state), "step.layers.0.weight", &count, status_));
  EXPECT_EQ(values(kept(count)), (Doubles{1}));
  ok(tern_model_free(models_.back()));
  models_.pop_back();
  ok(tern_optimizer_step(updated, nullptr, nullptr, status_));

  tern_model* const other = mlp({3, 1}, TERN_TANH);
  const auto fails_with = [&](tern_optimizer_options given, tern_code code, const char* text) {
    given.size = sizeof given;
    tern_optimizer* made = nullptr;
    fails(tern_optimizer_new(other, &given, &made, status_), code, text);
    EXPECT_EQ(made, nullptr);
  };
  fails_with({.name = "adamw"}, TERN_ERROR_ARGUMENT, "lr");
  fails_with({.lr = NAN}, TERN_ERROR_ARGUMENT, "lr");
  fails_with({.name = "adem", .lr = 1}, TERN_ERROR_FAILED, "expected one of adamw");
  fails_with({.name = "adamw", .lr = 1, .momentum = 0.5, .has_momentum = 1}, TERN_ERROR_FAILED, "momentum is for");
  fails_with({.name = "sgd", .lr = 1, .beta1 = 0.5}, TERN_ERROR_ARGUMENT, "beta1");
  fails_with({.name = "adam", .lr = 1, .beta1 = 1}, TERN_ERROR_ARGUMENT, "beta1");
  fails_with({.lr = 1, .weight_decay = -1}, TERN_ERROR_ARGUMENT, "weight_decay");
  tern_optimizer* made = nullptr;
  fails(tern_optimizer_new(other, nullptr, &made, status_), TERN_ERROR_ARGUMENT, "options is NULL");
  ok(tern_model_freeze(other, "*", 1, nullptr, status_));
  tern_optimizer_options good{.size = sizeof good, .lr = 1};
  fails(tern_optimizer_new(other, &good, &made, status_), TERN_ERROR_FAILED, "no parameter");
}

TEST_F(CApiModels, AResumedLoopGoesOnWithTheSameBits) {
  tern_tensor *input = tensor(random(12), {4, 3}), *target = tensor(random(8), {4, 2});
  const auto steps = [&](tern_model* model, tern_optimizer* updated, int count) {
    for (int i = 0; i < count; ++i)
      ok(tern_model_train_step(model, updated, &input, 1, TERN_MSE, target, nullptr, nullptr, nullptr, status_));
  };
  const std::string path = folder_ / "loop";
  tern_model *straight = mlp({3, 4, 2}, TERN_SILU), *resumed = mlp({3, 4, 2}, TERN_SILU);
  tern_optimizer *of_straight = optimizer(straight, "adam", 0.05), *of_resumed = optimizer(resumed, "adam", 0.05);
  steps(straight, of_straight, 3);
  int64_t numbers[] = {3, -7}, loaded[] = {0, 0};
  ok(tern_checkpoint_save(path.c_str(), straight, nullptr, of_straight, numbers, 2, status_));
  steps(straight, of_straight, 4);
  ok(tern_checkpoint_load(path.c_str(), resumed, nullptr, of_resumed, loaded, 2, status_));
  EXPECT_EQ(loaded[0], 3);
  EXPECT_EQ(loaded[1], -7);
  steps(resumed, of_resumed, 4);
  EXPECT_EQ(weights(resumed), weights(straight));
  // Files of other loops change nothing.
  const Doubles before = weights(resumed);
  tern_model* const wider = mlp({3, 5, 2}, TERN_SILU);
  const Doubles of_wider = weights(wider);
  fails(tern_checkpoint_load(path.c_str(), wider, nullptr, optimizer(wider, "adam", 0.05), loaded, 2, status_),
        TERN_ERROR_FAILED, "model");
  EXPECT_EQ(weights(wider), of_wider);
  fails(tern_checkpoint_load(path.c_str(), resumed, nullptr, of_resumed, loaded, 1, status_), TERN_ERROR_FAILED,
        "number");
  fails(tern_checkpoint_load(path.c_str(), resumed, nullptr, optimizer(resumed, "sgd", 0.05), loaded, 2, status_),
        TERN_ERROR_FAILED, "optimizer");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 5);
  fails(tern_checkpoint_load(path.c_str(), resumed, nullptr, of_resumed, loaded, 2, status_), TERN_ERROR_FAILED,
        "loop");
  EXPECT_EQ(weights(resumed), before);
  fails(tern_checkpoint_save(path.c_str(), nullptr, nullptr, nullptr, nullptr, 0, status_), TERN_ERROR_ARGUMENT,
        "nothing");
  fails(tern_checkpoint_save((folder_ / "none/loop").c_str(), straight, nullptr, nullptr, nullptr, 0, status_),
        TERN_ERROR_FAILED, "none");
}

TEST_F(CApiModels, TensorsOfTheCallerAreTrainedSavedAndResumed) {
  const Doubles start = random(3);
  tern_tensor* w = tensor(start, {3});
  tern_tensors *list = nullptr, *read = nullptr;
  ok(tern_tensors_new(&list, status_));
  ok(tern_tensors_add(kept(list), "w", w, status_));
  fails(tern_tensors_add(list, "w", w, status_), TERN_ERROR_ARGUMENT, "already");
  fails(tern_tensors_add(list, "", w, status_), TERN_ERROR_ARGUMENT, "empty");
  tern_optimizer_options options{.size = sizeof options, .name = "sgd", .lr = 0.5, .momentum = 0, .has_momentum = 1};
  tern_optimizer* updated = nullptr;
  fails(tern_optimizer_new_for(list, &options, &updated, status_), TERN_ERROR_FAILED, "'w' requires no gradient");
  ok(tern_tensor_set_requires_grad(w, 1, status_));
  ok(tern_optimizer_new_for(list, &options, &updated, status_));
  optimizers_.push_back(updated);
  tern_tensor *square = nullptr, *sum = nullptr;
  ok(tern_unary(TERN_SQUARE, w, &square, status_));
  ok(tern_reduce(TERN_SUM, kept(square), nullptr, 0, 0, &sum, status_));
  kept(sum);
  ok(tern_backward(&sum, nullptr, 1, 0, status_));
  const std::string path = folder_ / "tensors";
  ok(tern_checkpoint_save(path.c_str(), nullptr, list, updated, nullptr, 0, status_));
  ok(tern_optimizer_step(updated, nullptr, nullptr, status_));
  expect_near(values(w), {0, 0, 0}, 1e-12);  // w - 0.5 * 2 w
  ok(tern_checkpoint_load(path.c_str(), nullptr, list, updated, nullptr, 0, status_));
  EXPECT_EQ(values(w), start);
  // A file of tensors.
  const std::string file = folder_ / "w.safetensors";
  ok(tern_tensors_save(list, file.c_str(), status_));
  ok(tern_tensors_load(file.c_str(), &read, status_));
  int64_t count = 0;
  const char* name = nullptr;
  tern_tensor* found = nullptr;
  ok(tern_tensors_count(kept(read), &count, status_));
  ok(tern_tensors_name(read, 0, &name, status_));
  ok(tern_tensors_get(read, 0, &found, status_));
  EXPECT_EQ(count, 1);
  EXPECT_STREQ(name, "w");
  EXPECT_EQ(values(kept(found)), start);
  fails(tern_tensors_get(read, 1, &found, status_), TERN_ERROR_ARGUMENT, "index 1");
  fails(tern_tensors_name(read, -1, &name, status_), TERN_ERROR_ARGUMENT, "index -1");
  fails(tern_tensors_find(read, "v", &found, status_), TERN_ERROR_FAILED, "'v'");
  fails(tern_tensors_load((folder_ / "absent").c_str(), &read, status_), TERN_ERROR_FAILED, "absent");
  EXPECT_EQ(read, nullptr);
}

TEST_F(CApiModels, OnnxFilesAreExportedTrainedAndWrittenBack) {
  tern_model* const model = mlp({3, 6, 2}, TERN_RELU, TERN_FLOAT32);
  const std::string path = folder_ / "m.onnx", later = folder_ / "later.onnx", again = folder_ / "again.onnx";
  ok(tern_model_export_onnx(model, path.c_str(), 0, nullptr, 0, status_));
  tern_model *read = nullptr, *trained = nullptr;
  ok(tern_model_load(path.c_str(), nullptr, &read, status_));
  kept(read);
  int32_t count = 0, training = -1;
  const char* name = nullptr;
  ok(tern_model_input_count(read, &count, status_));
  ok(tern_model_input_name(read, 0, &name, status_));
  EXPECT_EQ(count, 1);
  EXPECT_STREQ(name, "x");
  ok(tern_model_output_count(read, &count, status_));
  ok(tern_model_output_name(read, 0, &name, status_));
  EXPECT_STREQ(name, "y");
  fails(tern_model_output_name(read, 1, &name, status_), TERN_ERROR_ARGUMENT, "index 1");
  ok(tern_model_is_training(read, &training, status_));
  EXPECT_EQ(training, 0);
  tern_tensor *x = tensor(random(15), {5, 3}, TERN_FLOAT32), *target = tensor(random(10), {5, 2}, TERN_FLOAT32);
  expect_near(values(run(read, x)), values(run(model, x)), 1e-6);
  // Both learn the same.
  ok(tern_model_set_training(read, 1, status_));
  tern_optimizer *first = optimizer(model, "sgd", 0.1), *second = optimizer(read, "sgd", 0.1);
  for (int i = 0; i < 5; ++i) {
    ok(tern_model_train_step(model, first, &x, 1, TERN_MSE, target, nullptr, nullptr, nullptr, status_));
    ok(tern_model_train_step(read, second, &x, 1, TERN_MSE, target, nullptr, nullptr, nullptr, status_));
  }
  fails(tern_model_export_onnx(read, again.c_str(), 0, &x, 1, status_), TERN_ERROR_FAILED, "training mode");
  ok(tern_model_set_training(read, 0, status_));
  const Doubles wanted = values(run(model, x));
  expect_near(values(run(read, x)), wanted, 1e-5);
  for (const std::string& file : {later, again}) {
    if (file == later) ok(tern_model_save(read, file.c_str(), status_));
    if (file == again) ok(tern_model_export_onnx(read, file.c_str(), 17, &x, 1, status_));
    ok(tern_model_load(file.c_str(), nullptr, &trained, status_));
    expect_near(values(run(kept(trained), x)), values(run(read, x)), 1e-6);
    tern_tensor* const fewer = tensor(random(6), {2, 3}, TERN_FLOAT32);  // of another batch size
    expect_near(values(run(trained, fewer)), values(run(read, fewer)), 1e-6);
  }
  ok(tern_model_replace_head(trained, 4, status_));
  EXPECT_EQ(shape(run(trained, x)), (Sizes{5, 4}));
  fails(tern_model_replace_head(model, 4, status_), TERN_ERROR_ARGUMENT, "ONNX");
  fails(tern_model_save(model, path.c_str(), status_), TERN_ERROR_FAILED, "tern_model_export_onnx");
  fails(tern_model_export_onnx(model, again.c_str(), 3, nullptr, 0, status_), TERN_ERROR_FAILED, "opset");
  tern_model_options options{.size = sizeof options, .dtype = TERN_BFLOAT16};
  tern_model* none = nullptr;
  fails(tern_model_load(path.c_str(), &options, &none, status_), TERN_ERROR_ARGUMENT, "dtype");
  fails(tern_model_load((folder_ / "absent.onnx").c_str(), nullptr, &none, status_), TERN_ERROR_FAILED, "absent.onnx");
  std::ofstream(folder_ / "bad.onnx") << "no protobuf";
  fails(tern_model_load((folder_ / "bad.onnx").c_str(), nullptr, &none, status_), TERN_ERROR_FAILED, "bad.onnx");
  EXPECT_EQ(none, nullptr);
}

TEST_F(CApiModels, FamiliesAreMadeTrainedSavedAndLoaded) {
  tern_model_options options{.size = sizeof options, .seed = 5, .label_count = 3, .image_size = 8};
  tern_model *model = nullptr, *read = nullptr;
  fails(tern_model_new("vut", nullptr, &options, &model, status_), TERN_ERROR_FAILED, "vit");
  ok(tern_model_new("vit", "digits", &options, &model, status_));
  kept(model);
  tern_tensor* x = tensor(random(2 * 3 * 64), {2, 3, 8, 8}, TERN_FLOAT32);
  tern_tensor* classes = tensor({2, 0}, {2}, TERN_INT64);
  tern_optimizer* const updated = optimizer(model, "adamw", 1e-3);
  ok(tern_model_set_training(model, 1, status_));
  double first = 0, last = 0;
  ok(tern_model_set_autocast(model, TERN_BFLOAT16, status_));
  for (int i = 0; i < 8; ++i)
    ok(tern_model_train_step(model, updated, &x, 1, TERN_CROSS_ENTROPY, classes, nullptr, nullptr,
                             i == 0 ? &first : &last, status_));
  EXPECT_LT(last, first / 2);
  ok(tern_model_set_autocast(model, TERN_FLOAT32, status_));
  fails(tern_model_set_autocast(model, TERN_FLOAT16, status_), TERN_ERROR_ARGUMENT, "TERN_BFLOAT16");
  ok(tern_model_set_training(model, 0, status_));
  const std::string path = folder_ / "run", file = folder_ / "w.safetensors", graph = folder_ / "v.onnx";
  ok(tern_model_save(model, path.c_str(), status_));
  ok(tern_model_load(path.c_str(), nullptr, &read, status_));
  const Doubles logits = values(run(model, x));
  expect_near(values(run(kept(read), x)), logits, 1e-6);
  ok(tern_model_export_onnx(model, graph.c_str(), 23, nullptr, 0, status_));
  ok(tern_model_load(graph.c_str(), nullptr, &read, status_));
  expect_near(values(run(kept(read), x)), logits, 1e-4);
  // Weights alone, into a new model.
  tern_tensors* list = nullptr;
  ok(tern_model_save_weights(model, file.c_str(), status_));
  ok(tern_tensors_load(file.c_str(), &list, status_));
  options.seed = 6;
  ok(tern_model_new("vit", "digits", &options, &read, status_));
  kept(read);
  EXPECT_NE(weights(read), weights(model));
  ok(tern_model_load_state(read, kept(list), status_));
  EXPECT_EQ(weights(read), weights(model));
  int64_t frozen = 0;
  ok(tern_model_freeze(read, "*bias", 1, &frozen, status_));
  EXPECT_GT(frozen, 5);
  fails(tern_model_freeze(read, "nothing", 1, &frozen, status_), TERN_ERROR_FAILED, "nothing");
  ok(tern_model_to(read, nullptr, TERN_FLOAT64, status_));
  expect_near(values(run(read, tensor(values(x), {2, 3, 8, 8}))), logits, 1e-4);
  fails(tern_model_to(read, "cuda:77", TERN_DTYPE_DEFAULT, status_), TERN_ERROR_FAILED, "");
  options.label_count = 0;
  fails(tern_model_new("vit", "digits", &options, &read, status_), TERN_ERROR_ARGUMENT, "label_count");
  options.label_count = INT64_MAX;
  fails(tern_model_new("vit", "digits", &options, &read, status_), TERN_ERROR_ARGUMENT, "label_count");
  options.label_count = 2;
  options.no_fusion = 1;
  fails(tern_model_new("vit", "digits", &options, &read, status_), TERN_ERROR_ARGUMENT, "no_fusion");
  fails(tern_model_load(folder_.path().c_str(), nullptr, &read, status_), TERN_ERROR_FAILED, "config.json");
}

TEST_F(CApiModels, TextsAreRunWithAndWithoutAMask) {
  tern_model_options options{.size = sizeof options, .label_count = 2, .max_length = 16};
  tern_model* model = nullptr;
  ok(tern_model_new("distilbert", "tiny", &options, &model, status_));
  kept(model);
  tern_tensor *ids = tensor({101, 7, 8, 102, 0, 0}, {1, 6}, TERN_INT64),
              *part = tensor({101, 7, 8, 102}, {1, 4}, TERN_INT64);
  tern_tensor *mask = tensor({1, 1, 1, 1, 0, 0}, {1, 6}, TERN_INT64), *masked[] = {ids, mask}, *logits = nullptr;
  ok(tern_model_run(model, masked, 2, &logits, 1, status_));
  expect_near(values(kept(logits)), values(run(model, part)), 1e-5);
  const char* names[] = {"attention_mask", "input_ids"};
  const char* output[] = {"logits"};
  tern_tensor* swapped[] = {mask, ids};
  ok(tern_model_run_named(model, names, swapped, 2, output, &logits, 1, status_));
  expect_near(values(kept(logits)), values(run(model, part)), 1e-5);
  tern_tensor* no_ids[] = {nullptr, mask};
  fails(tern_model_run(model, no_ids, 2, &logits, 1, status_), TERN_ERROR_ARGUMENT, "'input_ids' is missing");
}

TEST_F(CApiModels, BertReadsTheTypesOfTokens) {
  tern_model_options options{.size = sizeof options, .label_count = 2, .max_length = 16};
  tern_model* model = nullptr;
  ok(tern_model_new("bert", "tiny", &options, &model, status_));
  kept(model);
  int32_t count = 0;
  const char* name = nullptr;
  ok(tern_model_input_count(model, &count, status_));
  ASSERT_EQ(count, 3);
  ok(tern_model_input_name(model, 2, &name, status_));
  EXPECT_STREQ(name, "token_type_ids");
  tern_tensor *ids = tensor({101, 7, 102, 8, 102}, {1, 5}, TERN_INT64), *logits = nullptr;
  tern_tensor *first[] = {ids, nullptr, tensor({0, 0, 0, 0, 0}, {1, 5}, TERN_INT64)},
              *pair[] = {ids, nullptr, tensor({0, 0, 0, 1, 1}, {1, 5}, TERN_INT64)};
  ok(tern_model_run(model, first, 3, &logits, 1, status_));
  const auto without = values(run(model, ids));
  expect_near(values(kept(logits)), without, 1e-6);
  ok(tern_model_run(model, pair, 3, &logits, 1, status_));
  EXPECT_NE(values(kept(logits)), without);
}

TEST_F(CApiModels, DigitsAreThere) {
  tern_tensor *pixels = nullptr, *classes = nullptr;
  ok(tern_digits("test", &pixels, &classes, status_));
  kept(classes);
  const Sizes sizes = shape(kept(pixels));
  EXPECT_EQ(sizes[1], 64);
  EXPECT_EQ(shape(classes), (Sizes{sizes[0]}));
  fails(tern_digits("tests", &pixels, &classes, status_), TERN_ERROR_FAILED, "tests");
  EXPECT_EQ(pixels, nullptr);
  fails(tern_digits("test", nullptr, &classes, status_), TERN_ERROR_ARGUMENT, "NULL");
}

}  // namespace
}  // namespace tern::models
