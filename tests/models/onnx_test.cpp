// Models of ONNX files: what becomes a parameter, training, saving, the head, and files that are wrong.

#include "tern/models/onnx/onnx.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tern/core/autograd/checkpoint.h"
#include "tern/core/io/input_file.h"
#include "tern/core/ops/ops.h"
#include "tern/optim/optim.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/models/onnx_writer.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::test {
namespace {

using Floats = std::vector<float>;

/// relu(x W + b) V + c, of [n, 3]: 4 hidden, 2 classes. The weights' bytes lie at any alignment.
Message network(const Floats& w, const Floats& v) {
  Message graph;
  graph.message(1, onnx_node("MatMul", {"x", "body.weight"}, {"h"}));
  graph.message(1, onnx_node("Add", {"h", "body.bias"}, {"a"}));
  graph.message(1, onnx_node("Relu", {"a"}, {"r"}));
  graph.message(1, onnx_node("Gemm", {"r", "head.weight", "head.bias"}, {"y"}, "head"));
  graph.text(2, "g");
  graph.message(5, onnx_floats("body.weight", {3, 4}, w));
  graph.message(5, onnx_floats("body.bias", {4}, {0.5f, -0.25f, 0.125f, 1}));
  graph.message(5, onnx_floats("head.weight", {4, 2}, v));
  graph.message(5, onnx_floats("head.bias", {2}, {0.75f, -1}));
  graph.message(11, onnx_value("x", {-1, 3})).message(12, onnx_value("y", {-1, 2}));
  return onnx_model(graph);
}

Floats numbers(size_t count, float first) {
  Floats values;
  for (size_t i = 0; i < count; ++i) values.push_back(first + 0.25f * static_cast<float>(i % 5));
  return values;
}

struct File {
  TemporaryFolder folder;
  std::string path = folder / "m.onnx";
};

std::string error_of(const std::string& path) {
  try {
    onnx::load(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of(const Message& model) {
  const File file;
  write_onnx(file.path, model);
  return error_of(file.path);
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nhas no: " << part;
}

TEST(Onnx, InitializersAreParametersWithTheirNames) {
  const File file;
  write_onnx(file.path, network(numbers(12, -0.5f), numbers(8, 0.25f)));
  const auto model = onnx::load(file.path);
  std::string names;
  for (const NamedTensor& p : model->parameters()) names += p.name + p.tensor.shape().str() + " ";
  EXPECT_EQ(names, "body.weight[3, 4] body.bias[4] head.weight[4, 2] head.bias[2] ");
  EXPECT_FALSE(model->is_training());
  ASSERT_EQ(model->inputs().size(), 1u);
  EXPECT_EQ(model->inputs()[0].shape[0].name, "n");
  EXPECT_EQ(model->inputs()[0].shape[1].size, 3);
  // x = (1, 2, -1): h = x W + b by hand.
  const Tensor x = from_vector(Floats{1, 2, -1}, {1, 3});
  Floats hidden = {0.5f, -0.25f, 0.125f, 1};
  const Floats w = numbers(12, -0.5f), v = numbers(8, 0.25f);
  for (size_t i = 0; i < 4; ++i) hidden[i] = std::max(0.0f, hidden[i] + w[i] + 2 * w[4 + i] - w[8 + i]);
  Floats y = {0.75f, -1};
  for (size_t i = 0; i < 4; ++i)
    for (size_t k = 0; k < 2; ++k) y[k] += hidden[i] * v[2 * i + k];
  EXPECT_EQ(model->forward(x).to_vector<float>(), y);
  EXPECT_EQ(model->forward(std::map<std::string, Tensor>{{"x", x}}).at("y").to_vector<float>(), y);
}

TEST(Onnx, TrainsAsTheSameLayersDo) {
  const File file;
  write_onnx(file.path, network(numbers(12, -0.5f), numbers(8, 0.25f)));
  const auto model = onnx::load(file.path);
  const Tensor x = fresh_normal({5, 3}, 1), target = fresh_normal({5, 2}, 2);
  std::vector<Tensor> own;
  for (const NamedTensor& p : model->parameters()) own.push_back(p.tensor.detach().clone().set_requires_grad(true));
  const auto reference = [&] {
    const Tensor h = relu(matmul(x, own[0]) + own[1]);
    return mse_loss(matmul(h, own[2]) + own[3], target);
  };
  optim::SGD mine(model->parameters(), {.lr = 0.05});
  for (int step = 0; step < 5; ++step) {
    const Tensor loss = mse_loss(checkpoint([&](const Tensor& in) { return model->forward(in); }, x), target);
    const Tensor other = reference();
    EXPECT_NEAR(loss.item<double>(), other.item<double>(), 1e-5 * (1 + other.item<double>()));
    mine.zero_grad();
    loss.backward();
    mine.step();
    for (Tensor& w : own) w.set_grad({});
    other.backward();
    for (Tensor& w : own) {
      NoGrad off;
      const Tensor grad = w.grad();
      w.sub_(grad * 0.05);
    }
  }
  model->freeze("body.*");
  EXPECT_FALSE(model->parameters()[0].tensor.requires_grad());
  EXPECT_TRUE(model->parameters()[2].tensor.requires_grad());
}

TEST(Onnx, SaveChangesTheWeightsBytesAlone) {
  const File file;
  const Floats w = numbers(12, -0.5f), v = numbers(8, 0.25f);
  write_onnx(file.path, network(w, v));
  const auto model = onnx::load(file.path);
  const std::string copy = file.folder / "copy.onnx";
  model->save(copy);
  EXPECT_EQ(read_whole_file(copy), read_whole_file(file.path));
  const Floats other = numbers(8, -3);
  {
    NoGrad off;
    find(model->state_dict(), "head.weight").copy_(from_vector(other, {4, 2}));
  }
  model->save(file.path);  // into its own file
  EXPECT_EQ(read_whole_file(file.path), network(w, other).bytes());
  EXPECT_EQ(find(onnx::load(file.path)->state_dict(), "head.weight").to_vector<float>(), other);
  // The file has been replaced, so that what is mapped is still the one that was loaded. A file that is written to is
  // another.
  model->save(copy);
  EXPECT_EQ(read_whole_file(copy), network(w, other).bytes());
  const auto changed = onnx::load(copy);
  std::ofstream(copy, std::ios::app) << "x";
  try {
    changed->save(file.path);
    ADD_FAILURE();
  } catch (const Error& error) {
    expect_has(error.what(), "has changed");
  }
}

TEST(Onnx, ReplacesTheHead) {
  const File file;
  write_onnx(file.path, network(numbers(12, -0.5f), numbers(8, 0.25f)));
  const auto model = onnx::load(file.path);
  EXPECT_EQ(model->replace_head(7), "head.weight");
  const Tensor x = fresh_normal({5, 3}, 3), y = model->forward(x);
  EXPECT_EQ(y.shape(), (Shape{5, 7}));
  sum(y).backward();
  EXPECT_EQ(find(model->state_dict(), "head.bias").grad().shape(), (Shape{7}));
  const Tensor weight = find(model->state_dict(), "head.weight");
  EXPECT_LE(max(abs(weight)).item<double>(), 0.5);
  EXPECT_GT(max(abs(weight)).item<double>(), 0.1);
  const std::string copy = file.folder / "copy.onnx";
  model->save(copy);
  EXPECT_EQ(onnx::load(copy)->forward(x).to_vector<float>(), y.to_vector<float>());
}

TEST(Onnx, EqualBiasesOfNodesAreParametersOfTheirOwn) {
  Message graph;
  graph.message(1, onnx_node("Add", {"x", "zero"}, {"a"}));
  graph.message(1, onnx_node("Add", {"a", "zero"}, {"y"}));
  graph.message(5, onnx_floats("zero", {3}, {0, 0, 0}));
  graph.message(11, onnx_value("x", {-1, 3})).message(12, onnx_value("y", {-1, 3}));
  const File file;
  write_onnx(file.path, onnx_model(graph));
  const auto model = onnx::load(file.path);
  ASSERT_EQ(model->parameters().size(), 2u);
  {
    NoGrad off;
    model->parameters()[1].tensor.fill_(2);
  }
  model->save(file.path);
  const auto again = onnx::load(file.path);
  EXPECT_EQ(again->forward(zeros({1, 3})).to_vector<float>(), (Floats{2, 2, 2}));
  EXPECT_EQ(again->parameters()[0].tensor.to_vector<float>(), (Floats{0, 0, 0}));
}

Message external_model(const std::string& location, const std::string& offset = "0", const std::string& length = "48") {
  const auto entry = [](const std::string& key, const std::string& value) {
    return Message().text(1, key).text(2, value);
  };
  Message tensor = Message().number(1, 3).number(1, 4).number(2, 1).text(8, "w").number(14, 1);
  tensor.message(13, entry("location", location))
      .message(13, entry("offset", offset))
      .message(13, entry("length", length));
  Message graph;
  graph.message(1, onnx_node("MatMul", {"x", "w"}, {"y"})).message(5, tensor);
  graph.message(11, onnx_value("x", {-1, 3})).message(12, onnx_value("y", {-1, 4}));
  return onnx_model(graph);
}

TEST(Onnx, ExternalDataIsInTheModelsFolder) {
  const File file;
  write_onnx(file.path, external_model("w.bin"));
  const Floats w = numbers(12, 1);
  std::ofstream(file.folder / "w.bin", std::ios::binary).write(reinterpret_cast<const char*>(w.data()), 48);
  const auto model = onnx::load(file.path);
  EXPECT_EQ(model->parameters()[0].tensor.to_vector<float>(), w);
  {
    NoGrad off;
    model->parameters()[0].tensor.fill_(3);
  }
  std::filesystem::create_directory(file.folder / "other");
  model->save(file.folder / "other/m.onnx");
  EXPECT_EQ(onnx::load(file.folder / "other/m.onnx")->parameters()[0].tensor.to_vector<float>(), Floats(12, 3));
  EXPECT_EQ(onnx::load(file.path)->parameters()[0].tensor.to_vector<float>(), w);
  std::filesystem::create_symlink("/etc/passwd", file.folder / "link");
  const auto expect = [&](const Message& message, const std::string& part) {
    write_onnx(file.path, message);
    expect_has(error_of(file.path), part);
    expect_has(error_of(file.path), "tensor 'w'");
  };
  expect(external_model("/etc/passwd"), "is not in the model's folder");
  expect(external_model("../w.bin"), "is not in the model's folder");
  expect(external_model("link"), "leads outside of the model's folder");
  expect(external_model(""), "is not in the model's folder");
  expect(external_model("none.bin"), "none.bin");
  expect(external_model("w.bin", "4"), "has only 48");
  expect(external_model("w.bin", "-4"), "'-4' is no offset");
  expect(external_model("w.bin", "0", "999999999999999999"), "has only 48");
  expect(external_model("w.bin", "0", "44"), "needs 48 bytes");
}

TEST(Onnx, DamagedFilesAreOneError) {
  const File file;
  const std::string whole = network(numbers(12, -0.5f), numbers(8, 0.25f)).bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(file.path, std::ios::binary) << whole.substr(0, size);
    expect_has(error_of(file.path), file.path);
  }
  std::ofstream(file.path, std::ios::binary) << std::string(100, '\xff');
  expect_has(error_of(file.path), "no protobuf message");
  std::filesystem::resize_file(file.path, uint64_t{1} << 32);  // of no size on the disk
  expect_has(error_of(file.path), "2 GiB");
  expect_has(error_of(file.folder / "none.onnx"), "none.onnx");
}

TEST(Onnx, WrongGraphsAreOneErrorThatNamesTheNode) {
  const auto model = [](const std::vector<Message>& nodes, const std::vector<Message>& initializers = {}) {
    Message graph;
    for (const Message& node : nodes) graph.message(1, node);
    for (const Message& initializer : initializers) graph.message(5, initializer);
    return onnx_model(graph.message(11, onnx_value("x", {3})).message(12, onnx_value("y", {3})));
  };
  const Message relu = onnx_node("Relu", {"x"}, {"y"});
  expect_has(error_of(model({onnx_node("Add", {"x", "b"}, {"a"}, "first"), onnx_node("Relu", {"a"}, {"b"})})),
             "node 'first' (Add of ai.onnx, opset 20) reads 'b', which no earlier node");
  expect_has(error_of(model({relu, relu})), "the name 'y' of node 'y' (Relu of ai.onnx, opset 20) is taken");
  expect_has(error_of(model({onnx_node("Add", {"x", "w"}, {"y"}, "n")})),
             "node 'n' (Add of ai.onnx, opset 20) reads 'w'");
  expect_has(error_of(model({onnx_node("Relu", {"x"}, {"z"})})), "output 'y' is given by no node");
  expect_has(error_of(model({onnx_node("Foo", {"x"}, {"y"}, "bar").text(7, "com.example")})),
             "node 'bar' (Foo of com.example, opset 1): the op is not supported");
  expect_has(error_of(model({relu}, {onnx_floats("w", {1 << 30, 1 << 30, 1 << 30}, {})})), "too large");
  expect_has(error_of(model({relu}, {onnx_floats("w", {3}, {1})})), "needs 12 bytes of data, but has 4");
  expect_has(error_of(model({relu}, {onnx_floats("w", {-3}, {1})})), "tensor 'w' has the shape [-3]");
  expect_has(error_of(model({relu}, {onnx_floats("w", {0}, {}), onnx_floats("w", {0}, {})})), "the name 'w'");
  expect_has(error_of(onnx_model(
                 Message().message(1, relu).message(11, onnx_value("x", {3})).message(12, onnx_value("y", {3})), 6)),
             "opsets 7 to 28");
  expect_has(error_of(onnx_model(
                 Message().message(1, relu).message(11, onnx_value("x", {3})).message(12, onnx_value("y", {3})), 29)),
             "opsets 7 to 28");
  // Two nodes that are not supported are one error.
  const std::string both = error_of(model({onnx_node("Foo", {"x"}, {"a"}), onnx_node("Bar", {"a"}, {"y"})}));
  expect_has(both, "(Foo of");
  expect_has(both, "(Bar of");
}

TEST(Onnx, RunErrorsNameTheNode) {
  const File file;
  Message graph;
  graph.message(1, onnx_node("MatMul", {"x", "w"}, {"y"}, "product"))
      .message(5, onnx_floats("w", {4, 2}, numbers(8, 0)));
  graph.message(11, onnx_value("x", {-1, -1})).message(12, onnx_value("y", {-1, 2}));
  write_onnx(file.path, onnx_model(graph));
  const auto model = onnx::load(file.path);
  const auto message = [&](const Tensor& x) -> std::string {
    try {
      model->forward(x);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  expect_has(message(zeros({2, 3})), "node 'product' (MatMul of ai.onnx, opset 20)");
  expect_has(message(zeros({2})), "input 'x' has the shape [n, n], got [2]");
  expect_has(message(zeros({2, 4}, {.dtype = int64})), "input 'x' is float");
}

TEST(Onnx, WrongTypesAreAnError) {
  Message graph;
  graph.message(1, onnx_node("Add", {"x", "i"}, {"y"}, "sum"));
  graph.message(11, onnx_value("x", {3})).message(11, onnx_value("i", {3}, 7)).message(12, onnx_value("y", {3}));
  const File file;
  write_onnx(file.path, onnx_model(graph));
  try {
    onnx::load(file.path)->forward({ones({3}), ones({3}, {.dtype = int64})});
    ADD_FAILURE();
  } catch (const Error& error) {
    expect_has(error.what(),
               "node 'sum' (Add of ai.onnx, opset 20): its inputs are of different types: float and int64");
  }
}

/// A batch norm exported for inference keeps its statistics in training, unless it is to behave as the layer that it
/// was.
TEST(Onnx, BatchNormExportedForInference) {
  Message graph;
  graph.message(1, onnx_node("BatchNormalization", {"x", "w", "b", "mean", "var"}, {"y"}));
  graph.message(5, onnx_floats("w", {2}, {1, 2})).message(5, onnx_floats("b", {2}, {0, 1}));
  graph.message(5, onnx_floats("mean", {2}, {0.5f, -1})).message(5, onnx_floats("var", {2}, {4, 0.25f}));
  graph.message(11, onnx_value("x", {-1, 2})).message(12, onnx_value("y", {-1, 2}));
  const File file;
  write_onnx(file.path, onnx_model(graph));
  const Tensor x = fresh_normal({6, 2}, 11);
  const auto frozen = onnx::load(file.path);
  EXPECT_EQ(frozen->parameters().size(), 2u);
  EXPECT_EQ(frozen->buffers().size(), 2u);
  const Tensor evaluated = frozen->forward(x);
  frozen->train();
  EXPECT_EQ(frozen->forward(x).to_vector<float>(), evaluated.to_vector<float>());
  const auto model = onnx::load(file.path, {.train_inference_nodes = true});
  model->train();
  const Tensor w = from_vector(Floats{1, 2}, {2}), b = from_vector(Floats{0, 1}, {2});
  const Tensor mean = from_vector(Floats{0.5f, -1}, {2}), var = from_vector(Floats{4, 0.25f}, {2});
  const Tensor want = batch_norm(x, mean, var, w, b, {.training = true, .momentum = 1 - 0.9f, .eps = 1e-5f});
  EXPECT_TRUE(allclose(model->forward(x), want, 1e-5, 1e-6));
  EXPECT_TRUE(allclose(find(model->state_dict(), "mean"), mean, 1e-5, 1e-6));
  EXPECT_TRUE(allclose(find(model->state_dict(), "var"), var, 1e-5, 1e-6));
}

TEST(Onnx, DeepAndLongGraphsEnd) {
  // Nodes in a row; subgraphs within subgraphs; a function that calls itself.
  Message graph;
  std::string before = "x";
  for (int i = 0; i < 100'000; ++i) {
    const std::string name = i == 99'999 ? "y" : "v" + std::to_string(i);
    graph.message(1, onnx_node("Relu", {before}, {name}));
    before = name;
  }
  graph.message(11, onnx_value("x", {3})).message(12, onnx_value("y", {3}));
  const File file;
  write_onnx(file.path, onnx_model(graph));
  {
    const auto model = onnx::load(file.path);
    NoGrad off;
    EXPECT_EQ(model->forward(ones({3})).to_vector<float>(), (Floats{1, 1, 1}));
  }
  Message inner = Message().message(1, onnx_node("Relu", {"x"}, {"r"})).message(12, onnx_value("r", {3}));
  for (int depth = 0; depth < 200; ++depth) {
    Message node = onnx_node("If", {"c"}, {"r"});
    node.message(5, Message().text(1, "then_branch").message(6, inner).number(20, 5));
    inner = Message().message(1, node).message(12, onnx_value("r", {3}));
  }
  expect_has(error_of(onnx_model(inner)), "nested deeper");
  Message function = Message().text(1, "F").text(4, "a").text(5, "b").text(10, "d");
  function.message(7, onnx_node("F", {"a"}, {"b"}).text(7, "d"));
  Message calls;
  calls.message(1, onnx_node("F", {"x"}, {"y"}).text(7, "d"));
  calls.message(11, onnx_value("x", {3})).message(12, onnx_value("y", {3}));
  expect_has(error_of(onnx_model(calls).message(25, function)), "nested deeper");
}

TEST(Onnx, ChangedBytesGiveAModelOrAnError) {
  const File file;
  const std::string whole = network(numbers(12, -0.5f), numbers(8, 0.25f)).bytes();
  auto random = fresh_random(7);
  for (int i = 0; i < 400; ++i) {
    std::string changed = whole;
    for (uint64_t k = 0, count = 1 + random() % 4; k < count; ++k)
      changed[random() % changed.size()] = static_cast<char>(random() % 3 == 0 ? random() : random() % 24);
    std::ofstream(file.path, std::ios::binary) << changed;
    try {
      NoGrad off;
      const auto model = onnx::load(file.path);
      onnx::describe(file.path);
      model->forward(zeros({1, 3}));
    } catch (const Error&) {
      continue;
    }
  }
}

TEST(Onnx, DescribesWhatItCannotRun) {
  const File file;
  Message graph;
  graph.message(1, onnx_node("Relu", {"x"}, {"a"})).message(1, onnx_node("Foo", {"a"}, {"b"}, "bar"));
  graph.message(1, onnx_node("MatMul", {"b", "w"}, {"y"})).message(5, onnx_floats("w", {3, 2}, numbers(6, 1)));
  graph.message(11, onnx_value("x", {-1, 3})).message(12, onnx_value("y", {-1, 2}));
  write_onnx(file.path, onnx_model(graph));
  onnx::Description description = onnx::describe(file.path);
  EXPECT_EQ(description.ops, (std::map<std::string, int64_t>{{"Foo", 1}, {"MatMul", 1}, {"Relu", 1}}));
  ASSERT_EQ(description.unsupported.size(), 1u);
  expect_has(description.unsupported[0], "node 'bar' (Foo of ai.onnx, opset 20)");
  EXPECT_EQ(description.parameters, 6);
  EXPECT_EQ(description.bytes, 24);
  EXPECT_EQ(description.flops, -1);
  write_onnx(file.path, network(numbers(12, 0), numbers(8, 0)));
  description = onnx::describe(file.path);
  EXPECT_EQ(description.parameters, 26);
  EXPECT_EQ(description.flops, 2 * (3 * 4 + 4 * 2));
}

}  // namespace
}  // namespace tern::test
