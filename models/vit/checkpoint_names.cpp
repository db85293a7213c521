#include "tern/models/vit/checkpoint_names.h"

#include <cmath>

namespace tern::models {
namespace {

/// What differs between the families: the names of single tensors, and of a block's.
struct Names {
  std::string class_token, position, patch, block, qkv_weight, qkv_bias, out, attention_norm, output_norm, lin1, lin2,
      norm, classifier;
};

const Names& table(ViTNames names) {
  // Hugging Face's query, key and value are three tensors, see vit_key_map().
  static const Names hugging_face{.class_token = "vit.embeddings.cls_token",
                                  .position = "vit.embeddings.position_embeddings",
                                  .patch = "vit.embeddings.patch_embeddings.projection",
                                  .block = "vit.encoder.layer.*.",
                                  .qkv_weight = "",
                                  .qkv_bias = "",
                                  .out = "attention.output.dense",
                                  .attention_norm = "layernorm_before",
                                  .output_norm = "layernorm_after",
                                  .lin1 = "intermediate.dense",
                                  .lin2 = "output.dense",
                                  .norm = "vit.layernorm",
                                  .classifier = "classifier"};
  static const Names torchvision{.class_token = "class_token",
                                 .position = "encoder.pos_embedding",
                                 .patch = "conv_proj",
                                 .block = "encoder.layers.encoder_layer_*.",
                                 .qkv_weight = "self_attention.in_proj_weight",
                                 .qkv_bias = "self_attention.in_proj_bias",
                                 .out = "self_attention.out_proj",
                                 .attention_norm = "ln_1",
                                 .output_norm = "ln_2",
                                 .lin1 = "mlp.0",
                                 .lin2 = "mlp.3",
                                 .norm = "encoder.ln",
                                 .classifier = "heads.head"};
  static const Names timm{.class_token = "cls_token",
                          .position = "pos_embed",
                          .patch = "patch_embed.proj",
                          .block = "blocks.*.",
                          .qkv_weight = "attn.qkv.weight",
                          .qkv_bias = "attn.qkv.bias",
                          .out = "attn.proj",
                          .attention_norm = "norm1",
                          .output_norm = "norm2",
                          .lin1 = "mlp.fc1",
                          .lin2 = "mlp.fc2",
                          .norm = "norm",
                          .classifier = "head"};
  return names == ViTNames::kHuggingFace ? hugging_face : names == ViTNames::kTorchvision ? torchvision : timm;
}

KeyMap make_map(ViTNames names) {
  const Names& n = table(names);
  const std::string tern_prefix = "encoder.layer.*.";
  KeyMap map{{"class_token", {n.class_token}}, {"position", {n.position}}};
  for (const std::string part : {".weight", ".bias"}) {
    map.push_back({"patch" + std::string(part == ".weight" ? "_weight" : "_bias"), {n.patch + part}});
    if (names == ViTNames::kHuggingFace) {
      const std::string attention = n.block + "attention.attention.";
      map.push_back({tern_prefix + "attention.qkv" + part,
                     {attention + "query" + part, attention + "key" + part, attention + "value" + part}});
    } else {
      map.push_back(
          {tern_prefix + "attention.qkv" + part, {n.block + (part == ".weight" ? n.qkv_weight : n.qkv_bias)}});
    }
    map.push_back({tern_prefix + "attention.out" + part, {n.block + n.out + part}});
    map.push_back({tern_prefix + "attention_norm" + part, {n.block + n.attention_norm + part}});
    map.push_back({tern_prefix + "output_norm" + part, {n.block + n.output_norm + part}});
    map.push_back({tern_prefix + "feed_forward.lin1" + part, {n.block + n.lin1 + part}});
    map.push_back({tern_prefix + "feed_forward.lin2" + part, {n.block + n.lin2 + part}});
    map.push_back({"encoder.norm" + part, {n.norm + part}});
    map.push_back({"pool_norm" + part, {"fc_norm" + part}});
    map.push_back({"classifier" + part, {n.classifier + part}});
  }
  return map;
}

bool has(const StateView& state, const std::string& name) { return find(state, name).defined(); }

/// The first `from` in the name becomes `to`.
void replace(std::string& name, const std::string& from, const std::string& to) {
  const size_t at = name.find(from);
  if (at != std::string::npos) name.replace(at, from.size(), to);
}

/// The tensor of a block or a single one; the error names it.
Tensor need(const StateView& state, std::string name, const std::string& source, int dims) {
  replace(name, "*", "0");
  const Tensor tensor = find(state, name);
  TERN_CHECK(tensor.defined(), source, ": there is no tensor '", name, "'");
  TERN_CHECK(tensor.dim() == dims, source, ": '", name, "' is ", tensor.describe(), ", expected ", dims, " dimensions");
  return tensor;
}

}  // namespace

const KeyMap& vit_key_map(ViTNames names) {
  static const KeyMap hugging_face = make_map(ViTNames::kHuggingFace), torchvision = make_map(ViTNames::kTorchvision),
                      timm = make_map(ViTNames::kTimm);
  return names == ViTNames::kHuggingFace ? hugging_face : names == ViTNames::kTorchvision ? torchvision : timm;
}

ViTNames vit_names(const StateView& state, const std::string& source) {
  if (has(state, "conv_proj.weight")) return ViTNames::kTorchvision;
  if (has(state, "patch_embed.proj.weight")) return ViTNames::kTimm;
  for (const std::string prefix : {"vit.", ""})
    if (has(state, prefix + "embeddings.patch_embeddings.projection.weight")) return ViTNames::kHuggingFace;
  fail(source,
       ": the names of the tensors are not those of a Vision Transformer from Hugging Face, torchvision or timm (there "
       "is no embeddings.patch_embeddings.projection.weight, conv_proj.weight or patch_embed.proj.weight)");
}

StateView vit_modernised(ViTNames names, StateView state) {
  bool prefixed = false;
  for (const NamedTensor& entry : state) prefixed = prefixed || entry.name.starts_with("vit.");
  for (NamedTensor& entry : state) {
    std::string& name = entry.name;
    if (names == ViTNames::kTorchvision) {
      replace(name, ".mlp.linear_1.", ".mlp.0.");
      replace(name, ".mlp.linear_2.", ".mlp.3.");
    } else if (names == ViTNames::kHuggingFace) {
      if (!prefixed && !name.starts_with("classifier.") && !name.starts_with("fc_norm.")) name = "vit." + name;
      if (!name.starts_with("vit.layers.")) continue;
      replace(name, "vit.layers.", "vit.encoder.layer.");
      replace(name, ".attention.q_proj.", ".attention.attention.query.");
      replace(name, ".attention.k_proj.", ".attention.attention.key.");
      replace(name, ".attention.v_proj.", ".attention.attention.value.");
      replace(name, ".attention.o_proj.", ".attention.output.dense.");
      replace(name, ".mlp.fc1.", ".intermediate.dense.");
      replace(name, ".mlp.fc2.", ".output.dense.");
    }
  }
  return state;
}

ViTConfig vit_config_from_shapes(ViTNames names, const StateView& state, int64_t heads, const std::string& source) {
  const Names& n = table(names);
  const Tensor patch = need(state, n.patch + ".weight", source, 4), position = need(state, n.position, source, 3);
  TERN_CHECK(patch.size(2) == patch.size(3), source, ": '", n.patch, ".weight' is ", patch.describe(),
             "; patches must be square");
  ViTConfig config;
  config.width = patch.size(0);
  config.channels = patch.size(1);
  config.patch_size = patch.size(2);
  config.class_token = has(state, n.class_token);
  config.pool = has(state, "fc_norm.weight") ? "mean" : "cls";
  const int64_t patches = position.size(1) - (config.class_token ? 1 : 0);
  const int64_t side = std::llround(std::sqrt(static_cast<double>(std::max<int64_t>(patches, 0))));
  TERN_CHECK(side > 0 && side * side == patches, source, ": '", n.position, "' is ", position.describe(), ": ", patches,
             " patches are not a square grid");
  config.image_size = side * config.patch_size;
  config.hidden = need(state, n.block + n.lin1 + ".weight", source, 2).size(0);
  const auto block_has = [&](int64_t layer, const std::string& name) {
    std::string full = n.block + name;
    replace(full, "*", std::to_string(layer));
    return has(state, full);
  };
  config.layers = 0;
  while (block_has(config.layers, n.lin1 + ".weight")) ++config.layers;
  config.qkv_bias =
      block_has(0, names == ViTNames::kHuggingFace ? std::string("attention.attention.query.bias") : n.qkv_bias);
  config.norm_eps = names == ViTNames::kHuggingFace ? 1e-12 : 1e-6;  // each library's default
  if (heads == 0) {
    TERN_CHECK(config.width % 64 == 0, source, ": a width of ", config.width,
               " does not say how many heads there are; give it (ViTFileOptions::heads)");
    heads = config.width == 1280 ? 16 : config.width / 64;  // ViT-H has heads of 80
  }
  config.heads = heads;
  const Tensor head = find(state, n.classifier + ".weight");
  if (head.defined() && head.dim() == 2) {
    TERN_CHECK(head.size(0) <= 1'000'000, source, ": '", n.classifier, ".weight' is ", head.describe());
    config.labels.clear();
    for (int64_t i = 0; i < head.size(0); ++i) config.labels.push_back("LABEL_" + std::to_string(i));
  }
  config.validate(source);
  return config;
}

}  // namespace tern::models
