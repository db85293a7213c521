#include "tern/models/text/sentence_embedder.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/file_kind.h"
#include "tern/core/io/input_file.h"
#include "tern/core/io/json.h"
#include "tern/core/io/pickle.h"
#include "tern/core/io/state_file.h"
#include "tern/core/ops/ops.h"
#include "tern/data/tokenizers/read_tokenizer.h"
#include "tern/models/onnx/classifiers/files.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A member of an object; null if it is absent.
json member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? json() : *found;
}

bool flag(const json& object, const char* key, bool other, const std::string& source) {
  const json value = member(object, key);
  TERN_CHECK(value.is_null() || value.is_boolean(), source, ": \"", key, "\" must be true or false, got ",
             shortened(value));
  return value.is_null() ? other : value.get<bool>();
}

struct ModuleEntry {
  std::string type;  // the last part of the class's name
  fs::path path;
};

/// The modules that a folder lists, in their order; none without modules.json.
std::vector<ModuleEntry> read_modules(const fs::path& dir) {
  const std::string source = (dir / "modules.json").string();
  std::vector<ModuleEntry> modules;
  if (!tern::detail::name_exists(source)) return modules;
  const json list = parse_json(read_whole_file(source), source);
  TERN_CHECK(list.is_array() && !list.empty(), source, ": expected a list of modules, got ", shortened(list));
  for (const json& entry : list) {
    const json type = entry.is_object() ? member(entry, "type") : json();
    const json path = entry.is_object() ? member(entry, "path") : json();
    TERN_CHECK(type.is_string() && path.is_string(), source, ": a module must have a \"type\" and a \"path\", got ",
               shortened(entry));
    const fs::path relative = path.get<std::string>();
    const bool inside = relative.is_relative() && std::none_of(relative.begin(), relative.end(),
                                                               [](const fs::path& part) { return part == ".."; });
    TERN_CHECK(inside, source, ": the path ", shortened(path), " leads out of the folder");
    const std::string name = type.get<std::string>();
    modules.push_back({name.substr(name.rfind('.') + 1), dir / relative});
  }
  return modules;
}

