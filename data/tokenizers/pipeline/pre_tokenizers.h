#pragma once
// The pre-tokenizers of a tokenizer.json.

#include <functional>
#include <memory>
#include <vector>

#include "tern/data/tokenizers/pipeline/json_field.h"
#include "tern/data/tokenizers/pipeline/words.h"

namespace tern::data {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Cuts every word further; some also replace the text.
  virtual void apply(Words& words) const = 0;
};

/// The parts of a Sequence in their order, or the one pre-tokenizer. If the last one is ByteLevel and take_bytes()
/// holds, it leaves bytes as they are instead of the characters that stand for them: the model has mapped its tokens to
/// bytes. Throws Error for a pre-tokenizer that Tern does not have, naming it.
std::vector<std::unique_ptr<const PreTokenizer>> read_pre_tokenizers(const JsonField& field,
                                                                     const std::function<bool()>& take_bytes);

}  // namespace tern::data
