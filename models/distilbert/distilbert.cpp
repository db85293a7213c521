#include "tern/models/distilbert/distilbert.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/state_file.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/models/hf_config.h"

namespace tern::models {
namespace {

nn::EmbeddingOptions embedding_options(const DistilBertConfig& config, int64_t padding_index) {
  nn::EmbeddingOptions options;
  options.padding_index = padding_index;
  options.weight_init = nn::init::normal(0, config.initializer_range);
  return options;
}

/// Vaswani et al.'s sines in Hugging Face's arrangement: even columns sine, odd columns cosine of the same rate.
Initializer sinusoidal_positions() {
  return [](Tensor& weight, Generator&) {
    const int64_t width = weight.size(1);
    std::vector<double> values;
    for (int64_t position = 0; position < weight.size(0); ++position)
      for (int64_t j = 0; j < width; ++j) {
        const double rate = std::pow(10000.0, 2.0 * static_cast<double>(j / 2) / static_cast<double>(width));
        const double angle = static_cast<double>(position) / rate;
        values.push_back(j % 2 == 0 ? std::sin(angle) : std::cos(angle));
      }
    weight.copy_(from_vector(values, weight.shape()));
  };
}

nn::EmbeddingOptions position_options(const DistilBertConfig& config) {
  nn::EmbeddingOptions options = embedding_options(config, -1);
  if (config.sinusoidal_positions) options.weight_init = sinusoidal_positions();
  return options;
}

bool has_names(const StateView& state) {
  const std::string name = "embeddings.word_embeddings.weight";
  return find(state, name).defined() || find(state, "distilbert." + name).defined();
}

/// Names as current files have them.
StateView modernised(StateView state) {
  add_missing_prefix(state, "distilbert.", {"pre_classifier.", "classifier.", "vocab_", "qa_outputs."});
  modernise_norms(state);
  return state;
}

}  // namespace

const KeyMap& distilbert_key_map() {
  static const KeyMap map = with_weight_and_bias(
      {{"word.weight", {"distilbert.embeddings.word_embeddings.weight"}},
       {"position.weight", {"distilbert.embeddings.position_embeddings.weight"}},
       {"embedding_norm.", {"distilbert.embeddings.LayerNorm."}},
       {"encoder.layer.*.attention.qkv.",
        {"distilbert.transformer.layer.*.attention.q_lin.", "distilbert.transformer.layer.*.attention.k_lin.",
         "distilbert.transformer.layer.*.attention.v_lin."}},
       {"encoder.layer.*.attention.out.", {"distilbert.transformer.layer.*.attention.out_lin."}},
       {"encoder.layer.*.attention_norm.", {"distilbert.transformer.layer.*.sa_layer_norm."}},
       {"encoder.layer.*.feed_forward.lin1.", {"distilbert.transformer.layer.*.ffn.lin1."}},
       {"encoder.layer.*.feed_forward.lin2.", {"distilbert.transformer.layer.*.ffn.lin2."}},
       {"encoder.layer.*.output_norm.", {"distilbert.transformer.layer.*.output_layer_norm."}},
       {"pre_classifier.", {"pre_classifier."}},
       {"classifier.", {"classifier."}}});
  return map;
}

DistilBert::DistilBert(const nn::Scope& s, const DistilBertConfig& config)
    : SequenceClassifier(s),
      config_((config.validate("DistilBERT"), config)),
      word_(sub("word"), config.vocab_size, config.width, embedding_options(config, config.padding_id)),
      position_(sub("position"), config.max_positions, config.width, position_options(config)),
      embedding_norm_(sub("embedding_norm"), config.width, {.eps = 1e-12}),
      encoder_(sub("encoder"), config.encoder()),
      pre_classifier_(sub("pre_classifier"), config.width, config.width, normal_linear(config.initializer_range)),
      classifier_(sub("classifier"), config.width, config.num_labels(), normal_linear(config.initializer_range)) {}

Tensor DistilBert::embed(const data::TokenInput& input) const {
  const ProfileRange range("embeddings", RangeKind::kModule);
  TERN_CHECK(input.layout.max_length <= config_.max_positions, "DistilBERT: a sequence has ", input.layout.max_length,
             " tokens, the model takes at most ", config_.max_positions);
  const Tensor sum = embedding_norm_.forward(word_.forward(input.tokens), position_.forward(input.positions));
  return dropout(
      sum, {.p = is_training() ? config_.dropout : 0, .generator = &generator(), .row_keys = input.layout.row_keys});
}

Tensor DistilBert::hidden_states(const data::TokenInput& input) const { return encoder_.forward(embed(input), input); }

Tensor DistilBert::forward(const data::TokenInput& input) const {
  return forward_head(features(input), input.sequence_keys());
}

Tensor DistilBert::features(const data::TokenInput& input) const {
  return pre_classify(encoder_.forward_first(embed(input), input));
}

Tensor DistilBert::pre_classify(const Tensor& first) const {
  const ProfileRange range("classification head", RangeKind::kModule);
  return pre_classifier_.forward(first, Activation::kRelu);
}

Tensor DistilBert::forward_head(const Tensor& features, const Tensor& keys) const {
  const ProfileRange range("classification head", RangeKind::kModule);
  const DropoutOptions drop{
      .p = is_training() ? config_.classifier_dropout : 0, .generator = &generator(), .row_keys = keys};
  return classifier_.forward(dropout(features, drop));
}

double DistilBert::forward_flops(const std::vector<int64_t>& lengths) const {
  return encoder_flops(config_.encoder(), lengths, config_.num_labels());
}

std::string DistilBert::record() const {
  nlohmann::ordered_json record = {{"dropout", config_.dropout},
                                   {"attention_dropout", config_.attention_dropout},
                                   {"classifier_dropout", config_.classifier_dropout}};
  // Runs that were started before there were others have no entry.
  if (config_.label_kind != data::LabelKind::kOne) record["problem_type"] = problem_type(config_.label_kind);
  return record.dump();
}

PublicCheckpoint<DistilBertConfig> DistilBert::read_checkpoint(const std::string& dir, const BuildOptions& options) {
  tern::detail::require_folder(
      dir,
      "expected a model folder with config.json and model.safetensors or pytorch_model.bin" + advice_for_missing(dir));
  const std::string path = (std::filesystem::path(dir) / "config.json").string();
  DistilBertConfig config = DistilBertConfig::from_json(read_model_text(dir, "config.json"), path, options.log);
  const StateFile file = load_state_folder(dir);
  const TensorSet given = model_tensors(file, has_names, options.log);
  return {config,
          {.file = file,
           .tensors = modernised(given.tensors),
           .names = &distilbert_key_map(),
           // Other tasks' heads, and the numbers of the positions, which files of before 2023 hold.
           .ignored_prefixes = {"vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "qa_outputs.",
                                "distilbert.embeddings.position_ids"},
           .head_prefixes = {"pre_classifier.", "classifier."},
           .model = described_model("the model", given)}};
}

void DistilBert::save_pretrained(const std::string& dir) const { save_public(*this, distilbert_key_map(), dir); }

ModelFamily distilbert_family() {
  const auto make = [](const std::string& preset, const BuildOptions& options) -> std::unique_ptr<Model> {
    DistilBertConfig config = DistilBertConfig::preset(preset);
    config.labels = options.labels;
    config.label_kind = options.label_kind.value_or(config.label_kind);
    config.max_positions = std::max(config.max_positions, options.max_length);
    if (options.dropout) config.set_dropout(*options.dropout);
    return std::make_unique<DistilBert>(options.scope(), config);
  };
  return {.name = "distilbert",
          .kind = ModelKind::kTexts,
          .model_types = {"distilbert"},
          .presets = DistilBertConfig::presets(),
          .load = load_model<DistilBert>,
          .make = make,
          .notes = {{"--freeze", "encoder.* of a distilbert"}}};
}

}  // namespace tern::models
