#pragma once
// Predictions for the tokens of texts.

#include <string>
#include <vector>

#include "tern/models/text/text_pipeline.h"

namespace tern::models {

/// A text's tokens without those around it, and the label of each, the index of the largest logit, with its
/// probability.
struct TaggedText {
  std::vector<std::string> tokens;
  std::vector<int64_t> labels;
  std::vector<double> scores;
};

/// The most probable tokens in the place of one mask, the first of them first.
struct MaskedWord {
  std::vector<std::string> tokens;
  std::vector<double> scores;
};

/// In the order of the texts, cut to max_length tokens (0: the model's maximum).
std::vector<TaggedText> tag_texts(const TokenClassifier& model, const data::Tokenizer& tokenizer,
                                  const std::vector<std::string>& texts, int64_t max_length = 0,
                                  int64_t batch_tokens = 16384);

/// For each text the `top` best tokens of each of its masks, in their order. Throws Error for a text without a mask
/// among its first max_length tokens.
std::vector<std::vector<MaskedWord>> fill_masks(const MaskedWordModel& model, const data::Tokenizer& tokenizer,
                                                const std::vector<std::string>& texts, int64_t top,
                                                int64_t max_length = 0, int64_t batch_tokens = 4096);

}  // namespace tern::models
