#pragma once
// The decoders of a tokenizer.json: from tokens back to text.

#include <memory>
#include <string>
#include <vector>

#include "tern/data/tokenizers/pipeline/json_field.h"

namespace tern::data {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Replaces the tokens by parts of text, which are joined in the end.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// Throws Error for a decoder that Tern does not have, naming it.
std::unique_ptr<const Decoder> read_decoder(const JsonField& field);

}  // namespace tern::data
