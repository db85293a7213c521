#pragma once
// Which files of a model are fetched.

#include <cstdint>
#include <string>
#include <vector>

namespace tern::data {

/// What the files are for.
enum class HubUse : uint8_t { kModel, kTokenizer };

struct HubSelection {
  HubUse use = HubUse::kModel;
  /// Patterns as Python's fnmatch has them: * also matches "/", and a pattern that ends with "/" stands for all within
  /// the folder. With `include` the files that match one of its patterns are taken in place of those that Tern reads.
  std::vector<std::string> include = {}, exclude = {};

  bool takes(const std::string& file) const;
};

/// The files that Tern reads in a folder of a model (empty: the outermost), of those in `files`: configuration,
/// tokenizer, and the first that there is of model.safetensors, model.safetensors.index.json, pytorch_model.bin and
/// pytorch_model.bin.index.json. The files of an index are parts_of_index().
std::vector<std::string> files_to_read(const std::vector<std::string>& files, const std::string& folder, HubUse use);
/// The names files_to_read() looks for, with those that stand for one another in the order in which they are tried: for
/// a hub that has no list of files.
std::vector<std::string> names_to_try(HubUse use);
bool is_weights_index(const std::string& file);

/// The paths that the text of the index of weights `path` names, in the folder of the index. Throws Error, which begins
/// with `source`, where it is none, or names a path outside the folder.
std::vector<std::string> parts_of_index(const std::string& text, const std::string& path, const std::string& source);
/// The folders that the text of a modules.json of sentence-transformers names, without "". Throws Error likewise.
std::vector<std::string> folders_of_modules(const std::string& text, const std::string& source);

}  // namespace tern::data
