#pragma once
// Key maps: translate names and layouts of tensors between Tern's models and a public family of checkpoints. A map is
// data, not code; one table serves loading and saving.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tern/core/autograd/parameter.h"

namespace tern::models {

/// One of Tern's tensors and its public counterparts. '*' matches the same number on both sides. Several public names
/// are concatenated along the first dimension on loading and split evenly on saving.
struct KeyRule {
  std::string tern_name;
  std::vector<std::string> checkpoint_names;
};

using KeyMap = std::vector<KeyRule>;

/// Rules whose names all end with '.' or '_' become two, with "weight" and "bias" appended; the others stay.
KeyMap with_weight_and_bias(const KeyMap& rules);

/// The public names of one of Tern's tensors. Throws Error if there is no rule.
std::vector<std::string> checkpoint_names_of(const KeyMap& map, const std::string& tern_name);

/// Adds the prefix to all names but those that begin with one of `others`, unless a name has it already: files of bare
/// encoders lack it.
void add_missing_prefix(StateView& state, const std::string& prefix, const std::vector<std::string>& others);
/// A model's tensors in a file that may hold others too.
struct TensorSet {
  StateView tensors;                     // under the names that the family has
  std::string prefix = {};               // what was cut from their names: "model."
  std::vector<std::string> others = {};  // names of the tensors that do not begin with it
  /// "the tensors under 'model.', without x and 3 more"; empty if nothing was cut.
  std::string description() const;
};
/// The tensors whose names `recognizes` knows, perhaps behind a prefix that ends with a dot ("model." of Lightning,
/// "backbone."): the shortest that does. Nothing if none does. Throws Error that begins with `source` if there are
/// several such sets, none inside of another.
std::optional<TensorSet> find_set(const StateView& state, bool (*recognizes)(const StateView&),
                                  const std::string& source);

/// In every name the first `from` of each pair {from, to} becomes `to`.
void replace_in_names(StateView& state, const std::vector<std::pair<std::string, std::string>>& pairs);

/// Names of norms as transformers has had them since 2019: "norm.gamma" becomes "norm.weight", "norm.beta" "norm.bias".
void modernise_norms(StateView& state);

/// Tensors under public names for saving (views where a tensor is split). Throws Error for a tensor without a rule.
StateView to_checkpoint_names(const KeyMap& map, const StateView& state);

struct FromCheckpointOptions {
  /// Prefixes of Tern's names that may be missing from the file, because the model initializes them (a new head).
  std::vector<std::string> optional_prefixes;
  /// Prefixes of public names that are ignored: heads of other tasks.
  std::vector<std::string> ignored_prefixes;
  std::string model = "the model";  // for the error
};

/// The tensors of a public file under Tern's names. Floating-point counters (num_batches_tracked of averaged or
/// converted checkpoints) become integers. `own` gives the required names and shapes. One Error lists all
/// missing, unexpected and mis-shaped tensors, under their public names.
StateView from_checkpoint_names(const KeyMap& map, const StateView& state, const StateView& given,
                                const std::string& source, const FromCheckpointOptions& options = {});

}  // namespace tern::models
