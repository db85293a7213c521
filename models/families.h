#pragma once
// The table of model families. A family is a folder of models/ (or of another project) and a row here.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tern/models/pretrained.h"

namespace tern::models {

/// What a family's models read.
enum class ModelKind : uint8_t { kTexts, kImages };

/// How `tern train` trains on images where the user says nothing else. The members are options of the same names.
struct TrainingRecipe {
  int64_t epochs = 10, batch_size = 64;
  const char* optimizer = "adamw";
  double lr = 1e-3;
  std::optional<double> momentum = {};
  /// true: batch_size is the largest batch, and a set too small for 50 steps an epoch gets smaller ones, of 64 images
  /// or more. lr and momentum are those of steps of batch_size images; for other steps lr is multiplied by the square
  /// root of the ratio of images, and 1 - momentum by the ratio, so that momentum averages over as many images.
  bool scales_with_batch = false;
  double warmup = 0.1, label_smoothing = 0, mixup = 0;
  /// --progressive-resize for an input of so many pixels a side; null: images do not grow.
  int64_t (*progressive_resize)(int64_t size) = nullptr;
  const char* first_size = "";  // the same for --help: "17/32 of it, 16 or more"
  const char* augment = "default";
  const char* tta = "none";
  const char* split = "";  // of a set with official parts
};

/// A size that a model is made in.
struct ModelPreset {
  const char* name = "";
  const char* size = "";                   // for --help: "128 x 2 layers"; empty: not offered on the command line
  const TrainingRecipe* recipe = nullptr;  // from scratch; null: that of all models of images
  bool large = false;                      // of texts: from scratch too it has the defaults of fine-tuning
};

/// What --help says of an option for the models of a family.
struct OptionNote {
  std::string option, text;  // "--freeze", "encoder.* of a distilbert"
};

struct ModelFamily {
  std::string name;  // `tern train NAME`
  ModelKind kind = ModelKind::kTexts;
  std::vector<std::string> model_types = {};  // of its config.json files
  /// The first is the default, unless preset_for is set. None: new models are made from --init alone.
  std::vector<ModelPreset> presets = {};
  std::unique_ptr<Model> (*load)(const std::string& path, const BuildOptions& options) = nullptr;
  std::unique_ptr<Model> (*make)(const std::string& preset, const BuildOptions& options) = nullptr;
  std::string presets_note = {};  // what --help says after the sizes
  /// The default preset for images of so many pixels a side, 0 where they differ. Null: the first one.
  const char* (*preset_for)(int64_t side) = nullptr;
  bool sized_by_data = false;  // a new model is made for the size of the images, if they all have one
  double small_lr = 5e-4;      // learning rate of a text model from scratch, unless it is large
  /// Whether weights without a config.json have this family's names; null: it reads none.
  bool (*recognizes)(const StateView& weights) = nullptr;
  /// Whether a file or folder is the family's whatever else is there; null: its config.json or weights say it.
  bool (*reads)(const std::string& path) = nullptr;
  /// What the model in a file or folder reads, for a family that has both, and `reads`; null: `kind`.
  ModelKind (*kind_in)(const std::string& path) = nullptr;
  std::vector<OptionNote> notes = {};

  ModelKind kind_of(const std::string& path) const { return kind_in ? kind_in(path) : kind; }

  /// Null if there is none.
  const ModelPreset* preset_named(const std::string& preset) const;
  /// The size that the family has for a set of data in place of its first one: a preset that is not offered and is
  /// called like the set. Null if there is none.
  const ModelPreset* preset_of_set(const std::string& set) const;
};

/// For ModelFamily::load.
template <class M>
std::unique_ptr<Model> load_model(const std::string& path, const BuildOptions& options) {
  return load_pretrained<M>(path, options);
}

/// All families; the first reads a config.json whose model_type no other has.
const std::vector<ModelFamily>& model_families();
/// Adds a row, for families outside of Tern. Call it at the beginning of main(), before other threads read the table.
/// Throws Error if the name is taken.
void add_model_family(ModelFamily family);

std::vector<std::string> family_names();
/// Throws Error that lists the names.
const ModelFamily& family_named(const std::string& name);
/// The family of a model folder or file of weights. Throws Error if config.json cannot be read.
const ModelFamily& family_of(const std::string& path);
/// What the model in a folder or file reads.
inline ModelKind kind_of_model(const std::string& path) { return family_of(path).kind_of(path); }

/// The names of the offered presets.
std::vector<std::string> offered(const std::vector<ModelPreset>& presets);
/// "tiny, small or base".
std::string in_words(const std::vector<std::string>& names, const std::string& last = " or ");

template <class Entry, size_t n>
std::vector<ModelPreset> presets_of(const Entry (&entries)[n]) {
  std::vector<ModelPreset> presets;
  for (const Entry& entry : entries) presets.push_back(entry.preset);
  return presets;
}
/// The entry of that preset, in a list of a struct with a member `preset`. Throws Error that lists the offered ones.
template <class Entry, size_t n>
const Entry& find_preset(const Entry (&entries)[n], const std::string& name) {
  for (const Entry& entry : entries)
    if (name == entry.preset.name) return entry;
  fail("preset: expected ", in_words(offered(presets_of(entries))), ", got '", name, "'");
}

}  // namespace tern::models
