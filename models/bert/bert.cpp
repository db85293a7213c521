#include "tern/models/bert/bert.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/models/hf_config.h"

namespace tern::models {
namespace {

nn::EmbeddingOptions table_options(const BertConfig& config, int64_t padding_index) {
  nn::EmbeddingOptions options;
  options.padding_index = padding_index;
  options.weight_init = nn::init::normal(0, config.initializer_range);
  return options;
}

nn::LinearOptions head_options(const BertConfig& config) { return normal_linear(config.initializer_range); }

}  // namespace

BertBody::BertBody(const nn::Scope& s, const BertConfig& config)
    : Module(s),
      config_(config),
      word_(sub("word"), config.vocab_size, config.width, table_options(config, config.padding_id)),
      position_(sub("position"), config.position_rows, config.width,
                table_options(config, config.is_roberta() ? config.padding_id : -1)),
      token_type_(sub("token_type"), config.token_types, config.width, table_options(config, -1)),
      embedding_norm_(sub("embedding_norm"), config.width, {.eps = config.norm_eps}),
      encoder_(sub("encoder"), config.encoder()) {}

/// BERT counts a sequence's tokens from 0. RoBERTa counts those that are not padding from padding_id + 1, also where
/// the text itself has padding tokens, which all have the position padding_id.
Tensor BertBody::positions(const data::TokenInput& input) const {
  if (!config_.is_roberta()) return input.positions;
  const Tensor token = (input.tokens != config_.padding_id).to(DType::kInt64);
  const Tensor count = cumsum(token, 0), places = input.positions.to(DType::kInt64);
  const Tensor rows = arange(0, static_cast<double>(token.size(0)), 1, places.options());
  const Tensor before = index_select(count - token, 0, rows - places);  // of the row in which the sequence begins
  return (count - before) * token + config_.padding_id;
}

Tensor BertBody::embed(const data::TokenInput& input) const {
  const ProfileRange range("embeddings", RangeKind::kModule);
  TERN_CHECK(input.layout.max_length <= config_.max_positions(), "BERT: a sequence has ", input.layout.max_length,
             " tokens, the model takes at most ", config_.max_positions());
  const Tensor types = input.token_types.defined() ? token_type_.forward(input.token_types)
                                                   : token_type_.weight().tensor().slice(0, 0, 1);
  const Tensor sum = embedding_norm_.forward(word_.forward(input.tokens) + types, position_.forward(positions(input)));
  return dropout(
      sum, {.p = is_training() ? config_.dropout : 0, .generator = &generator(), .row_keys = input.layout.row_keys});
}

double BertBody::forward_flops(const std::vector<int64_t>& lengths) const {
  return encoder_flops(config_.encoder(), lengths, config_.num_labels());
}

template <class Base>
Tensor BertOf<Base>::dropped(const Tensor& x, const Tensor& keys) const {
  return dropout(
      x, {.p = this->is_training() ? config_.head_dropout() : 0, .generator = &this->generator(), .row_keys = keys});
}

template <class Base>
std::string BertOf<Base>::record() const {
  return nlohmann::ordered_json{{"dropout", config_.dropout},
                                {"attention_dropout", config_.attention_dropout},
                                {"classifier_dropout", config_.head_dropout()},
                                {"problem_type", problem_type(config_.label_kind)}}
      .dump();
}

template <class Base>
void BertOf<Base>::save_pretrained(const std::string& dir) const {
  save_public(*this, bert_key_map(config_), dir);
}

template class BertOf<TextModel>;
template class BertOf<SequenceClassifier>;
template class BertOf<TokenClassifier>;
template class BertOf<MaskedWordModel>;

Bert::Bert(const nn::Scope& s, const BertConfig& config)
    : BertOf(s, config, BertHead::kNone), pooler_(sub("pooler"), config.width, config.width, head_options(config)) {}

Tensor Bert::pooled(const data::TokenInput& input) const { return tanh(pooler_.forward(bert_.first_states(input))); }

BertClassifier::BertClassifier(const nn::Scope& s, const BertConfig& config)
    : BertOf(s, config, BertHead::kClassifier),
      pooler_(sub("pooler"), config.width, config.width, head_options(config)),
      classifier_(sub("classifier"), config.width, config.num_labels(), head_options(config)) {}

Tensor BertClassifier::features(const data::TokenInput& input) const {
  const Tensor first = bert_.first_states(input);
  const ProfileRange range("classification head", RangeKind::kModule);
  return tanh(pooler_.forward(config_.is_roberta() ? dropped(first, input.sequence_keys()) : first));
}

Tensor BertClassifier::forward_head(const Tensor& features, const Tensor& keys) const {
  const ProfileRange range("classification head", RangeKind::kModule);
  return classifier_.forward(dropped(features, keys));
}

BertTagger::BertTagger(const nn::Scope& s, const BertConfig& config)
    : BertOf(s, config, BertHead::kTagger),
      classifier_(sub("classifier"), config.width, config.num_labels(), head_options(config)) {}

Tensor BertTagger::forward(const data::TokenInput& input) const {
  return classifier_.forward(dropped(bert_.hidden_states(input), input.layout.row_keys));
}

BertMaskedWords::BertMaskedWords(const nn::Scope& s, const BertConfig& config)
    : BertOf(s, config, BertHead::kMaskedWords),
      transform_(sub("transform"), config.width, config.width, head_options(config)),
      transform_norm_(sub("transform_norm"), config.width, {.eps = config.norm_eps}),
      bias_(this, "bias", Shape{config.vocab_size}, nn::init::zeros()) {}

Tensor BertMaskedWords::forward(const data::TokenInput& input, const Tensor& rows) const {
  Tensor states = bert_.hidden_states(input);
  if (rows.defined()) states = index_select(states, 0, rows);
  const bool relu = config_.activation == "relu" && !config_.is_roberta();
  const Tensor words = transform_.forward(states, relu ? Activation::kRelu : Activation::kGelu);
  return linear(transform_norm_.forward(words), bert_.word_weight(), bias_);
}

ModelFamily bert_family() {
  const auto make = [](const std::string& preset, const BuildOptions& options) -> std::unique_ptr<Model> {
    BertConfig config = BertConfig::preset(preset);
    config.labels = options.labels;
    config.label_kind = options.label_kind.value_or(config.label_kind);
    config.position_rows = std::max(config.position_rows, options.max_length);
    if (options.dropout) config.set_dropout(*options.dropout);
    return std::make_unique<BertClassifier>(options.scope(), config);
  };
  // A classifier for data with labels, otherwise what the folder holds.
  const auto load = [](const std::string& dir, const BuildOptions& options) -> std::unique_ptr<Model> {
    if (options.encoder_only) return load_pretrained<Bert>(dir, options);
    if (options.allow_new_head || !options.labels.empty()) return load_pretrained<BertClassifier>(dir, options);
    switch (BertConfig::from_json(read_model_text(dir, "config.json"), dir + "/config.json").head) {
      case BertHead::kClassifier:
        return load_pretrained<BertClassifier>(dir, options);
      case BertHead::kTagger:
        return load_pretrained<BertTagger>(dir, options);
      case BertHead::kMaskedWords:
        return load_pretrained<BertMaskedWords>(dir, options);
      case BertHead::kNone:
        break;
    }
    return load_pretrained<Bert>(dir, options);
  };
  return {.name = "bert",
          .kind = ModelKind::kTexts,
          .model_types = {"bert", "roberta", "xlm-roberta", "camembert"},
          .presets = BertConfig::presets(),
          .load = load,
          .make = make,
          .notes = {{"--freeze", "bert.encoder.* of a bert"}}};
}

}  // namespace tern::models
