#pragma once
// A small DistilBERT on the device, and texts for it.

#include "tern/models/distilbert/distilbert.h"
#include "tern/models/text/text_task.h"
#include "tern/tests/cuda/device_test.h"

namespace tern::models {

struct Texts {
  std::shared_ptr<data::TokenSet> tokens = std::make_shared<data::TokenSet>();
  std::vector<int32_t> labels, rows;

  void add(const std::vector<int32_t>& ids, int32_t label) {
    tokens->ids.insert(tokens->ids.end(), ids.begin(), ids.end());
    tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
    rows.push_back(static_cast<int32_t>(rows.size()));
    labels.push_back(label);
  }
};

inline constexpr int64_t kVocabSize = 50;

/// Texts of 5 to 11 tokens and two labels, the same in every run.
inline Texts fixed_texts(int32_t count) {
  Texts texts;
  for (int32_t i = 0; i < count; ++i) {
    std::vector<int32_t> ids;
    for (int32_t t = 0; t < 5 + i % 7; ++t) ids.push_back((i * 7 + t * 3) % kVocabSize);
    texts.add(ids, i % 2);
  }
  return texts;
}

inline nn::Scope fresh_scope(Device device) {
  return nn::Scope({.device = device, .generator = Generator(fresh_seed())});
}

}  // namespace tern::models
