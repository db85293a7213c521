#include "tern/models/onnx/classifiers/onnx_models.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tern/core/io/file_kind.h"
#include "tern/models/hf_config.h"
#include "tern/models/onnx/classifiers/network.h"
#include "tern/models/onnx/model_file.h"
#include "tern/models/timm.h"

namespace tern::models {
namespace {

/// What a file is made into.
struct Opened {
  OnnxNetwork network;
  OnnxConfig config;
};

class HasNetwork {
 public:
  virtual ~HasNetwork() = default;
  virtual const OnnxNetwork& network() const = 0;
  virtual const OnnxConfig& configuration() const = 0;
};

/// The parts of Model that are the same for texts and images. Base: one of the classes of model.h.
template <class Base>
class OnnxModel : public Base, public HasNetwork {
 public:
  OnnxModel(const nn::Scope& scope, Opened opened)
      : Base(scope), network_(std::move(opened.network)), config_(std::move(opened.config)) {
    network_.join(*this, [this](const std::string& name) { return this->sub(name); });
  }

  const std::vector<std::string>& labels() const override { return config_.labels; }
  data::LabelKind label_kind() const override { return config_.label_kind; }
  std::string config_json() const override { return onnx_config_json(config_); }
  std::string record() const override {
    return nlohmann::ordered_json{{"nodes", network_.state().definition.graph.nodes.size()},
                                  {"problem_type", problem_type(config_.label_kind)}}
        .dump();
  }
  void save_pretrained(const std::string& dir) const override { network_.save(dir, config_); }
  void set_recompute(int64_t layers) override {
    TERN_CHECK(layers == 0, "onnx: a file has nodes and does not say where a layer ends; leave --recompute out");
  }

  const OnnxNetwork& network() const override { return network_; }
  const OnnxConfig& configuration() const override { return config_; }
  OnnxNetwork& network() { return network_; }
  OnnxConfig& config() { return config_; }

 protected:
  OnnxNetwork network_;
  OnnxConfig config_;
};

template <class Base>
class OnnxTextModel : public OnnxModel<Base> {
 public:
  using OnnxModel<Base>::OnnxModel;

  /// The largest number where the file does not say it.
  int64_t vocab_size() const override {
    return this->config_.vocab_size > 0 ? this->config_.vocab_size : std::numeric_limits<int64_t>::max();
  }
  bool takes_a_head() const override { return false; }  // nodes are not added to a file
  int64_t token_types() const override {
    return this->network_.roles().token_types >= 0 ? std::max<int64_t>(1, this->config_.token_types) : 1;
  }
  int64_t max_positions() const override {
    constexpr int64_t kUnknown = 1 << 24;
    return this->config_.max_positions > 0 ? this->config_.max_positions : kUnknown;
  }
  /// By calls with three lengths: the operations of attention grow with the square of the length, others with it.
  double forward_flops(const std::vector<int64_t>& lengths) const override {
    const std::scoped_lock lock(mutex_);
    const int64_t step = std::clamp<int64_t>(max_positions() / 3, 1, 8);
    if (flops_.empty())
      for (const int64_t i : {1, 2, 3}) flops_.push_back(this->network_.count_flops(*this, i * step));
    const double f0 = flops_[0], first = flops_[1] - f0, second = flops_[2] - 2 * flops_[1] + f0;
    double total = 0;
    for (const int64_t length : lengths) {
      const double t = static_cast<double>(length) / static_cast<double>(step) - 1;
      total += std::max(0.0, f0 + first * t + second * t * (t - 1) / 2);
    }
    return total;
  }

