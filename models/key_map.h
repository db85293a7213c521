#pragma once
// Key maps: how a public family of checkpoints names and lays out the tensors that Tern's models keep in a layout of
// their own. A map is data, not code; one table serves loading and saving.

#include <string>
#include <vector>

#include "tern/core/parameter.h"

namespace tern::models {

/// One of Tern's tensors and its public counterparts. A '*' stands for the same number on both sides. Several public
/// names are concatenated along the first dimension when loading and split, evenly, when saving.
struct KeyRule {
  std::string own;
  std::vector<std::string> others;
};

using KeyMap = std::vector<KeyRule>;

/// Tensors under public names (views where a tensor is split), for saving. Throws Error for a tensor without a rule.
StateView to_public(const KeyMap& map, const StateView& own);

struct FromPublicOptions {
  /// Own names that may be missing from the file, because the model starts them anew (a new head).
  std::vector<std::string> optional_prefixes;
  /// Public names that are passed over: heads of other tasks.
  std::vector<std::string> ignored_prefixes;
};

/// The tensors of a public file under Tern's names. `own` tells which are wanted and their shapes. All missing,
/// unexpected and mis-shaped tensors are listed in one Error, under their public names.
StateView from_public(const KeyMap& map, const StateView& own, const StateView& given, const std::string& source,
                      const FromPublicOptions& options = {});

}  // namespace tern::models
