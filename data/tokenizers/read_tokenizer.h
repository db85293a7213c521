#pragma once

#include <memory>
#include <string>

#include "tern/data/tokenizers/tokenizer.h"

namespace tern::data {

struct ReadTokenizerOptions {
  /// Texts are lowercased before all else, unless the tokenizer does so itself: do_lower_case of sentence-transformers.
  bool lowercase = false;
};

/// The tokenizer of a model's folder, with the ids that Hugging Face's AutoTokenizer gives (transformers 5).
///
/// DIR/tokenizer.json is read whole (TokenizerJson), but with the class BertTokenizer or DistilBertTokenizer
/// (tokenizer_class of tokenizer_config.json, else of config.json, whose model_type implies it too) its vocabulary
/// counts, and do_lower_case, strip_accents and tokenize_chinese_chars of tokenizer_config.json; without a class these
/// come before what tokenizer.json says. BERT's own tokenizer becomes a WordPiece, which is faster. Without a
/// tokenizer.json, DIR/vocab.txt is BERT's vocabulary. Special tokens, the longest text and the side that is cut are
/// those of tokenizer_config.json, special_tokens_map.json and added_tokens.json.
///
/// Throws Error for files that contradict themselves, a part that Tern does not have, and a token that tokenizer.json
/// lacks.
std::shared_ptr<const Tokenizer> read_tokenizer(const std::string& dir, const ReadTokenizerOptions& options = {});

}  // namespace tern::data
