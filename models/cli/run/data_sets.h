#pragma once
// Choosing, loading and tokenizing data for train and eval. These functions throw Interrupted on a signal.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/datasets/image_set.h"
#include "tern/data/datasets/target_set.h"
#include "tern/data/datasets/text_set.h"
#include "tern/data/datasets/token_set.h"
#include "tern/data/tokenizers/tokenizer.h"
#include "tern/models/log.h"
#include "tern/models/text/text_pipeline.h"

namespace tern::cli {

/// Texts and what they are labelled with.
struct LabelledTexts {
  data::LabelKind kind = data::LabelKind::kOne;
  data::TextSet texts = {};              // with kOne their labels
  std::vector<std::string> labels = {};  // the names of a model's outputs
  Tensor targets = {};                   // of other kinds: data::TargetSet's; with kOne undefined

  /// Gives the labels the ids and names that a model has them under (data::KnownLabels).
  void order_labels(const std::vector<std::string>& order);
  /// SHA-256 of the labels or the targets.
  std::string labels_hash() const;
  /// For a text task's options and models::evaluate(); null with kOne.
  std::function<void(data::TokenBatch& batch)> transform() const;
};

/// The names of a set's labels for its record: as they are, in the order of their names, or hashed if they are many.
std::string label_names_record(std::vector<std::string> names);

/// What --task says of the data; nothing for "auto".
std::optional<data::LabelKind> kind_of_task(const std::string& task);

/// Whether --data means a set of the library by it, and not a file or folder.
bool is_named_set(const std::string& source);

// `source`: what --data names; if it is empty, the first named set that needs no download, reported through `log`.
/// `kind`: nothing: as the file is labelled (data::label_kind_of).
LabelledTexts load_texts(const std::string& source, std::optional<data::LabelKind> kind,
                         const std::vector<std::string>& known_labels, const models::Log& log);
data::ImageSet load_image_set(const std::string& source, const std::vector<std::string>& known_labels,
                              const models::Log& log);

/// The ids of every text, or pair of texts, with the tokens around it, [CLS] and [SEP], at most max_length each; from
/// the cache where it can be.
std::shared_ptr<const data::TokenSet> tokenize_texts(const data::TextSet& texts, const models::TextPipeline& pipeline,
                                                     int64_t max_length, const models::Log& log);

/// The tokenizer that --tokenizer names, or that of the model at this path. Throws Error if there is none.
std::shared_ptr<const data::Tokenizer> tokenizer_of(const std::string& given, const std::string& model,
                                                    const models::Log& log);

}  // namespace tern::cli
