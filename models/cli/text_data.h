#pragma once
// Choosing, loading, splitting and tokenizing a text set for train and eval.

#include <functional>
#include <memory>
#include <string>

#include "tern/data/datasets/text_set.h"
#include "tern/data/datasets/token_set.h"
#include "tern/data/samplers/split.h"
#include "tern/data/tokenizers/wordpiece.h"

namespace tern::cli {

using Log = std::function<void(const std::string&)>;

// Loading and tokenizing throw Interrupted when a signal comes.

/// `source`, or without one IMDB where it is on this machine and otherwise the embedded sentences, said through `log`.
data::TextSet load_texts(const std::string& source, const std::vector<std::string>& known_labels, const Log& log);

/// [CLS] ids [SEP] of every text, at most max_length tokens each; from the cache where it can be.
std::shared_ptr<const data::TokenSet> tokenize_texts(const data::TextSet& texts, const data::WordPiece& tokenizer,
                                                     int64_t max_length, const Log& log);

}  // namespace tern::cli
