// Folders and files as transformers, timm, Lightning and others write them: what Tern computes the same is read, and
// what it does not is refused by its name.

#include <cmath>
#include <fstream>

#include "tern/core/io/json.h"
#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"
#include "tern/models/cnn/cnn.h"
#include "tern/models/families.h"
#include "tern/models/image/image_pipeline.h"
#include "tern/models/timm.h"
#include "tern/models/vit/vit.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/models/golden.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

using test::error_of;
using test::has;
using Json = nlohmann::json;

class ForeignFolders : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return dir_ / name; }
  void write(const std::string& name, const Json& json) const { std::ofstream(file(name)) << json.dump(); }
  void save(const StateView& state) const { save_safetensors(state, file("model.safetensors")); }
  StateView golden(const std::string& name) const {
    return load_safetensors(kGolden + name + "/model.safetensors").tensors;
  }
  /// Lines that loading the folder, or the file in it, says.
  std::string said_by(const std::string& path, BuildOptions options = {}) const {
    std::string said;
    options.log = [&](const std::string& line) { said += line + "\n"; };
    load_pretrained<ImageClassifier>(path, options);
    return said;
  }
  std::string error(const std::string& path = "") const {
    return error_of([&] { load_pretrained<ImageClassifier>(path.empty() ? std::string(dir_.path()) : path); });
  }

  test::TemporaryFolder dir_;
};

StateView with_prefix(const std::string& prefix, StateView state) {
  for (NamedTensor& entry : state) entry.name = prefix + entry.name;
  return state;
}

StateView resnet18() {
  CnnConfig config = CnnConfig::preset("resnet18");
  config.labels = {"a", "b", "c"};
  return Cnn::make(nn::Scope({.generator = test::fresh_generator()}), config)->state_dict();
}

/// timm 1.0.31's config.json of a network, as save_for_hf writes it.
Json timm_config(const std::string& architecture, const Json& arguments) {
  return {{"architecture", architecture},
          {"num_classes", 3},
          {"global_pool", arguments.value("global_pool", "token")},
          {"model_args", arguments},
          {"pretrained_cfg",
           {{"tag", "augreg_in21k_ft_in1k"},
            {"input_size", {3, 224, 224}},
            {"interpolation", "bicubic"},
            {"crop_pct", 0.9},
            {"crop_mode", "center"},
            {"mean", {0.5, 0.25, 0.125}},
            {"std", {0.5, 0.75, 1.5}}}}};
}

TEST_F(ForeignFolders, TimmsViTHasTheHeadsOfItsConfig) {
  const StateView expected = expected_of("vit_timm");
  save(golden("vit_timm"));
  const int64_t width = find(golden("vit_timm"), "cls_token").size(2);
  const auto logits = [&](const Json& arguments) {
    write("config.json", timm_config("vit_tiny_patch16_224", arguments));
    const auto model = ViT::from_pretrained(dir_.path());
    model->eval();
    return model->forward(find(expected, "images"));
  };
  expect_near(logits({{"num_heads", 3}, {"embed_dim", width}, {"img_size", {32, 32}}}), find(expected, "logits"),
              kClose);
  expect_near(logits({{"embed_dim", width}}), find(expected, "logits"), kClose);  // vit_tiny has three heads
  EXPECT_GT(max(abs(logits({{"num_heads", 1}, {"embed_dim", width}}) - find(expected, "logits"))).item<double>(),
            10 * kClose);
  const auto refused = [&](const std::string& architecture, const Json& arguments, const std::string& part) {
    write("config.json", timm_config(architecture, arguments));
    EXPECT_TRUE(has(error(), part)) << architecture << arguments << error();
    EXPECT_TRUE(has(error(), "config.json")) << error();
  };
  const Json good = {{"embed_dim", width}};
  refused("vit_tiny_patch16_224", Json::object(), "has a width of 192");
  for (const char* name : {"vit_base_patch16_clip_224", "vit_base_patch14_reg4_dinov2", "vit_medium_patch16_gap_240",
                           "deit3_base_patch16_224", "deit_tiny_distilled_patch16_224", "vit_relpos_base_patch16_224",
                           "flexivit_small", "vit_so400m_patch14_siglip_224", "resnetv2_50", "vit"})
    refused(name, good, name);
  for (const Json& more : {Json{{"act_layer", "quick_gelu"}}, Json{{"init_values", 1e-5}}, Json{{"pre_norm", true}},
                           Json{{"norm_layer", "rmsnorm"}}, Json{{"reg_tokens", 4}}, Json{{"no_embed_class", true}}}) {
    Json arguments = good;
    arguments.update(more);
    refused("vit_tiny_patch16_224", arguments, more.begin().key());
  }
  Json pooled = good;
  pooled["global_pool"] = "avg";  // without a norm behind it
  refused("vit_tiny_patch16_224", pooled, "fc_norm");
  pooled["global_pool"] = "map";
  refused("vit_tiny_patch16_224", pooled, "\"global_pool\" is \"map\"");
  Json harmless = good;
  harmless.update({{"drop_rate", 0.5}, {"pre_norm", false}, {"init_values", nullptr}});
  write("config.json", timm_config("vit_tiny_patch16_224.augreg", harmless));
  EXPECT_EQ(error(), "no error");
  // A file alone does not say its heads.
  EXPECT_TRUE(has(error_of([&] { said_by(file("model.safetensors")); }), "does not say how many heads"));
  EXPECT_EQ(said_by(file("model.safetensors"), {.heads = 3}), "");
}

