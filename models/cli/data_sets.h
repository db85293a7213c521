#pragma once
// Choosing, loading and tokenizing data for train and eval. These functions throw Interrupted on a signal.

#include <memory>
#include <string>
#include <vector>

#include "tern/data/datasets/image_set.h"
#include "tern/data/datasets/text_set.h"
#include "tern/data/datasets/token_set.h"
#include "tern/models/cli/commands.h"

namespace tern::cli {

// `source`: what --data names; if it is empty, the first named set that needs no download, reported through `log`.
data::TextSet load_texts(const std::string& source, const std::vector<std::string>& known_labels, const Log& log);
data::ImageSet load_image_set(const std::string& source, const std::vector<std::string>& known_labels, const Log& log);

/// [CLS] ids [SEP] of every text, at most max_length tokens each; from the cache where it can be.
std::shared_ptr<const data::TokenSet> tokenize_texts(const data::TextSet& texts, const data::WordPiece& tokenizer,
                                                     int64_t max_length, const Log& log);

}  // namespace tern::cli
