#include "tern/models/lstm/lstm.h"

#include <algorithm>
#include <filesystem>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/state_file.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/models/hf_config.h"
#include "tern/models/text/sequence_rows.h"
#include "tern/nn/init.h"

namespace tern::models {
namespace {

nn::EmbeddingOptions word_options(const LstmConfig& config) {
  return {.padding_index = config.padding_id, .weight_init = nn::init::normal(0, config.initializer_range)};
}

/// Tokens without padding.
struct PackedTokens {
  Tensor tokens, row_keys;
  RecurrentLayout layout;
};

/// The lengths of sequences, and the rows that the mask leaves.
PackedTokens without_padding(const data::TokenInput& input) {
  const SequenceLayout& layout = input.layout;
  if (!layout.key_mask.defined()) return {input.tokens, layout.row_keys, RecurrentLayout::packed(layout)};
  std::vector<int64_t> rows, lengths;
  for (const std::vector<int64_t>& own : rows_of_sequences(layout)) {
    rows.insert(rows.end(), own.begin(), own.end());
    lengths.push_back(std::ssize(own));
  }
  const Device device = input.tokens.device();
  const Tensor kept = from_vector(rows, {static_cast<int64_t>(rows.size())}).to(device);
  const auto taken = [&](const Tensor& x) { return x.defined() ? x.index({kept}) : x; };
  return {taken(input.tokens), taken(layout.row_keys), RecurrentLayout::packed(lengths, device)};
}

/// int64 [tokens]: the sequence of each token.
Tensor sequences_of(const RecurrentLayout& layout) {
  std::vector<int64_t> sequences;
  for (size_t s = 0; s < layout.lengths().size(); ++s)
    sequences.insert(sequences.end(), static_cast<size_t>(layout.lengths()[s]), static_cast<int64_t>(s));
  return from_vector(sequences, {layout.rows()}).to(layout.device());
}

}  // namespace

KeyMap lstm_key_map(const LstmConfig& config) {
  KeyMap map = {{"word.weight", {"word.weight"}}};
  for (const std::string part : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"})
    for (const std::string direction : config.bidirectional ? std::vector{"", "_reverse"} : std::vector{""}) {
      const std::string name = "lstm." + part + "_l*" + direction;
      map.push_back({name, {name}});
    }
  map.push_back({"classifier.weight", {"classifier.weight"}});
  map.push_back({"classifier.bias", {"classifier.bias"}});
  return map;
}

LstmClassifier::LstmClassifier(const nn::Scope& s, const LstmConfig& config)
    : SequenceClassifier(s),
      config_((config.validate("LSTM"), config)),
      word_(sub("word"), config.vocab_size, config.embedding, word_options(config)),
      lstm_(sub("lstm"), config.embedding, config.hidden,
            {.layers = config.layers, .bidirectional = config.bidirectional, .dropout = config.dropout}),
      classifier_(sub("classifier"), config.pooled(), config.num_labels(),
                  {.weight_init = nn::init::normal(0, config.initializer_range), .bias_init = nn::init::zeros()}) {}

Tensor LstmClassifier::pool(const nn::RecurrentOutput& states, const RecurrentLayout& layout) const {
  if (config_.pooling == "last") {
    const int64_t last = states.state.hidden.size(0);
    return config_.bidirectional ? cat({states.state.hidden[last - 2], states.state.hidden[last - 1]}, 1)
                                 : states.state.hidden[last - 1];
  }
  if (tern::detail::active_trace()) {  // a graph has sizes and no lengths
    const int64_t steps = layout.batch() > 0 ? layout.lengths()[0] : 1;
    TERN_CHECK(layout.rows() == layout.batch() * steps, "LSTM: it is traced with sequences of several lengths");
    const Tensor outputs = states.output.reshape({layout.batch(), steps, config_.pooled()});
    return config_.pooling == "max" ? max(outputs, {1}) : mean(outputs, {1});
  }
  const auto reduction = config_.pooling == "max" ? ScatterReduction::kMax : ScatterReduction::kMean;
  return index_reduce(zeros({layout.batch(), config_.pooled()}, states.output.options()), 0, sequences_of(layout),
                      states.output, reduction, false);
}

Tensor LstmClassifier::dropped(const Tensor& x, const Tensor& keys) const {
  return dropout(x, {.p = is_training() ? config_.dropout : 0, .generator = &generator(), .row_keys = keys});
}

Tensor LstmClassifier::features(const data::TokenInput& input) const {
  TERN_CHECK(input.layout.max_length <= config_.max_positions, "LSTM: a sequence has ", input.layout.max_length,
             " tokens, the model takes at most ", config_.max_positions);
  const PackedTokens packed = without_padding(input);
  const Tensor words = dropped(word_.forward(packed.tokens), packed.row_keys);
  return pool(lstm_.forward(words, packed.layout, {}, packed.row_keys), packed.layout);
}

Tensor LstmClassifier::forward_head(const Tensor& features, const Tensor& keys) const {
  const ProfileRange range("classification head", RangeKind::kModule);
  return classifier_.forward(dropped(features, keys));
}

Tensor LstmClassifier::forward(const data::TokenInput& input) const {
  return forward_head(features(input), input.sequence_keys());
}

void LstmClassifier::set_recompute(int64_t layers) {
  TERN_CHECK(layers == 0, "LSTM: its layers are not recomputed in backward; leave --recompute out");
}

double LstmClassifier::forward_flops(const std::vector<int64_t>& lengths) const {
  const double hidden = static_cast<double>(config_.hidden), directions = config_.bidirectional ? 2 : 1;
  double of_token = 0;
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    const double in = layer == 0 ? static_cast<double>(config_.embedding) : directions * hidden;
    of_token += directions * 2 * 4 * hidden * (in + hidden);
  }
  double flops = 0;
  for (const int64_t length : lengths)
    flops += static_cast<double>(length) * of_token +
             2 * static_cast<double>(config_.pooled()) * static_cast<double>(config_.num_labels());
  return flops;
}

std::string LstmClassifier::record() const {
  return nlohmann::ordered_json{
      {"dropout", config_.dropout}, {"pooling", config_.pooling}, {"problem_type", problem_type(config_.label_kind)}}
      .dump();
}

PublicCheckpoint<LstmConfig> LstmClassifier::read_checkpoint(const std::string& dir, const BuildOptions&) {
  tern::detail::require_folder(
      dir, "expected a model folder with config.json and model.safetensors" + advice_for_missing(dir));
  const std::string path = (std::filesystem::path(dir) / "config.json").string();
  const LstmConfig config = LstmConfig::from_json(read_model_text(dir, "config.json"), path);
  static const KeyMap one = lstm_key_map({.bidirectional = false}), both = lstm_key_map({.bidirectional = true});
  const StateFile file = load_state_folder(dir);
  return {config,
          {.file = file,
           .tensors = file.tensors,
           .names = config.bidirectional ? &both : &one,
           .head_prefixes = {"classifier."}}};
}

void LstmClassifier::save_pretrained(const std::string& dir) const { save_public(*this, lstm_key_map(config_), dir); }

ModelFamily lstm_family() {
  const auto make = [](const std::string& preset, const BuildOptions& options) -> std::unique_ptr<Model> {
    LstmConfig config = LstmConfig::preset(preset);
    config.labels = options.labels;
    config.label_kind = options.label_kind.value_or(config.label_kind);
    config.max_positions = std::max(config.max_positions, options.max_length);
    if (options.dropout) config.set_dropout(*options.dropout);
    return std::make_unique<LstmClassifier>(options.scope(), config);
  };
  return {.name = "lstm",
          .kind = ModelKind::kTexts,
          .model_types = {"lstm"},
          .presets = LstmConfig::presets(),
          .load = load_model<LstmClassifier>,
          .make = make,
          .small_lr = 2e-3};
}

}  // namespace tern::models