 protected:
  Tensor output(const data::TokenInput& input) const { return this->network_.of_texts(*this, input, this->config_); }
  Tensor output_rows(const data::TokenInput& input) const {
    return this->network_.of_tokens(*this, input, this->config_);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<double> flops_;
};

class OnnxTextClassifier final : public OnnxTextModel<SequenceClassifier> {
 public:
  using OnnxTextModel::OnnxTextModel;
  Tensor forward(const data::TokenInput& input) const override { return output(input); }
  bool reads_lengths() const override { return network_.reads_lengths(); }
};

class OnnxTokenClassifier final : public OnnxTextModel<TokenClassifier> {
 public:
  using OnnxTextModel::OnnxTextModel;
  Tensor forward(const data::TokenInput& input) const override { return output_rows(input); }
  bool reads_lengths() const override { return true; }
};

class OnnxMaskedWordModel final : public OnnxTextModel<MaskedWordModel> {
 public:
  using OnnxTextModel::OnnxTextModel;
  Tensor forward(const data::TokenInput& input, const Tensor& rows) const override {
    const Tensor all = output_rows(input);
    return rows.defined() ? all.index({rows}) : all;
  }
  bool reads_lengths() const override { return true; }
};

class OnnxTextEncoder final : public OnnxTextModel<TextModel> {
 public:
  using OnnxTextModel::OnnxTextModel;
  Tensor hidden_states(const data::TokenInput& input) const override { return output_rows(input); }
  bool reads_lengths() const override { return true; }
};

class OnnxImageClassifier final : public OnnxModel<ImageClassifier> {
 public:
  using OnnxModel::OnnxModel;
  Tensor forward(const Tensor& images, const Tensor& /*image_keys*/) const override {
    return network_.of_images(*this, images);
  }
  /// Without a preprocessor_config.json the mean and deviation of ImageNet's pixels, which most networks expect.
  Input input() const override {
    constexpr int64_t kUsualSize = 224;
    return {.size = network_.roles().size > 0 ? network_.roles().size : kUsualSize,
            .normalization = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}},
            .preprocessing = config_.preprocessing};
  }
  double forward_flops() const override {
    const std::scoped_lock lock(mutex_);
    if (flops_ < 0) flops_ = network_.count_flops(*this, input().size);
    return flops_;
  }

