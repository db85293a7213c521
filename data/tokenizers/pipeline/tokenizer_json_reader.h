#pragma once
// For readers of whole folders: a TokenizerJson of a parsed file.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/tokenizers/pipeline/tokenizer_json.h"

namespace tern::data {

/// What other files than tokenizer.json say of a tokenizer.
struct TokenizerFacts {
  std::vector<std::string> special = {};  // tokens in the order of SpecialToken; empty texts for none
  std::optional<TextLimits> limits = {};  // nothing: the side of tokenizer.json's truncation
};

class TokenizerJsonReader {
 public:
  /// TokenizerJson::from_text() of the parsed text.
  static TokenizerJson read(const nlohmann::json& root, const std::string& name, const TokenizerFacts& facts = {});
};

}  // namespace tern::data