/// sentence_bert_config.json, under the names that it has had.
json transformer_config(const fs::path& dir, std::string& source) {
  for (const char* kind : {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
    source = (dir / ("sentence_" + std::string(kind) + "_config.json")).string();
    if (tern::detail::name_exists(source)) return read_json_object(source);
  }
  return json::object();
}

/// Throws Error unless the transformer gives its last hidden states.
void check_states_are_wanted(const json& config, const std::string& source) {
  for (const auto& [path, wanted] : {std::pair{"/transformer_task", "feature-extraction"},
                                     std::pair{"/modality_config/text/method_output_name", "last_hidden_state"},
                                     std::pair{"/module_output_name", "token_embeddings"}}) {
    const json::json_pointer at(path);
    TERN_CHECK(!config.contains(at) || config[at].is_null() || config[at] == wanted, source, ": ", path, " is ",
               shortened(config[at]), "; Tern has ", wanted);
  }
}

/// The modes of a Pooling module: "pooling_mode", a name or a list of them, or the switches of older files in their
/// order.
std::vector<PoolMode> read_pool_modes(const fs::path& dir, int64_t& width) {
  const std::string source = (dir / "config.json").string();
  const json config = read_json_object(source);
  for (const char* key : {"embedding_dimension", "word_embedding_dimension"})
    if (const auto given = integer_in(member(config, key))) width = *given;
  TERN_CHECK(flag(config, "include_prompt", true, source), source,
             ": \"include_prompt\" is false: prompts that are left out of the pooling are not implemented");
  std::vector<PoolMode> modes;
  const json given = member(config, "pooling_mode");
  const json names = given.is_array() ? given : given.is_null() ? json::array() : json::array({given});
  for (const json& name : names) {
    TERN_CHECK(name.is_string(), source, ": \"pooling_mode\" must be a name or a list of names, got ",
               shortened(given));
    modes.push_back(pool_mode(name.get<std::string>(), source));
  }
  if (!given.is_null()) return modes;
  constexpr std::pair<const char*, PoolMode> kSwitches[] = {
      {"pooling_mode_cls_token", PoolMode::kCls},
      {"pooling_mode_max_tokens", PoolMode::kMax},
      {"pooling_mode_mean_tokens", PoolMode::kMean},
      {"pooling_mode_mean_sqrt_len_tokens", PoolMode::kMeanSqrtLength},
      {"pooling_mode_weightedmean_tokens", PoolMode::kWeightedMean},
      {"pooling_mode_lasttoken", PoolMode::kLastToken}};
  for (const auto& [key, mode] : kSwitches)
    if (flag(config, key, false, source)) modes.push_back(mode);
  if (modes.empty()) modes.push_back(PoolMode::kMean);
  return modes;
}

/// A Dense module: activation(x weight^T + bias).
std::function<Tensor(const Tensor&)> read_dense(const fs::path& dir, Device device, int64_t& width) {
  const std::string source = (dir / "config.json").string();
  const json config = read_json_object(source);
  const json name = member(config, "activation_function");
  const std::string path = name.is_null()     ? "torch.nn.modules.activation.Tanh"
                           : name.is_string() ? name.get<std::string>()
                                              : "";
  const std::string activation = path.substr(path.rfind('.') + 1);
  const bool known = activation == "Tanh" || activation == "Identity" || activation == "ReLU" || activation == "GELU" ||
                     activation == "Sigmoid";
  TERN_CHECK(path.starts_with("torch.nn") && known, source, ": the activation_function ", shortened(name),
             " is not implemented; Tern has Tanh, Identity, ReLU, GELU and Sigmoid of torch.nn");
  TERN_CHECK(!flag(config, "use_residual", false, source), source,
             ": \"use_residual\" is true: a residual of a Dense module is not implemented");
  for (const char* key : {"module_input_name", "module_output_name"}) {
    const json given = member(config, key);
    TERN_CHECK(given.is_null() || given == "sentence_embedding", source, ": \"", key, "\" is ", shortened(given),
               "; Tern has Dense modules of sentence_embedding only");
  }
  const StateFile file = load_state_folder(dir.string());
  const bool has_bias = flag(config, "bias", true, source);
  const Tensor weight = find(file.tensors, "linear.weight"), bias = find(file.tensors, "linear.bias");
  TERN_CHECK(weight.defined() && weight.dim() == 2 && weight.size(1) == width && bias.defined() == has_bias &&
                 (!has_bias || bias.shape() == Shape{weight.size(0)}),
             file.path, ": expected linear.weight [outputs, ", width, "] and ", has_bias ? "" : "no ",
             "linear.bias [outputs], got ", weight.defined() ? weight.shape().str() : "no weight", " and ",
             bias.defined() ? bias.shape().str() : "no bias");
  width = weight.size(0);
  const auto placed = [&](const Tensor& x) { return x.defined() ? x.to(DType::kFloat32).to(device) : x; };
  return [=, weight = placed(weight), bias = placed(bias)](const Tensor& x) {
    const Tensor y = linear(x, weight, bias);
    return activation == "Tanh"      ? tanh(y)
           : activation == "ReLU"    ? relu(y)
           : activation == "GELU"    ? gelu(y)
           : activation == "Sigmoid" ? sigmoid(y)
                                     : y;
  };
}

}  // namespace

bool SentenceEmbedder::has_modules(const std::string& path) {
  return tern::detail::name_exists((fs::path(folder_of_model(path)) / "modules.json").string());
}

