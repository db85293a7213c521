#include "tern/models/cli/run/data_sets.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tern/data/datasets/label_index.h"
#include "tern/data/files/sha256.h"
#include "tern/data/hub/hub.h"
#include "tern/data/tokenizers/read_tokenizer.h"
#include "tern/kernels/kernel.h"
#include "tern/models/cli/launch/process_end.h"
#include "tern/models/cli/options/options.h"
#include "tern/models/onnx/classifiers/files.h"
#include "tern/models/text/text_task.h"

namespace tern::cli {
namespace {

template <class Set>
Set load(Set (*load_by)(const std::string& source, const data::LoadOptions& options),
         const std::vector<data::NamedSet<Set>>& named, std::string source,
         const std::vector<std::string>& known_labels, const models::Log& log) {
  if (source.empty()) {
    std::string report;
    source = data::default_set(named, report);
    log("data: " + report);
  }
  const auto log_or_end = [&](const std::string& line) {
    check_interrupted();
    log(line);
  };
  Set set = load_by(source, {.known_labels = known_labels, .allow_download = true, .log = log_or_end});
  check_interrupted();
  return set;
}

}  // namespace

void LabelledTexts::order_labels(const std::vector<std::string>& order) {
  if (kind == data::LabelKind::kOne) {
    texts.order_labels(order);
  } else if (kind == data::LabelKind::kSeveral) {
    const data::LabelMatch match = data::KnownLabels(order).match(labels);
    TERN_CHECK(match.outputs.size() == labels.size(), texts.name, ": ", match.how);
    const std::vector<float> given = targets.to_vector<float>();
    const size_t outputs = order.size(), columns = labels.size();
    targets = zeros({targets.size(0), static_cast<int64_t>(outputs)});
    for (size_t i = 0; i < given.size(); ++i)
      if (given[i] > 0)
        targets.data<float>()[i / columns * outputs + static_cast<size_t>(match.outputs[i % columns])] = 1;
  }
  labels = order;
}

std::string LabelledTexts::labels_hash() const {
  const auto bytes_of = [](const auto& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  };
  data::Sha256 hash;
  if (kind == data::LabelKind::kOne)
    hash.update(bytes_of(texts.labels));
  else
    hash.update(bytes_of(targets.to_vector<float>()));
  return hash.hex();
}

std::function<void(data::TokenBatch& batch)> LabelledTexts::transform() const {
  if (kind == data::LabelKind::kOne) return nullptr;
  return models::text_targets(targets);
}

std::string label_names_record(std::vector<std::string> names) {
  constexpr size_t kShown = 20;
  std::sort(names.begin(), names.end());
  const std::string all = nlohmann::json(names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return names.size() <= kShown ? all : std::to_string(names.size()) + " labels, sha256 " + data::sha256(all);
}

std::optional<data::LabelKind> kind_of_task(const std::string& task) {
  if (task == "single_label") return data::LabelKind::kOne;
  if (task == "multi_label") return data::LabelKind::kSeveral;
  if (task == "regression") return data::LabelKind::kNumber;
  return std::nullopt;
}

bool is_named_set(const std::string& source) {
  const auto has = [&](const auto& sets) {
    return std::any_of(sets.begin(), sets.end(), [&](const auto& set) { return set.name == source; });
  };
  return has(data::named_text_sets()) || has(data::named_image_sets());
}

LabelledTexts load_texts(const std::string& source, std::optional<data::LabelKind> kind,
                         const std::vector<std::string>& known_labels, const models::Log& log) {
  LabelledTexts all{.kind = kind ? *kind : data::label_kind_of(source)};
  if (source.empty() && all.kind != data::LabelKind::kOne)
    throw UsageError("--data is needed: several labels and numbers are read from a .csv, .tsv or .jsonl file");
  if (all.kind == data::LabelKind::kOne) {
    all.texts = load(data::load_text, data::named_text_sets(), source, known_labels, log);
    all.labels = all.texts.label_names;
  } else {
    data::TargetSet set = all.kind == data::LabelKind::kNumber
                              ? data::read_numbers(source, log)
                              : data::read_multi_label(source, {.known_labels = known_labels, .log = log});
    set.texts.check_texts(log);
    all.texts = std::move(set.texts);
    all.labels = std::move(set.label_names);
    all.targets = set.targets;
  }
  if (all.texts.has_pairs()) log("data: rows are pairs of texts");
  if (all.texts.invalid_utf8 > 0)
    log("data: " + std::to_string(all.texts.invalid_utf8) + " invalid UTF-8 sequences were replaced by U+FFFD");
  return all;
}

data::ImageSet load_image_set(const std::string& source, const std::vector<std::string>& known_labels,
                              const models::Log& log) {
  return load(data::load_images, data::named_image_sets(), source, known_labels, log);
}

std::shared_ptr<const data::TokenSet> tokenize_texts(const data::TextSet& texts, const models::TextPipeline& pipeline,
                                                     int64_t max_length, const models::Log& log) {
  const data::Tokenizer& tokenizer = pipeline.tokenizer();
  data::TokenizeOptions options = data::tokenize_options(tokenizer, max_length);
  options.threads = kernels::num_threads();
  options.log = log;
  if (texts.has_pairs()) options.pair = models::pair_pattern(pipeline.model(), tokenizer);
  const auto encode = [&](std::string_view text, std::vector<int32_t>& ids) {
    check_interrupted();
    tokenizer.encode(text, ids);
  };
  return std::make_shared<const data::TokenSet>(data::tokenize(texts, encode, options));
}

std::shared_ptr<const data::Tokenizer> tokenizer_of(const std::string& given, const std::string& model,
                                                    const models::Log& log) {
  if (!given.empty()) return data::read_tokenizer(data::local_model(given, data::HubUse::kTokenizer, log));
  const std::string folder = models::folder_of_model(model);
  try {
    return data::read_tokenizer(folder);
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    if (folder == model) throw;
    fail(error.what(), "; --tokenizer names another folder");
  }
}

}  // namespace tern::cli