 private:
  mutable std::mutex mutex_;
  mutable double flops_ = -1;
};

/// The options that an ONNX file leaves no choice of.
void check_options(const BuildOptions& options, const OnnxRoles& roles, const std::string& path) {
  TERN_CHECK(!options.dropout, path, ": the file says which nodes drop and with what probability; leave --dropout out");
  TERN_CHECK(options.dtype == DType::kFloat32, path, ": weights keep the file's type, so that they cannot be ",
             name_of(options.dtype), "; --dtype bf16 or fp16 computes products in 16 bits");
  TERN_CHECK(options.image_size == 0 || roles.size == 0 || options.image_size == roles.size, path,
             ": the file's images have ", roles.size, " pixels a side, not the ", options.image_size,
             " of --image-size");
}

/// Gives the model the labels that the options want, with a new head if it needs one.
template <class M>
void choose_labels(M& model, const std::string& path, const BuildOptions& options) {
  OnnxConfig& config = model.config();
  const HeadChoice head = choose_head(config.labels, config.label_kind, options);
  config.label_kind = options.label_kind.value_or(config.label_kind);
  const auto before = std::ssize(config.labels), now = std::ssize(head.labels);
  config.labels = head.labels;
  const bool renews = !head.keeps && options.allow_new_head;
  if (renews) {
    try {
      model.network().replace_head(now, model.generator());
    } catch (const Error& error) {
      fail(path, ": ", head.reason, ", so that it needs another head: ", error.what());
    }
  }
  TERN_CHECK(options.allow_new_head || before == now, path, ": the network gives ", before, " numbers for ", now,
             " labels");
  model.network().expect_outputs(now);
  const std::string activation = model.network().activation();
  const bool of_several = activation == "Sigmoid",
             fits = config.label_kind == (of_several ? data::LabelKind::kSeveral : data::LabelKind::kOne);
  const bool drops = !activation.empty() && !fits;
  if (drops) model.network().drop_activation();
  if (!options.log) return;
  if (drops && options.allow_new_head)
    options.log(path + ": the " + activation + " at its end is not for " +
                (config.label_kind == data::LabelKind::kNumber    ? "numbers"
                 : config.label_kind == data::LabelKind::kSeveral ? "several labels"
                                                                  : "one label") +
                " and is left out of the files that are written");
  if (!head.keeps)
    options.log(path + (renews ? ": a new classification head for " + std::to_string(now) +
                                     (now == 1 ? " label" : " labels") + " is initialized: " + head.reason
                               : ": the labels get other names, the head is kept"));
  else if (!head.reason.empty() && options.allow_new_head)
    options.log(path + ": the head is kept: " + head.reason);
}

/// Reads the labels, as many as the network gives numbers, and fits them to the options.
template <class M>
std::unique_ptr<Model> finish(std::unique_ptr<M> model, const OnnxFiles& files, bool several, const std::string& path,
                              const BuildOptions& options) {
  constexpr bool kHasLabels = !std::is_same_v<M, OnnxTextEncoder> && !std::is_same_v<M, OnnxMaskedWordModel>;
  const OnnxNetwork& network = model->network();
  OnnxConfig& config = model->config();
  model->eval();
  config = read_onnx_config(files, network.state().definition.metadata,
                            {.outputs = kHasLabels ? network.outputs(*model) : 0,
                             .several_labels = several,
                             .is_classifier = !network.roles().of_tokens});
  config.architecture = model->type_name();
  if constexpr (std::is_same_v<M, OnnxImageClassifier>) {
    require_one_label(path, options);
    const auto file = [&](const char* name) { return (std::filesystem::path(files.folder) / name).string(); };
    const bool known = !config.preprocessing.empty() || tern::detail::name_exists(file("preprocessor_config.json")) ||
                       TimmConfig::from_folder(files.folder);
    if (options.log && !known)
      options.log(path +
                  ": there is no preprocessor_config.json beside it: pixels are normalised by the mean and "
                  "deviation of ImageNet's");
  } else {
    // The table of the file is what decides; a tokenizer may have fewer tokens.
    if (const int64_t rows = network.vocab_size(); rows > 0) config.vocab_size = rows;
    if (const int64_t length = network.roles().length; length > 0)
      config.max_positions = config.max_positions > 0 ? std::min(config.max_positions, length) : length;
  }
  if constexpr (kHasLabels) {
    BuildOptions wanted = options;
    if (std::is_same_v<M, OnnxImageClassifier> && !options.labels.empty()) wanted.label_kind = data::LabelKind::kOne;
    choose_labels(*model, path, wanted);
  } else {
    config.labels.clear();
  }
  model->train();
  return model;
}

std::unique_ptr<Model> load_onnx(const std::string& path, const BuildOptions& options) {
  const auto files = onnx_files(path);
  TERN_CHECK(files, path, ": expected a file NAME.onnx, or a folder with model.onnx");
  check_model_files(files->model);
  auto state =
      onnx::load_state(files->model, {.device = options.device, .generator = options.generator, .logits = true});
  const OnnxRoles roles = onnx_roles(state->inputs, state->outputs);
  check_options(options, roles, path);
  const onnx::ValueInfo output = state->outputs[static_cast<size_t>(roles.output)];
  const auto activation = state->activations.find(output.name);
  const bool several = activation != state->activations.end() && activation->second.op == "Sigmoid";
  Opened opened{OnnxNetwork(std::move(state), roles),
                read_onnx_config(*files, {}, {})};  // the labels follow when the network can be called
  const nn::Scope scope = options.scope();
  const auto finished = [&](auto model) { return finish(std::move(model), *files, several, path, options); };
  if (roles.kind == ModelKind::kImages)
    return finished(std::make_unique<OnnxImageClassifier>(scope, std::move(opened)));
  if (!roles.of_tokens) return finished(std::make_unique<OnnxTextClassifier>(scope, std::move(opened)));
  if (output.name != "logits") return finished(std::make_unique<OnnxTextEncoder>(scope, std::move(opened)));
  const std::string architecture = opened.config.architecture;
  const int64_t words = opened.network.vocab_size(), width = output.shape.back().size;
  const bool of_words = architecture.ends_with("MaskedLM") || architecture == "OnnxMaskedWordModel" ||
                        (architecture.empty() && width > 0 && width == words);
  if (of_words) return finished(std::make_unique<OnnxMaskedWordModel>(scope, std::move(opened)));
  return finished(std::make_unique<OnnxTokenClassifier>(scope, std::move(opened)));
}

ModelKind kind_in(const std::string& path) {
  const auto files = onnx_files(path);
  TERN_CHECK(files, path, ": expected a file NAME.onnx, or a folder with model.onnx");
  const onnx::GraphDef graph = onnx::read_model(files->model).graph;
  return onnx_roles(onnx::inputs_of(graph), graph.outputs).kind;
}

}  // namespace

bool is_onnx_model(const Model& model) { return dynamic_cast<const HasNetwork*>(&model) != nullptr; }

bool save_onnx_file(const Model& model, const std::string& path, const std::map<std::string, std::string>& metadata) {
  const auto* const made = dynamic_cast<const HasNetwork*>(&model);
  if (made == nullptr) return false;
  made->network().save_file(path, made->configuration(), metadata);
  return true;
}

ModelFamily onnx_family() {
  return {.name = "onnx",
          .model_types = {"onnx"},
          .load = load_onnx,
          .reads = [](const std::string& path) { return onnx_files(path).has_value(); },
          .kind_in = kind_in,
          .notes = {{"--freeze", "the names of an ONNX file's weights"}}};
}

}  // namespace tern::models