TEST_F(ForeignFolders, TimmsResNetsAreThoseOfTheirNames) {
  save(resnet18());
  const Json arguments = {{"global_pool", "avg"}, {"num_classes", 3}};
  Json config = timm_config("resnet18", arguments);
  config["label_names"] = {"x", "y", "z"};
  config["pretrained_cfg"]["input_size"] = {3, 160, 160};
  write("config.json", config);
  const ImagePipeline pipeline = ImagePipeline::load(dir_.path());
  EXPECT_EQ(pipeline.model().labels(), (std::vector<std::string>{"x", "y", "z"}));
  EXPECT_EQ(pipeline.preprocessing().size, 160);
  EXPECT_EQ(pipeline.preprocessing().crop_from, 177);  // 160 / 0.9, rounded down
  EXPECT_EQ(pipeline.preprocessing().interpolation, data::Interpolation::kBicubic);
  for (int c = 0; c < 3; ++c) {
    EXPECT_EQ(pipeline.preprocessing().normalization.mean[c], 0.5f / static_cast<float>(1 << c));
    EXPECT_EQ(pipeline.preprocessing().normalization.std[c], 0.5f + (c > 0 ? 0.25f : 0) + (c > 1 ? 0.75f : 0));
  }
  EXPECT_EQ(said_by(dir_.path()), "");
  for (const char* name : {"resnetblur18", "resnetaa50", "resnet18d", "seresnet18", "legacy_seresnet18"}) {
    write("config.json", timm_config(name, arguments));
    EXPECT_TRUE(has(error(), name)) << error();
  }
  for (const Json& more : {Json{{"aa_layer", "blurpool"}}, Json{{"output_stride", 8}}, Json{{"act_layer", "silu"}},
                           Json{{"global_pool", "max"}}, Json{{"avg_down", true}}}) {
    Json changed = arguments;
    changed.update(more);
    write("config.json", timm_config("resnet18", changed));
    EXPECT_TRUE(has(error(), more.begin().key())) << more << error();
  }
  EXPECT_TRUE(has(said_by(file("model.safetensors")), "computed; networks with other pools have the same"));
}

TEST_F(ForeignFolders, TimmsImages) {
  const auto images = [](const Json& given) {
    Json config = timm_config("resnet18", Json::object());
    config["pretrained_cfg"].update(given);
    return TimmConfig::from_json(config, "config.json")->images();
  };
  EXPECT_EQ(images({{"crop_pct", nullptr}}).crop, 0.875);
  EXPECT_EQ(images({{"mean", nullptr}}).normalization.mean[0], 0.485f);
  EXPECT_EQ(images({{"interpolation", "bilinear"}}).interpolation, data::Interpolation::kBilinear);
  EXPECT_TRUE(images({{"crop_mode", "squash"}, {"crop_pct", 1.0}}).squash);
  for (const Json& wrong :
       {Json{{"crop_mode", "border"}}, Json{{"crop_mode", "squash"}}, Json{{"interpolation", "random"}},
        Json{{"crop_pct", 1.5}}, Json{{"crop_pct", "1"}}, Json{{"input_size", {3, 224, 256}}}, Json{{"mean", {0.5}}},
        Json{{"std", {0.5, 0.0, 0.5}}}, Json{{"input_size", {224}}}})
    EXPECT_TRUE(has(error_of([&] { images(wrong); }), wrong.begin().key())) << wrong;
  EXPECT_FALSE(TimmConfig::from_json({{"architecture", "resnet18"}, {"model_type", "tern_cnn"}}, "").has_value());
  EXPECT_FALSE(TimmConfig::from_json({{"architectures", {"ViT"}}}, "").has_value());
}

