#pragma once
// Loading and saving of public checkpoints: what is the same for every family.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tern/core/io/state_file.h"
#include "tern/models/checksums.h"
#include "tern/models/key_map.h"
#include "tern/models/model.h"

namespace tern::models {

/// How a model is built, from a checkpoint or from a preset.
struct BuildOptions {
  Device device = {};
  DType dtype = DType::kFloat32;              // of the weights, independent of the file's
  Generator generator = default_generator();  // for initial values, dropout, and parameters missing in the checkpoint
  /// The labels of the data. If they are those of the configuration by the rule of data::KnownLabels, which leaves no
  /// output without one, its labels, their order and the head are kept (names in place of LABEL_0, ...). Otherwise they
  /// replace them; with allow_new_head the head's last layer is then new, without it the names change alone.
  std::vector<std::string> labels = {};
  /// Replaces the configuration's kind of labels. Of a preset: one label unless given.
  std::optional<data::LabelKind> label_kind = {};
  /// Replaces all dropout probabilities.
  std::optional<double> dropout = std::nullopt;
  int64_t max_length = 0;  // preset of a text model: it takes sequences of so many tokens at least
  int64_t image_size = 0;  // image model: pixels a side; 0: as in the checkpoint or the preset

  // The members that follow are for checkpoints alone.
  int64_t heads = 0;  // of weights without a config.json; 0: heads of 64 dimensions, as in all published ones
  /// Initializes a missing classification head instead of failing: for fine-tuning a bare encoder.
  bool allow_new_head = false;
  /// Of a text model hidden_states() alone is wanted: a head is read if the file has one, and not missed otherwise.
  bool encoder_only = false;
  /// Called with one line that says whether the head is kept or new, and why.
  std::function<void(const std::string&)> log = {};

  nn::Scope scope() const { return nn::Scope({.device = device, .dtype = dtype, .generator = generator}); }
};

/// Tensors under a family's public names, and what to make of them.
struct PublicWeights {
  StateFile file;
  StateView tensors;                               // of the file, under the names that `names` maps
  const KeyMap* names = nullptr;                   // null: the model's own names are the public ones
  std::vector<std::string> ignored_prefixes = {};  // public names: heads of other tasks
  std::vector<std::string> head_prefixes = {};     // Tern's names: what BuildOptions::allow_new_head leaves out
  std::string model = "the model";                 // what an error says that they do not fit
};

/// A checkpoint as its family reads it.
template <class Config>
struct PublicCheckpoint {
  Config config;
  PublicWeights weights;
};

/// The tensors of a file that a family knows by their names (find_set), or all if it knows none. What was left out, and
/// which of several sets of weights in the file was taken, is said in lines of `log`.
TensorSet model_tensors(const StateFile& file, bool (*recognizes)(const StateView&),
                        const std::function<void(const std::string&)>& log);
/// PublicWeights::model for a set: `name`, and what was taken as its tensors if not all were.
std::string described_model(const std::string& name, const TensorSet& set);
/// What becomes of the labels and the head of a loaded model.
struct HeadChoice {
  std::vector<std::string> labels;
  bool keeps = true;   // the last layer of the head
  std::string reason;  // for BuildOptions::log; empty: nothing to say
};
/// By the labels and their kind in the folder, and those that the options want.
HeadChoice choose_head(const std::vector<std::string>& stored, data::LabelKind kind, const BuildOptions& options);
/// Throws Error when the options want another kind of labels than one: for models that have no other.
void require_one_label(const std::string& what, const BuildOptions& options);
/// Copies the weights into the model, but those of a head that is not kept. Throws Error on missing, unexpected or
/// mis-shaped tensors.
void load_weights(Model& model, const std::string& path, const PublicWeights& weights, const BuildOptions& options,
                  const HeadChoice& head);
/// Writes config.json and model.safetensors under public names.
void save_public(const Model& model, const KeyMap& names, const std::string& dir);
/// Every tensor of the model under its own name.
KeyMap own_names(const Model& model);

/// The model in a folder or file of weights, by the family that reads it (families.h).
std::unique_ptr<Model> load_by_family(const std::string& path, const BuildOptions& options);
/// The model as an M. Throws Error that begins with `what` if it is none.
template <class M>
std::unique_ptr<M> model_as(std::unique_ptr<Model> model, const std::string& what) {
  if constexpr (std::is_same_v<M, Model>) {
    return model;
  } else {
    M* const wanted = dynamic_cast<M*>(model.get());
    const auto* const text = dynamic_cast<const TextModel*>(model.get());
    TERN_CHECK(wanted, what, ": the model, a ", model->type_name(), ", is of another kind than the one that is wanted",
               std::is_same_v<M, SequenceClassifier> && text && text->takes_a_head()
                   ? ", a classifier of texts, which tern train --init makes of it"
                   : "");
    model.release();
    return std::unique_ptr<M>(wanted);
  }
}

/// M: a model class, which says by
///   static PublicCheckpoint<Config> read_checkpoint(const std::string& path, const BuildOptions& options)
/// how its family's files are read, and, if the class depends on the configuration, by make(scope, config) what is
/// made of it; or Model, SequenceClassifier or ImageClassifier, for the family that the path is of.
template <class M>
std::unique_ptr<M> load_pretrained(const std::string& path, const BuildOptions& options = {}) {
  if constexpr (requires { &M::read_checkpoint; }) {
    check_model_files(path);
    auto checkpoint = M::read_checkpoint(path, options);
    auto& config = checkpoint.config;  // not a structured binding, which clang before 16 does not capture in a lambda
    data::LabelKind kind = data::LabelKind::kOne;
    if constexpr (requires { config.label_kind; })
      kind = std::exchange(config.label_kind, options.label_kind.value_or(config.label_kind));
    else
      require_one_label(path, options);
    const HeadChoice head = choose_head(config.labels, kind, options);
    config.labels = head.labels;
    if (options.dropout) config.set_dropout(*options.dropout);
    auto model = [&] {
      if constexpr (requires { M::make(options.scope(), config); })
        return M::make(options.scope(), config);
      else
        return std::make_unique<M>(options.scope(), config);
    }();
    load_weights(*model, path, checkpoint.weights, options, head);
    return model;
  } else {
    return model_as<M>(load_by_family(path, options), path);
  }
}

}  // namespace tern::models
