#pragma once
// What every set of labelled rows has, whatever a row is, and the names under which load_text and load_images find one.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tern::data {

/// The part of the official split that a row belongs to.
enum class Part : uint8_t { kTrain, kValidation, kTest };

/// What a row is labelled with. A model's is Hugging Face's problem_type: single_label_classification,
/// multi_label_classification or regression.
enum class LabelKind : uint8_t { kOne, kSeveral, kNumber };

struct LabelledSet {
  std::string name;             // "imdb", "digits" or the path
  std::vector<int32_t> labels;  // [size()], 0 .. label_names.size() - 1
  std::vector<std::string> label_names;
  std::vector<Part> parts = {};  // [size()] where the set has an official split, otherwise empty

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  /// Gives each label name a new id. `ids`: of every name in label_names; `names`: the names in the new order.
  void renumber(const std::vector<int32_t>& ids, const std::vector<std::string>& names);
  /// Gives the labels the ids and names that a model has them under, by the rule of KnownLabels (label_index.h). Throws
  /// Error if it lacks one.
  void order_labels(const std::vector<std::string>& order);
  /// Rows of a part with a label. Without an official split all rows are for training.
  int64_t count(Part part, size_t label) const;
  /// Calls add(folder/train), ... for the parts' folders that exist, or add(folder) if there are none; add() appends
  /// the rows of folder/LABEL/...
  void add_parts(const std::string& folder, const std::function<void(const std::string& folder)>& add);
};

struct LoadOptions {
  /// The labels of a trained model, in the order of its outputs: rows get these ids by the rule of KnownLabels
  /// (label_index.h), and any other label is an error that names the place and the known labels. Where names differ,
  /// `log` gets a line that says how they were matched.
  std::vector<std::string> known_labels = {};
  bool allow_download = true;                        // of a named set that is not found on this machine
  std::function<void(const std::string&)> log = {};  // one line each: what is fetched, skipped, or not as published
};

/// How `tern train` trains on a set of images where the user says nothing else, and what its images allow.
struct SetTraining {
  const char* title = "";  // what --help calls the set; empty: its name
  /// In place of the model's recipe; epochs 0: the set has none.
  int64_t epochs = 0;
  double lr = 0, mixup = 0;
  int64_t most_epochs = 0;      // of a recipe of the model's; 0: as many as that says
  const char* unmirrored = "";  // what the images show, where a mirror image of one is not of its class
  bool augmented = true;        // false: an image fills its pixels, so that a shift cuts a part off
  const char* policy = "";      // what AutoAugment found for it (kNamedPolicies); empty: another set's
};

/// A set that is found by its name: a row in the list of text_readers.cpp or image_set.cpp. read() leaves known_labels
/// to load_text and load_images, which renumber the set.
template <class Set>
struct NamedSet {
  std::string name;
  std::string note;  // for --help: " (embedded)"
  Set (*read)(const LoadOptions& options) = nullptr;
  std::optional<std::string> (*find)() = nullptr;  // the folder on this machine; null: the set is embedded
  const char* folder = "";                         // its name in $TERN_DATA
  SetTraining training = {};                       // of images
};

/// The set of that name, or null.
template <class Set>
const NamedSet<Set>* find_named(const std::vector<NamedSet<Set>>& sets, const std::string& name) {
  for (const NamedSet<Set>& set : sets)
    if (set.name == name) return &set;
  return nullptr;
}

/// "imdb, sentences"; notes: with them.
template <class Set>
std::string names_of(const std::vector<NamedSet<Set>>& sets, bool notes = false) {
  std::string names;
  for (const NamedSet<Set>& set : sets)
    names += (names.empty() ? "" : ", ") + set.name + (notes ? set.note : std::string());
  return names;
}

/// The first set that is embedded or on this machine. `report` gets the choice and its reason.
template <class Set>
std::string default_set(const std::vector<NamedSet<Set>>& sets, std::string& report) {
  for (const NamedSet<Set>& set : sets) {
    if (set.find && !set.find()) {
      report += "; " + set.name + " was not found on this machine (--data " + set.name +
                " fetches it, TERN_DATA names a folder that holds " + set.folder + ")";
      continue;
    }
    report = set.name + (set.find ? " (found on this machine)" : set.note) + report;
    return set.name;
  }
  return "";
}

}  // namespace tern::data