/// The centre of the image whose shorter side was resized, as torchvision's Resize and CenterCrop.
TEST_F(ForeignFolders, TheCentreIsCutOut) {
  data::Image image(30, 60, 3);
  for (int64_t y = 0; y < 30; ++y)
    for (int64_t x = 0; x < 60 * 3; ++x)
      image.row(y)[x] = static_cast<uint8_t>(x / 3 < 20 || x / 3 >= 40 ? 255 : 4 * y);
  const ImagePreprocessing preprocessing{.size = 10, .crop_from = 15};
  const data::Image cut = preprocessing.fit(image, 10);
  EXPECT_EQ(cut.height, 10);
  EXPECT_EQ(cut.width, 10);
  // 30 x 60 becomes 15 x 30, of which rows 2 .. 11 and columns 10 .. 19 stay: nothing of the white sides.
  for (int64_t y = 0; y < 10; ++y)
    for (int64_t x = 1; x < 9; ++x) EXPECT_NEAR(cut.row(y)[3 * x], 4 * (2 * (y + 2) + 0.5), 1.01) << y << " " << x;
  EXPECT_EQ(preprocessing.fit(image, 20).width, 20);
  const ImagePreprocessing again = ImagePreprocessing::from_json(preprocessing.to_json(), "here");
  EXPECT_EQ(again.size, 10);
  EXPECT_EQ(again.crop_from, 15);
  EXPECT_TRUE(has(error_of([&] { preprocessing.fit(data::Image(1, 101, 3), 10); }), "too narrow"));
}

TEST_F(ForeignFolders, Preprocessing) {
  const auto parse = [](const Json& json) { return ImagePreprocessing::from_json(json.dump(), "here"); };
  // What (x f - mean) / std gives for x of 51, as Tern computes it from x / 255.
  const auto normalised = [&](const Json& json) {
    const kernels::ImageNormalization n = parse(json).normalization;
    return (51.0 / 255 - n.mean[1]) / n.std[1];
  };
  EXPECT_NEAR(normalised(Json::object()), (0.2 - 0.5) / 0.5, 1e-6);
  EXPECT_NEAR(normalised({{"image_mean", 0.25}, {"image_std", 0.125}}), (0.2 - 0.25) / 0.125, 1e-6);
  EXPECT_NEAR(normalised({{"image_mean", {0.25}}, {"image_std", {0.125}}}), (0.2 - 0.25) / 0.125, 1e-6);
  EXPECT_NEAR(normalised({{"image_mean", {1, 0.25, 1}}}), (0.2 - 0.25) / 0.5, 1e-6);
  EXPECT_NEAR(normalised({{"do_normalize", nullptr}, {"image_mean", 0.25}}), 0.2, 1e-7);
  EXPECT_NEAR(normalised({{"do_normalize", false}, {"image_std", 0}}), 0.2, 1e-7);
  EXPECT_NEAR(normalised({{"rescale_factor", 1 / 127.5}}), (51 / 127.5 - 0.5) / 0.5, 1e-6);
  EXPECT_NEAR(normalised({{"do_rescale", nullptr}}), (51 - 0.5) / 0.5, 1e-3);
  EXPECT_NEAR(normalised({{"do_rescale", false}, {"do_normalize", false}}), 51, 1e-3);
  EXPECT_EQ(parse({{"size", {96, 96}}}).size, 96);
  EXPECT_EQ(parse({{"do_center_crop", nullptr}}).crop_from, 0);
  EXPECT_EQ(parse({{"image_processor_type", "ViTImageProcessorFast"}}).size, 224);
  const Json bit = {{"image_processor_type", "BitImageProcessor"},
                    {"resample", 3},
                    {"image_mean", 0.5},
                    {"image_std", 0.5},
                    {"crop_size", 192},
                    {"do_center_crop", true},
                    {"size", {{"shortest_edge", 219}}}};
  EXPECT_EQ(parse(bit).crop_from, 219);
  EXPECT_EQ(parse(bit).size, 192);
  Json incomplete = bit;
  incomplete.erase("image_mean");
  EXPECT_TRUE(has(error_of([&] { parse(incomplete); }), "has no \"image_mean\""));
  for (const Json& wrong :
       {Json{{"image_mean", {0.5, 0.5}}}, Json{{"image_mean", "0.5"}}, Json{{"image_std", 0}}, Json{{"size", {96, 90}}},
        Json{{"do_resize", nullptr}}, Json{{"do_center_crop", true}}, Json{{"rescale_factor", 0}},
        Json{{"image_processor_type", "EfficientNetImageProcessor"}},
        Json{{"feature_extractor_type", "BeitFeatureExtractor"}}, Json{{"size", {{"shortest_edge", 224}}}}})
    EXPECT_TRUE(has(error_of([&] { parse(wrong); }), "here: ")) << wrong;
}

