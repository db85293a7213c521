// ONNX files as models of texts and images: labels and heads, activations, files beside the model, images, and files
// that are no such model.

#include "tern/tests/models/onnx_models.h"
#include "tern/models/image/image_pipeline.h"

namespace tern::models {
namespace {

TEST_F(OnnxModels, ImagesOfFilesThatFixSizes) {
  test::Message unused;
  const Tensor images = test::fresh_normal({5, 3, 4, 4}, 1);
  const Tensor means = mean(images, {2, 3});
  const Tensor luma = matmul(means, from_vector(Floats{0.299f, 0.587f, 0.114f}, {3, 1}));
  NoGrad off;
  write("any.onnx", image_network({-1, 3, -1, -1}, false));
  write("one.onnx", image_network({1, 3, 4, 4}, false));
  write("last.onnx", image_network({-1, 4, 4, 3}, true));
  write("gray.onnx", image_network({2, 1, 4, 4}, false));
  for (const std::string name : {"any.onnx", "one.onnx", "last.onnx", "gray.onnx"}) {
    SCOPED_TRACE(name);
    const auto model = load_pretrained<ImageClassifier>(file(name));
    EXPECT_EQ(kind_of_model(file(name)), ModelKind::kImages);
    EXPECT_EQ(model->input().size, name == "any.onnx" ? 224 : 4);
    expect_near(model->forward(images), image_logits(name == "gray.onnx" ? luma : means));
    EXPECT_GT(model->forward_flops(), 0);
  }
  const auto one = load_pretrained<ImageClassifier>(file("one.onnx"));
  test::expect_contains(error_of([&] { (void)one->forward(zeros({1, 3, 4, 5})); }), {"4 x 4", "got 4 x 5"});
  test::expect_contains(error_of([&] { load_pretrained<Model>(file("one.onnx"), {.image_size = 8}); }),
                        {"4 pixels a side", "--image-size"});
  test::expect_contains(error_of([&] { load_pretrained<SequenceClassifier>(file("one.onnx")); }), {"another kind"});
}

TEST_F(OnnxModels, WhatTheNetworkEndsInIsLeftOut) {
  const Tensor images = test::fresh_normal({3, 3, 4, 4}, 2), logits = image_logits(mean(images, {2, 3}));
  NoGrad off;
  for (const std::string end : {"Softmax", "LogSoftmax", "Sigmoid"}) {
    SCOPED_TRACE(end);
    write("m.onnx", image_network({-1, 3, 4, 4}, false, end));
    const auto model = load_pretrained<ImageClassifier>(file("m.onnx"));
    expect_near(model->forward(images), logits);
    EXPECT_EQ(model->label_kind(), end == "Sigmoid" ? data::LabelKind::kSeveral : data::LabelKind::kOne);
    // Images are trained with one label each.
    EXPECT_EQ(load_pretrained<Model>(file("m.onnx"), {.labels = {"a", "b"}})->label_kind(), data::LabelKind::kOne);
    // The file that is written still ends in it.
    model->save_pretrained(file("saved"));
    const Tensor out = onnx::load(file("saved/model.onnx"))->forward(images);
    expect_near(out, end == "Softmax"   ? softmax(logits, 1)
                     : end == "Sigmoid" ? sigmoid(logits)
                                        : log(softmax(logits, 1)));
  }
}

TEST_F(OnnxModels, WhatFollowsTheActivationIsSeenThrough) {
  const Tensor images = test::fresh_normal({3, 3, 4, 4}, 7), logits = image_logits(mean(images, {2, 3}));
  const auto network = [](const std::vector<std::string>& behind) {
    Message graph;
    graph.message(1, test::onnx_node("GlobalAveragePool", {"x"}, {"p"}));
    graph.message(1, test::onnx_node("Flatten", {"p"}, {"means"}));
    graph.message(1, test::onnx_node("Gemm", {"means", "fc.weight", "fc.bias"}, {"h"}));
    graph.message(1, test::onnx_node("Softmax", {"h"}, {behind.empty() ? "y" : "s0"}));
    for (size_t i = 0; i < behind.size(); ++i) {
      const std::string to = i + 1 == behind.size() ? "y" : "s" + std::to_string(i + 1);
      Message node = behind[i] == "Clip" ? test::onnx_node("Clip", {"s" + std::to_string(i), "low", "high"}, {to})
                                         : test::onnx_node(behind[i], {"s" + std::to_string(i)}, {to});
      if (behind[i] == "Cast") node.message(5, test::onnx_attribute("to", 1));
      graph.message(1, node);
    }
    graph.text(2, "g");
    graph.message(5, test::onnx_floats("fc.weight", {3, 2}, {-1, -0.5f, 0, 0.5f, 1, 1.5f}));
    graph.message(5, test::onnx_floats("fc.bias", {2}, {0.25f, -0.125f}));
    graph.message(5, test::onnx_floats("low", {}, {0.4f})).message(5, test::onnx_floats("high", {}, {0.6f}));
    graph.message(11, test::onnx_value("x", {-1, 3, 4, 4})).message(12, test::onnx_value("y", {-1, 2}));
    return test::onnx_model(graph);
  };
  NoGrad off;
  for (const std::vector<std::string>& behind : std::vector<std::vector<std::string>>{
           {}, {"Identity"}, {"Cast", "Identity"}, {"Flatten"}, {"Dropout"}, {"Clip"}, {"Clip", "Identity"}}) {
    SCOPED_TRACE(behind.empty() ? "" : behind[0]);
    write("m.onnx", network(behind));
    const auto model = load_pretrained<ImageClassifier>(file("m.onnx"));
    expect_near(model->forward(images), logits);
    expect_near(onnx::load(file("m.onnx"))->forward(images),
                behind.empty() || behind[0] != "Clip" ? softmax(logits, 1) : clamp(softmax(logits, 1), 0.4, 0.6));
  }
}

/// A file must not end in what its labels have become no use for.
TEST_F(OnnxModels, AnActivationOfAnotherKindOfLabelsIsNotWritten) {
  write("m.onnx", image_network({-1, 3, 4, 4}, false, "Sigmoid"));
  const Tensor images = test::fresh_normal({3, 3, 4, 4}, 8), logits = image_logits(mean(images, {2, 3}));
  std::string said;
  const Log log = [&](const std::string& line) { said += line + "\n"; };
  NoGrad off;
  const auto model = load_pretrained<Model>(file("m.onnx"), {.labels = {"a", "b"}, .allow_new_head = true, .log = log});
  test::expect_contains(said, {"the Sigmoid at its end is not for one label"});
  model->save_pretrained(file("run"));
  expect_near(onnx::load(file("run/model.onnx"))->forward(images), logits);
  // The labels are in the file too, as predict reads them of it alone.
  fs::copy_file(file("run/model.onnx"), file("lone.onnx"));
  const auto lone = load_pretrained<Model>(file("lone.onnx"));
  EXPECT_EQ(lone->labels(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(lone->label_kind(), data::LabelKind::kOne);
}

TEST_F(OnnxModels, SeveralLabelsOfAnImage) {
  write("m.onnx", image_network({-1, 3, 4, 4}, false, "Sigmoid"));
  write("preprocessor_config.json", R"({"image_mean": 0, "image_std": 1, "size": 4})");
  const auto pipeline = ImagePipeline::load(file("m.onnx"));
  data::Image image(4, 4, 3);
  std::ranges::fill(image.pixels, 51);  // 0.2
  const Tensor logits = image_logits(full({1, 3}, 0.2));
  const auto found = pipeline.predict({image});
  ASSERT_EQ(found.size(), 1u);
  std::vector<int64_t> over;
  for (int64_t i = 0; i < 2; ++i)
    if (logits.to_vector<float>()[static_cast<size_t>(i)] > 0) over.push_back(i);
  EXPECT_EQ(found[0].labels, over);
  EXPECT_NEAR(found[0].logits[1], logits.to_vector<float>()[1], 1e-6);
  test::expect_contains(error_of([&] { (void)pipeline.predict({image}, test_time_views("flip")); }), {"one label"});
}

TEST_F(OnnxModels, LabelsAndHeads) {
  write("m.onnx", image_network({-1, 3, 4, 4}, false, "Softmax"));
  const Tensor images = test::fresh_normal({3, 3, 4, 4}, 3), logits = image_logits(mean(images, {2, 3}));
  std::string said;
  const Log log = [&](const std::string& line) { said += line + "\n"; };
  NoGrad off;
  // Placeholders take the names of as many labels; another number needs another head.
  auto model = load_pretrained<ImageClassifier>(file("m.onnx"), {.labels = {"cat", "dog"}, .log = log});
  EXPECT_EQ(model->labels(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_TRUE(has(said, "mean and deviation of ImageNet's")) << said;
  expect_near(model->forward(images), logits);
  test::expect_contains(error_of([&] {
                          load_pretrained<Model>(file("m.onnx"), {.labels = {"a", "b", "c"}});
                        }),
                        {"gives 2 numbers for 3 labels"});
  said.clear();
  model =
      load_pretrained<ImageClassifier>(file("m.onnx"), {.labels = {"a", "b", "c"}, .allow_new_head = true, .log = log});
  test::expect_contains(said, {"a new classification head for 3 labels", "2 labels and the data 3"});
  const Tensor fresh = model->forward(images);
  EXPECT_EQ(fresh.shape(), (Shape{3, 3}));
  EXPECT_EQ(find(model->state_dict(), "fc.weight").shape(), (Shape{3, 3}));
  // The folder that is written is read again as it was, and so is a folder with the file alone in onnx/.
  model->save_pretrained(file("run"));
  fs::remove(file("m.onnx"));  // the source is not needed any more
  model->save_pretrained(file("run"));
  const auto again = load_pretrained<ImageClassifier>(file("run"));
  EXPECT_EQ(again->labels(), model->labels());
  EXPECT_EQ(again->record(), model->record());
  EXPECT_EQ(again->forward(images).to_vector<float>(), fresh.to_vector<float>());
  fs::create_directory(file("run/onnx"));
  fs::rename(file("run/model.onnx"), file("run/onnx/model.onnx"));
  for (const char* path : {"run", "run/onnx/model.onnx", "run/onnx", "run/onnx/"})
    EXPECT_EQ(load_pretrained<ImageClassifier>(file(path))->labels(), model->labels()) << path;
  const fs::path here = fs::current_path();
  fs::current_path(file("run/onnx"));
  for (const char* path : {"model.onnx", "./model.onnx", "."}) {
    EXPECT_EQ(load_pretrained<ImageClassifier>(path)->labels(), model->labels()) << path;
    EXPECT_EQ(fs::canonical(folder_of_model(path)), fs::canonical(file("run"))) << path;
  }
  fs::current_path(here);
  write("run/config.json", R"({"id2label": {"0": "x", "1": "y"}})");
  test::expect_contains(error_of([&] { load_pretrained<Model>(file("run")); }),
                        {"config.json", "2 labels", "gives 3 numbers"});
}

/// As SqueezeNet and DenseNet end: the classes are channels.
TEST_F(OnnxModels, AConvolutionMayBeTheHead) {
  const auto network = [](int64_t groups) {
    Message graph;
    Message conv = test::onnx_node("Conv", {"x", "head.weight", "head.bias"}, {"c"});
    graph.message(1, conv.message(5, test::onnx_attribute("group", groups)));
    graph.message(1, test::onnx_node("Relu", {"c"}, {"r"}));
    graph.message(1, test::onnx_node("GlobalAveragePool", {"r"}, {"y"})).text(2, "g");
    graph.message(5,
                  test::onnx_floats("head.weight", {3, 3 / groups, 1, 1}, Floats(static_cast<size_t>(9 / groups), 1)));
    graph.message(5, test::onnx_floats("head.bias", {3}, {0, 1, -1}));
    graph.message(11, test::onnx_value("x", {-1, 3, 2, 2})).message(12, test::onnx_value("y", {-1, 3, 1, 1}));
    return test::onnx_model(graph);
  };
  write("m.onnx", network(1));
  const auto model = load_pretrained<ImageClassifier>(file("m.onnx"), {.labels = {"a", "b"}, .allow_new_head = true});
  const Tensor weight = find(model->state_dict(), "head.weight"), bias = find(model->state_dict(), "head.bias");
  EXPECT_EQ(weight.shape(), (Shape{2, 3, 1, 1}));
  EXPECT_EQ(bias.shape(), (Shape{2}));
  EXPECT_LE(max(abs(weight)).item<double>(), 1 / std::sqrt(3.0));
  NoGrad off;
  const Tensor images = test::fresh_normal({2, 3, 2, 2}, 6);
  expect_near(model->forward(images), mean(relu(conv2d(images, weight, bias)), {2, 3}));
  model->save_pretrained(file("run"));
  expect_near(load_pretrained<ImageClassifier>(file("run"))->forward(images), model->forward(images), 0);
  write("m.onnx", network(3));  // a grouped convolution is not replaced
  test::expect_contains(error_of([&] {
                          load_pretrained<Model>(file("m.onnx"), {.labels = {"a", "b"}, .allow_new_head = true});
                        }),
                        {"the model has 3 labels and the data 2", "cannot be replaced"});
}

TEST_F(OnnxModels, MetadataAndFilesBesideTheModel) {
  const Message network = image_network({-1, 3, 4, 4}, false);
  const auto with = [&](const std::string& key, const std::string& value) {
    return Message(network).message(14, Message().text(1, key).text(2, value));
  };
  write("m.onnx", with("labels", R"(["no", "yes"])"));
  EXPECT_EQ(load_pretrained<Model>(file("m.onnx"))->labels(), (std::vector<std::string>{"no", "yes"}));
  for (const char* other : {R"(["a", "b", "c"])", "a,b", R"([1, 2])", ""}) {
    write("m.onnx", with("labels", other));
    EXPECT_EQ(load_pretrained<Model>(file("m.onnx"))->labels()[1], "LABEL_1") << other;
  }
  write("m.onnx", with("preprocessor_config", R"({"image_mean": [0.1, 0.2, 0.3], "size": {"height": 4, "width": 4}})"));
  const auto pipeline = ImagePipeline::load(file("m.onnx"));
  EXPECT_EQ(pipeline.preprocessing().size, 4);
  EXPECT_FLOAT_EQ(pipeline.preprocessing().normalization.mean[2], 0.3f);
  write("preprocessor_config.json", R"({"image_mean": [0.4, 0.4, 0.4], "size": {"height": 4, "width": 4}})");
  EXPECT_FLOAT_EQ(ImagePipeline::load(file("m.onnx")).preprocessing().normalization.mean[2], 0.4f);
  write("config.json", R"({"architecture": "some_net", "num_classes": 2, "label_names": ["ant", "bee"],
                           "pretrained_cfg": {"input_size": [3, 4, 4]}})");
  EXPECT_EQ(load_pretrained<Model>(file("m.onnx"))->labels()[1], "bee");
}

TEST_F(OnnxModels, ExternalDataAndANewHead) {
  Message graph;
  graph.message(1, test::onnx_node("ReduceMean", {"x"}, {"m"})
                       .message(5, test::onnx_list("axes", {2, 3}))
                       .message(5, test::onnx_attribute("keepdims", 0)));
  graph.message(1, test::onnx_node("Gemm", {"m", "w", "b"}, {"y"})).text(2, "g");
  const auto outside = [](const std::string& name, const std::vector<int64_t>& dims, const std::string& offset,
                          const std::string& length) {
    Message tensor;
    for (const int64_t size : dims) tensor.number(1, static_cast<uint64_t>(size));
    tensor.number(2, 1).text(8, name);
    for (const auto& [key, value] :
         {std::pair<std::string, std::string>{"location", "m.data"}, {"offset", offset}, {"length", length}})
      tensor.message(13, Message().text(1, key).text(2, value));
    return tensor.number(14, 1);
  };
  graph.message(5, outside("w", {3, 2}, "0", "24")).message(5, outside("b", {2}, "24", "8"));
  graph.message(11, test::onnx_value("x", {-1, 3, 2, 2})).message(12, test::onnx_value("y", {-1, 2}));
  write("in/m.onnx", test::onnx_model(graph, 13));
  const Floats numbers = {1, 2, 3, 4, 5, 6, 7, 8};
  write("in/m.data", std::string(reinterpret_cast<const char*>(numbers.data()), 32));
  const auto model =
      load_pretrained<ImageClassifier>(file("in/m.onnx"), {.labels = {"a", "b", "c"}, .allow_new_head = true});
  const Tensor images = test::fresh_normal({2, 3, 2, 2}, 5);
  NoGrad off;
  const Tensor before = model->forward(images);
  const auto whole = load_pretrained<ImageClassifier>(file("in/m.onnx"));
  whole->save_pretrained(file("kept"));
  fs::remove_all(file("in"));
  model->save_pretrained(file("out"));
  expect_near(load_pretrained<ImageClassifier>(file("out"))->forward(images), before, 0);
  // Data files are named after their model, so that a second model in the folder does not overwrite the first one's.
  const auto second = load_pretrained<ImageClassifier>(file("kept"));
  const Tensor first_gave = whole->forward(images);
  fs::create_directory(file("both"));
  ASSERT_TRUE(save_onnx_file(*whole, file("both/a.onnx")));
  for (NamedTensor entry : second->state_dict()) entry.tensor.fill_(7);
  ASSERT_TRUE(save_onnx_file(*second, file("both/b.onnx")));
  expect_near(load_pretrained<ImageClassifier>(file("both/a.onnx"))->forward(images), first_gave, 0);
  EXPECT_EQ(find(load_pretrained<Model>(file("both/b.onnx"))->state_dict(), "b").to_vector<float>()[1], 7);
  ASSERT_TRUE(fs::exists(file("kept/model.onnx.data")));
  const auto third = load_pretrained<ImageClassifier>(file("kept"));
  test::expect_contains(error_of([&] { save_onnx_file(*third, file("kept/model.onnx.data")); }),
                        {"it is where the data of"});
  expect_near(load_pretrained<ImageClassifier>(file("kept"))->forward(images), first_gave, 0);
}

TEST_F(OnnxModels, FilesThatAreNoSuchModel) {
  const auto refused = [&](const Message& model) {
    write("m.onnx", model);
    return error_of([&] { load_pretrained<Model>(file("m.onnx")); });
  };
  Message two;
  two.message(1, test::onnx_node("Add", {"x", "z"}, {"y"})).text(2, "g");
  two.message(11, test::onnx_value("x", {-1, 3})).message(11, test::onnx_value("z", {3}));
  two.message(12, test::onnx_value("y", {-1, 3}));
  test::expect_contains(refused(test::onnx_model(two)),
                        {"the inputs x float [n, 3], z float [3]", "outputs y float [n, 3]", "onnx::load()"});
  EXPECT_NE(error_of([&] { kind_of_model(file("m.onnx")); }), "no error");
  EXPECT_TRUE(has(refused(image_network({-1, 5, 4, 4}, false)), "1 or 3 channels"));
  EXPECT_TRUE(has(refused(image_network({-1, 3, 4, 6}, false)), "[batch, channels, size, size]"));
  write("m.onnx", image_network({-1, 3, 4, 4}, false));
  test::expect_contains(error_of([&] { load_pretrained<Model>(file("m.onnx"), {.dropout = 0.5}); }), {"--dropout"});
  test::expect_contains(error_of([&] { load_pretrained<Model>(file("m.onnx"), {.dtype = bfloat16}); }),
                        {"cannot be bfloat16", "--dtype bf16"});
  const auto model = load_pretrained<Model>(file("m.onnx"));
  test::expect_contains(error_of([&] { model->set_recompute(1); }), {"--recompute"});
  test::expect_contains(error_of([&] { family_of(file("none.onnx")); }), {"none.onnx: no such folder or file"});
  EXPECT_FALSE(onnx_files(folder_ / "rows.csv"));
  EXPECT_EQ(folder_of_model(file("m.onnx")), folder_.path().string());
  EXPECT_EQ(folder_of_model("some/folder"), "some/folder");
}

}  // namespace
}  // namespace tern::models
