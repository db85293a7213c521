#include "tern/models/vit/checkpoint_names.h"

#include <cmath>
#include <optional>

namespace tern::models {
namespace {

bool has(const StateView& state, const std::string& name) { return find(state, name).defined(); }

/// The tensor of a file that becomes Tern's `tern_name`; the error names it.
Tensor need(const KeyMap& map, const StateView& state, const std::string& tern_name, const std::string& source,
            int dims) {
  const std::string name = checkpoint_names_of(map, tern_name)[0];
  const Tensor tensor = find(state, name);
  TERN_CHECK(tensor.defined(), source, ": there is no tensor '", name, "'");
  TERN_CHECK(tensor.dim() == dims, source, ": '", name, "' is ", tensor.describe(), ", expected ", dims, " dimensions");
  return tensor;
}

std::optional<ViTNames> recognized_names(const StateView& state) {
  if (has(state, "conv_proj.weight")) return ViTNames::kTorchvision;
  if (has(state, "patch_embed.proj.weight")) return ViTNames::kTimm;
  for (const std::string prefix : {"vit.", ""})
    if (has(state, prefix + "embeddings.patch_embeddings.projection.weight")) return ViTNames::kHuggingFace;
  return {};
}

}  // namespace

const KeyMap& vit_key_map(ViTNames names) {
  static const KeyMap hugging_face = with_weight_and_bias(
      {{"class_token", {"vit.embeddings.cls_token"}},
       {"position", {"vit.embeddings.position_embeddings"}},
       {"patch_", {"vit.embeddings.patch_embeddings.projection."}},
       {"encoder.layer.*.attention.qkv.",
        {"vit.encoder.layer.*.attention.attention.query.", "vit.encoder.layer.*.attention.attention.key.",
         "vit.encoder.layer.*.attention.attention.value."}},
       {"encoder.layer.*.attention.out.", {"vit.encoder.layer.*.attention.output.dense."}},
       {"encoder.layer.*.attention_norm.", {"vit.encoder.layer.*.layernorm_before."}},
       {"encoder.layer.*.output_norm.", {"vit.encoder.layer.*.layernorm_after."}},
       {"encoder.layer.*.feed_forward.lin1.", {"vit.encoder.layer.*.intermediate.dense."}},
       {"encoder.layer.*.feed_forward.lin2.", {"vit.encoder.layer.*.output.dense."}},
       {"encoder.norm.", {"vit.layernorm."}},
       {"pool_norm.", {"fc_norm."}},
       {"classifier.", {"classifier."}}});
  static const KeyMap torchvision = with_weight_and_bias(
      {{"class_token", {"class_token"}},
       {"position", {"encoder.pos_embedding"}},
       {"patch_", {"conv_proj."}},
       {"encoder.layer.*.attention.qkv.", {"encoder.layers.encoder_layer_*.self_attention.in_proj_"}},
       {"encoder.layer.*.attention.out.", {"encoder.layers.encoder_layer_*.self_attention.out_proj."}},
       {"encoder.layer.*.attention_norm.", {"encoder.layers.encoder_layer_*.ln_1."}},
       {"encoder.layer.*.output_norm.", {"encoder.layers.encoder_layer_*.ln_2."}},
       {"encoder.layer.*.feed_forward.lin1.", {"encoder.layers.encoder_layer_*.mlp.0."}},
       {"encoder.layer.*.feed_forward.lin2.", {"encoder.layers.encoder_layer_*.mlp.3."}},
       {"encoder.norm.", {"encoder.ln."}},
       {"pool_norm.", {"fc_norm."}},
       {"classifier.", {"heads.head."}}});
  static const KeyMap timm = with_weight_and_bias({{"class_token", {"cls_token"}},
                                                   {"position", {"pos_embed"}},
                                                   {"patch_", {"patch_embed.proj."}},
                                                   {"encoder.layer.*.attention.qkv.", {"blocks.*.attn.qkv."}},
                                                   {"encoder.layer.*.attention.out.", {"blocks.*.attn.proj."}},
                                                   {"encoder.layer.*.attention_norm.", {"blocks.*.norm1."}},
                                                   {"encoder.layer.*.output_norm.", {"blocks.*.norm2."}},
                                                   {"encoder.layer.*.feed_forward.lin1.", {"blocks.*.mlp.fc1."}},
                                                   {"encoder.layer.*.feed_forward.lin2.", {"blocks.*.mlp.fc2."}},
                                                   {"encoder.norm.", {"norm."}},
                                                   {"pool_norm.", {"fc_norm."}},
                                                   {"classifier.", {"head."}}});
  return names == ViTNames::kHuggingFace ? hugging_face : names == ViTNames::kTorchvision ? torchvision : timm;
}

bool has_vit_names(const StateView& state) { return recognized_names(state).has_value(); }

ViTNames vit_names(const StateView& state, const std::string& source) {
  if (const auto names = recognized_names(state)) return *names;
  fail(source,
       ": the names of the tensors are not those of a Vision Transformer from Hugging Face, torchvision or timm (there "
       "is no embeddings.patch_embeddings.projection.weight, conv_proj.weight or patch_embed.proj.weight)");
}

StateView vit_modernised(ViTNames names, StateView state) {
  if (names == ViTNames::kTorchvision)
    replace_in_names(state, {{".mlp.linear_1.", ".mlp.0."}, {".mlp.linear_2.", ".mlp.3."}});
  if (names != ViTNames::kHuggingFace) return state;
  add_missing_prefix(state, "vit.", {"classifier.", "fc_norm."});
  modernise_norms(state);
  replace_in_names(state, {{"vit.layers.", "vit.encoder.layer."},
                           {".attention.q_proj.", ".attention.attention.query."},
                           {".attention.k_proj.", ".attention.attention.key."},
                           {".attention.v_proj.", ".attention.attention.value."},
                           {".attention.o_proj.", ".attention.output.dense."},
                           {".mlp.fc1.", ".intermediate.dense."},
                           {".mlp.fc2.", ".output.dense."}});
  return state;
}

ViTConfig vit_config_from_shapes(ViTNames names, const StateView& state, int64_t heads, const std::string& source) {
  const KeyMap& map = vit_key_map(names);
  const auto name_of = [&](const std::string& tern_name) { return checkpoint_names_of(map, tern_name)[0]; };
  const auto in_layer = [](int64_t layer, const std::string& rest) {
    return "encoder.layer." + std::to_string(layer) + rest;
  };
  const Tensor patch = need(map, state, "patch_weight", source, 4), position = need(map, state, "position", source, 3);
  TERN_CHECK(patch.size(2) == patch.size(3), source, ": '", name_of("patch_weight"), "' is ", patch.describe(),
             "; patches must be square");
  ViTConfig config;
  config.width = patch.size(0);
  config.channels = patch.size(1);
  config.patch_size = patch.size(2);
  config.class_token = has(state, name_of("class_token"));
  config.pool = has(state, "fc_norm.weight") ? "mean" : "cls";
  const int64_t patches = position.size(1) - (config.class_token ? 1 : 0);
  const int64_t side = std::llround(std::sqrt(static_cast<double>(std::max<int64_t>(patches, 0))));
  TERN_CHECK(side > 0 && side * side == patches, source, ": '", name_of("position"), "' is ", position.describe(), ": ",
             patches, " patches are not a square grid");
  config.image_size = side * config.patch_size;
  config.hidden = need(map, state, in_layer(0, ".feed_forward.lin1.weight"), source, 2).size(0);
  config.layers = 0;
  while (has(state, name_of(in_layer(config.layers, ".feed_forward.lin1.weight")))) ++config.layers;
  config.qkv_bias = has(state, name_of(in_layer(0, ".attention.qkv.bias")));
  config.norm_eps = names == ViTNames::kHuggingFace ? 1e-12 : 1e-6;  // each library's default
  if (heads == 0) {
    TERN_CHECK(config.width % 64 == 0, source, ": a width of ", config.width,
               " does not say how many heads there are; give it (ViTFileOptions::heads)");
    heads = config.width == 1280 ? 16 : config.width / 64;  // ViT-H has heads of 80
  }
  config.heads = heads;
  const Tensor head = find(state, name_of("classifier.weight"));
  if (head.defined() && head.dim() == 2) {
    TERN_CHECK(head.size(0) <= 1'000'000, source, ": '", name_of("classifier.weight"), "' is ", head.describe());
    config.labels.clear();
    for (int64_t i = 0; i < head.size(0); ++i) config.labels.push_back("LABEL_" + std::to_string(i));
  }
  config.validate(source);
  return config;
}

}  // namespace tern::models