/// "model." of Lightning, "backbone." and the like: cut where a whole set of names lies behind it.
TEST_F(ForeignFolders, PrefixesOfWholeSets) {
  const StateView expected = expected_of("vit_timm");
  const std::string path = file("model.safetensors");
  for (const std::string prefix : {"model.", "net.", "backbone.encoder.", "student."}) {
    save(with_prefix(prefix, golden("vit_timm")));
    const auto model = ViT::from_pretrained(path, {.heads = 3});
    model->eval();
    expect_near(model->forward(find(expected, "images")), find(expected, "logits"), kClose);
  }
  StateView both = with_prefix("model.", golden("vit_timm"));
  both.push_back({"loss.weight", ones({3})});
  save(both);
  EXPECT_TRUE(has(said_by(path, {.heads = 3}), "the tensors under 'model.', without loss.weight"));
  for (const NamedTensor& entry : with_prefix("teacher.", golden("vit_timm"))) both.push_back(entry);
  save(both);
  EXPECT_TRUE(has(error(path), "under 'model.' and 'teacher.'")) << error(path);
  StateView headless;
  for (const NamedTensor& entry : with_prefix("body.", golden("vit_timm")))
    if (!entry.name.starts_with("body.head.")) headless.push_back(entry);
  headless.push_back({"head.weight", ones({3, 4})});
  save(headless);
  const std::string missing = error_of([&] { ViT::from_pretrained(path, {.heads = 3}); });
  for (const char* part : {"missing: head.weight", "under 'body.', without head.weight"})
    EXPECT_TRUE(has(missing, part)) << missing;

  StateView cnn = with_prefix("model.", resnet18());
  for (NamedTensor& entry : cnn)  // averaged checkpoints, and .half() of everything
    if (entry.name.ends_with("num_batches_tracked"))
      entry.tensor = full({}, entry.name.ends_with("bn1.num_batches_tracked") ? 12.5 : INFINITY,
                          {.dtype = entry.name.find("layer1") == std::string::npos ? float32 : float16});
  save(cnn);
  const auto model = Cnn::from_pretrained(path);
  EXPECT_EQ(model->config().architecture, "resnet18");
  EXPECT_EQ(find(model->state_dict(), "bn1.num_batches_tracked").item<int64_t>(), 12);
  EXPECT_EQ(find(model->state_dict(), "layer1.0.bn2.num_batches_tracked").dtype(), int64);
  EXPECT_EQ(family_of(path).name, "cnn");
}

TEST_F(ForeignFolders, HeadsOfMaskedImages) {
  const std::string source = kGolden + "vit_hf";
  Json config = read_json_object(source + "/config.json");
  config["my_own_key"] = 5;
  config["image_size"] = {config["image_size"], config["image_size"]};
  config["architectures"] = {"ViTForMaskedImageModeling"};
  write("config.json", config);
  StateView state;
  for (const NamedTensor& entry : golden("vit_hf"))
    if (!entry.name.starts_with("classifier.")) state.push_back(entry);
  const int64_t width = find(state, "vit.embeddings.cls_token").size(2);
  state.push_back({"vit.embeddings.mask_token", ones({1, 1, width})});
  state.push_back({"decoder.0.weight", ones({48, width, 1, 1})});
  state.push_back({"decoder.0.bias", ones({48})});
  save(state);
  EXPECT_TRUE(has(error(), "missing: classifier.weight, classifier.bias")) << error();
  EXPECT_FALSE(has(error(), "unexpected"));
  const std::string said = said_by(dir_.path(), {.labels = {"p", "q"}, .allow_new_head = true});
  EXPECT_TRUE(has(said, "the field my_own_key is not known and ignored")) << said;
  EXPECT_TRUE(has(said, "a new classification head for 2 labels is initialized")) << said;
}

}  // namespace
}  // namespace tern::models
