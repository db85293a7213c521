// The names of Hugging Face's checkpoints of BERT and RoBERTa.

#include <filesystem>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/state_file.h"
#include "tern/models/bert/bert.h"
#include "tern/models/hf_config.h"

namespace tern::models {
namespace {

/// The encoder's names in files with a head.
std::string bert_prefix(const BertConfig& config) { return config.is_roberta() ? "roberta." : "bert."; }

KeyMap head_names(const BertConfig& config, const std::string& body) {
  const bool roberta = config.is_roberta();
  switch (config.head) {
    case BertHead::kClassifier:
      if (roberta) return {{"pooler.", {"classifier.dense."}}, {"classifier.", {"classifier.out_proj."}}};
      return {{"pooler.", {body + "pooler.dense."}}, {"classifier.", {"classifier."}}};
    case BertHead::kTagger:
      return {{"classifier.", {"classifier."}}};
    case BertHead::kMaskedWords:
      if (roberta)
        return {{"transform.", {"lm_head.dense."}},
                {"transform_norm.", {"lm_head.layer_norm."}},
                {"bias", {"lm_head.bias"}}};
      return {{"transform.", {"cls.predictions.transform.dense."}},
              {"transform_norm.", {"cls.predictions.transform.LayerNorm."}},
              {"bias", {"cls.predictions.bias"}}};
    case BertHead::kNone:
      break;
  }
  return {{"pooler.", {body + "pooler.dense."}}};
}

/// `body`: what the encoder's names begin with.
KeyMap bert_names(const BertConfig& config, const std::string& body) {
  const std::string layer = body + "encoder.layer.*.";
  KeyMap names = {{"bert.word.weight", {body + "embeddings.word_embeddings.weight"}},
                  {"bert.position.weight", {body + "embeddings.position_embeddings.weight"}},
                  {"bert.token_type.weight", {body + "embeddings.token_type_embeddings.weight"}},
                  {"bert.embedding_norm.", {body + "embeddings.LayerNorm."}},
                  {"bert.encoder.layer.*.attention.qkv.",
                   {layer + "attention.self.query.", layer + "attention.self.key.", layer + "attention.self.value."}},
                  {"bert.encoder.layer.*.attention.out.", {layer + "attention.output.dense."}},
                  {"bert.encoder.layer.*.attention_norm.", {layer + "attention.output.LayerNorm."}},
                  {"bert.encoder.layer.*.feed_forward.lin1.", {layer + "intermediate.dense."}},
                  {"bert.encoder.layer.*.feed_forward.lin2.", {layer + "output.dense."}},
                  {"bert.encoder.layer.*.output_norm.", {layer + "output.LayerNorm."}}};
  for (const KeyRule& rule : head_names(config, body)) names.push_back(rule);
  return with_weight_and_bias(names);
}

/// The map for a type and a head. whole: the encoder's names have their prefix without a head too.
const KeyMap& shared_names(const BertConfig& config, bool whole) {
  static const auto maps = [] {
    std::vector<KeyMap> all;
    for (const char* type : {"bert", "roberta"})
      for (const BertHead head : {BertHead::kNone, BertHead::kClassifier, BertHead::kTagger, BertHead::kMaskedWords}) {
        BertConfig config;
        config.type = type;
        config.head = head;
        all.push_back(bert_names(config, bert_prefix(config)));
      }
    BertConfig bare;
    bare.head = BertHead::kNone;
    all.push_back(bert_names(bare, ""));
    return all;
  }();
  if (!whole && config.head == BertHead::kNone) return maps.back();
  return maps[(config.is_roberta() ? 4 : 0) + static_cast<size_t>(config.head)];
}

bool has_bert_names(const StateView& state) {
  const std::string name = "embeddings.word_embeddings.weight";
  return find(state, name).defined() || find(state, "bert." + name).defined() ||
         find(state, "roberta." + name).defined();
}

/// Names as current files with a head have them.
StateView modern_bert_names(StateView state, const BertConfig& config) {
  add_missing_prefix(state, bert_prefix(config), {"cls.", "classifier.", "lm_head.", "qa_outputs."});
  modernise_norms(state);
  // The bias of masked words has two names for one tensor; a file may have either.
  for (const auto& [other, name] : {std::pair{"cls.predictions.decoder.bias", "cls.predictions.bias"},
                                    std::pair{"lm_head.decoder.bias", "lm_head.bias"}})
    if (!find(state, name).defined()) replace_in_names(state, {{other, name}});
  return state;
}

/// Public names of what a model with this head does not read: other heads, the last layer of masked words, which is the
/// word embedding, and the numbers of positions and types, which old files hold.
std::vector<std::string> ignored_bert_names(const BertConfig& config) {
  const std::string body = bert_prefix(config);
  std::vector<std::string> names = {
      "qa_outputs.",      "cls.seq_relationship.",          "cls.predictions.decoder.",
      "lm_head.decoder.", body + "embeddings.position_ids", body + "embeddings.token_type_ids"};
  const bool pools = config.head == BertHead::kNone || (config.head == BertHead::kClassifier && !config.is_roberta());
  if (!pools) names.push_back(body + "pooler.");
  if (config.head != BertHead::kMaskedWords) names.insert(names.end(), {"cls.", "lm_head."});
  if (config.head == BertHead::kNone || config.head == BertHead::kMaskedWords) names.push_back("classifier.");
  return names;
}

}  // namespace

const KeyMap& bert_key_map(const BertConfig& config) { return shared_names(config, false); }

PublicCheckpoint<BertConfig> read_bert(const std::string& dir, BertHead head, const BuildOptions& options) {
  tern::detail::require_folder(
      dir,
      "expected a model folder with config.json and model.safetensors or pytorch_model.bin" + advice_for_missing(dir));
  const std::string path = (std::filesystem::path(dir) / "config.json").string();
  BertConfig config = BertConfig::from_json(read_model_text(dir, "config.json"), path, options.log);
  config.head = head;
  const StateFile file = load_state_folder(dir);
  const TensorSet given = model_tensors(file, has_bert_names, options.log);
  return {config,
          {.file = file,
           .tensors = modern_bert_names(given.tensors, config),
           .names = &shared_names(config, true),
           .ignored_prefixes = ignored_bert_names(config),
           .head_prefixes = {"pooler.", "classifier.", "transform", "bias"},
           .model = described_model("the model", given)}};
}

}  // namespace tern::models
