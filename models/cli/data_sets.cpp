#include "tern/models/cli/data_sets.h"

#include "tern/kernels/kernel.h"

namespace tern::cli {
namespace {

template <class Set>
Set load(Set (*load_by)(const std::string& source, const data::LoadOptions& options),
         const std::vector<data::NamedSet<Set>>& named, std::string source,
         const std::vector<std::string>& known_labels, const Log& log) {
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

data::TextSet load_texts(const std::string& source, const std::vector<std::string>& known_labels, const Log& log) {
  data::TextSet texts = load(data::load_text, data::named_text_sets(), source, known_labels, log);
  if (texts.invalid_utf8 > 0)
    log("data: " + std::to_string(texts.invalid_utf8) + " invalid UTF-8 sequences were replaced by U+FFFD");
  return texts;
}

data::ImageSet load_image_set(const std::string& source, const std::vector<std::string>& known_labels, const Log& log) {
  return load(data::load_images, data::named_image_sets(), source, known_labels, log);
}

std::shared_ptr<const data::TokenSet> tokenize_texts(const data::TextSet& texts, const data::WordPiece& tokenizer,
                                                     int64_t max_length, const Log& log) {
  const data::TokenizeOptions options{.max_length = max_length,
                                      .first_id = tokenizer.cls_id(),
                                      .last_id = tokenizer.sep_id(),
                                      .threads = kernels::num_threads(),
                                      .tokenizer_key = tokenizer.content_hash(),
                                      .log = log};
  const auto encode = [&](std::string_view text, std::vector<int32_t>& ids) {
    check_interrupted();
    tokenizer.encode(text, ids);
  };
  return std::make_shared<const data::TokenSet>(data::tokenize(texts, encode, options));
}

}  // namespace tern::cli