SentenceEmbedder SentenceEmbedder::load(const std::string& path, std::optional<PoolMode> mode,
                                        const BuildOptions& options, const std::string& tokenizer) {
  const std::string dir = folder_of_model(path);
  const std::vector<ModuleEntry> modules = read_modules(dir);
  const std::string list = (fs::path(dir) / "modules.json").string();
  TERN_CHECK(modules.empty() || modules[0].type == "Transformer", list, ": the first module is a ",
             modules.empty() ? "" : tern::detail::printable(modules[0].type), "; Tern has Transformer");
  const fs::path body = modules.empty() ? fs::path(dir) : modules[0].path;
  SentenceEmbedder embedder;
  BuildOptions encoder = options;
  encoder.encoder_only = true;
  embedder.model_ = load_pretrained<TextModel>(dir == path ? body.string() : path, encoder);
  std::string source;
  const json config = transformer_config(body, source);
  check_states_are_wanted(config, source);
  embedder.tokenizer_ = data::read_tokenizer(tokenizer.empty() ? body.string() : tokenizer,
                                             {.lowercase = flag(config, "do_lower_case", false, source)});
  check_vocabulary(embedder.model(), *embedder.tokenizer_, dir, options.log);
  embedder.max_length_ = token_limit(embedder.model(), *embedder.tokenizer_);
  if (const json length = member(config, "max_seq_length"); !length.is_null()) {
    TERN_CHECK(integer_in(length).value_or(0) >= 1, source, ": \"max_seq_length\" must be a positive integer, got ",
               shortened(length));
    embedder.max_length_ = std::min(embedder.model().max_positions(), *integer_in(length));
  }
  int64_t width = -1;
  for (size_t i = 1; i < modules.size(); ++i) {
    const auto& [type, path] = modules[i];
    TERN_CHECK((type == "Pooling") == (i == 1), list, ": module ", i, " is a ", tern::detail::printable(type),
               "; Tern has one Pooling behind the Transformer, and Dense and Normalize behind that");
    if (type == "Pooling") {
      embedder.modes_ = read_pool_modes(path, width);
      width *= static_cast<int64_t>(mode ? 1 : embedder.modes_.size());
    } else if (type == "Dense") {
      embedder.steps_.push_back(read_dense(path, options.device, width));
    } else if (type == "Normalize") {
      embedder.steps_.push_back([](const Tensor& x) { return normalize(x, 2, -1); });
    } else {
      fail(list, ": the module ", tern::detail::printable(type),
           " is not implemented; Tern has Transformer, Pooling, Dense and Normalize");
    }
  }
  if (mode || embedder.modes_.empty()) embedder.modes_ = {mode.value_or(PoolMode::kMean)};
  embedder.read_facts(dir);
  embedder.model_->eval();
  return embedder;
}

void SentenceEmbedder::read_facts(const std::string& dir) {
  const std::string source = (fs::path(dir) / "config_sentence_transformers.json").string();
  const json facts = tern::detail::name_exists(source) ? read_json_object(source) : json::object();
  const json similarity = member(facts, "similarity_fn_name");
  for (const char* known : {"cosine", "dot", "euclidean", "manhattan"})
    if (similarity == known) similarity_ = known;
  TERN_CHECK(similarity.is_null() || similarity == similarity_, source, ": the similarity_fn_name ",
             shortened(similarity), " is unknown; Tern has cosine, dot, euclidean and manhattan");
  const json name = member(facts, "default_prompt_name"), prompts = member(facts, "prompts");
  if (name.is_null()) return;
  const json prompt =
      name.is_string() && prompts.is_object() ? member(prompts, name.get_ref<const std::string&>().c_str()) : json();
  TERN_CHECK(prompt.is_string(), source, ": default_prompt_name is ", shortened(name),
             ", but \"prompts\" has no such text");
  prompt_ = prompt.get<std::string>();
}

Tensor SentenceEmbedder::embed(const std::vector<std::string>& texts, int64_t max_length, int64_t batch_tokens) const {
  NoGrad off;
  std::vector<Tensor> found(texts.size());
  const int64_t limit = max_length > 0 ? std::min(max_length, model().max_positions()) : max_length_;
  std::vector<std::string> prompted;
  if (!prompt_.empty())
    for (const std::string& text : texts) prompted.push_back(prompt_ + text);
  for_each_batch(model(), *tokenizer_, prompt_.empty() ? texts : prompted, {}, limit, batch_tokens,
                 [&](const data::TokenBatch& batch) {
                   const Tensor states = model().hidden_states(batch);
                   std::vector<Tensor> pooled;
                   for (const PoolMode mode : modes_) pooled.push_back(pool(states, batch, mode));
                   Tensor vectors = (pooled.size() == 1 ? pooled[0] : cat(pooled, 1)).to(DType::kFloat32);
                   for (const Step& step : steps_) vectors = step(vectors);
                   vectors = vectors.to(Device());
                   for (size_t i = 0; i < batch.rows.size(); ++i)
                     found[static_cast<size_t>(batch.rows[i])] = vectors[static_cast<int64_t>(i)];
                 });
  return texts.empty() ? Tensor() : stack(found, 0);
}

Tensor SentenceEmbedder::similarity(const Tensor& a, const Tensor& b) const {
  NoGrad off;
  if (similarity_ == "dot") return sum(a * b, {1});
  if (similarity_ == "euclidean") return -sqrt(sum(square(a - b), {1}));
  if (similarity_ == "manhattan") return -sum(abs(a - b), {1});
  return sum(normalize(a) * normalize(b), {1});
}

}  // namespace tern::models
