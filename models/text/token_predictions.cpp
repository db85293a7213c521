#include "tern/models/text/token_predictions.h"

#include <algorithm>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/pickle.h"
#include "tern/core/ops/ops.h"

namespace tern::models {

std::vector<TaggedText> tag_texts(const TokenClassifier& model, const data::Tokenizer& tokenizer,
                                  const std::vector<std::string>& texts, int64_t max_length, int64_t batch_tokens) {
  NoGrad off;
  const auto before = static_cast<int64_t>(tokenizer.around().before.size());
  const auto after = static_cast<int64_t>(tokenizer.around().after.size());
  std::vector<TaggedText> tagged(texts.size());
  const int64_t limit = token_limit(model, tokenizer, max_length);
  for_each_batch(model, tokenizer, texts, {}, limit, batch_tokens, [&](const data::TokenBatch& batch) {
    const std::vector<int64_t> ids = batch.tokens.to_vector<int64_t>();
    const std::vector<int64_t> offsets = batch.layout.offsets.to_vector<int64_t>();
    const std::vector<Prediction> found = predictions_of(model.forward(batch));
    for (size_t s = 0; s < batch.rows.size(); ++s) {
      TaggedText& text = tagged[static_cast<size_t>(batch.rows[s])];
      for (int64_t row = offsets[s] + before; row < offsets[s + 1] - after; ++row) {
        const Prediction& p = found[static_cast<size_t>(row)];
        text.tokens.emplace_back(tokenizer.token(static_cast<int32_t>(ids[static_cast<size_t>(row)])));
        text.labels.push_back(p.label);
        text.scores.push_back(p.score);
      }
    }
  });
  return tagged;
}

std::vector<std::vector<MaskedWord>> fill_masks(const MaskedWordModel& model, const data::Tokenizer& tokenizer,
                                                const std::vector<std::string>& texts, int64_t top, int64_t max_length,
                                                int64_t batch_tokens) {
  NoGrad off;
  const int32_t mask = tokenizer.mask_id();
  std::vector<std::vector<MaskedWord>> filled(texts.size());
  const int64_t limit = token_limit(model, tokenizer, max_length);
  for_each_batch(model, tokenizer, texts, {}, limit, batch_tokens, [&](const data::TokenBatch& batch) {
    const std::vector<int64_t> ids = batch.tokens.to_vector<int64_t>();
    const std::vector<int64_t> offsets = batch.layout.offsets.to_vector<int64_t>();
    std::vector<int64_t> rows;
    std::vector<size_t> text_of;
    for (size_t s = 0; s < batch.rows.size(); ++s) {
      const auto text = static_cast<size_t>(batch.rows[s]);
      for (int64_t row = offsets[s]; row < offsets[s + 1]; ++row)
        if (ids[static_cast<size_t>(row)] == mask) rows.push_back(row), text_of.push_back(text);
      TERN_CHECK(!text_of.empty() && text_of.back() == text, "the text '", tern::detail::printable(texts[text]),
                 "' has no ", tokenizer.token(mask), " among its first ", limit, " tokens");
    }
    const auto masks = static_cast<int64_t>(rows.size());
    const Tensor logits = model.forward(batch, from_vector(rows, {masks}).to(model.device())).to(DType::kFloat32);
    // Rows of the embedding behind the vocabulary are no words.
    const int64_t words = std::min(tokenizer.vocab_size(), logits.size(1));
    const auto [scores, tokens] = topk(softmax(logits, 1).slice(1, 0, words), std::min(top, words), 1);
    const std::vector<double> all_scores = scores.to_vector<double>();
    const std::vector<int64_t> all_tokens = tokens.to_vector<int64_t>();
    const auto width = static_cast<size_t>(tokens.size(1));
    for (size_t i = 0; i < rows.size(); ++i) {
      MaskedWord& word = filled[text_of[i]].emplace_back();
      for (size_t j = i * width; j < (i + 1) * width; ++j) {
        word.tokens.emplace_back(tokenizer.token(static_cast<int32_t>(all_tokens[j])));
        word.scores.push_back(all_scores[j]);
      }
    }
  });
  return filled;
}

}  // namespace tern::models
