#include "tern/data/tokenizers/pipeline/post_processors.h"

#include <algorithm>
#include <string>

namespace tern::data {
namespace {

constexpr std::int64_t kMaxLength = std::int64_t{1} << 40;
constexpr std::int64_t kMaxPadding = 1 << 20;  // a file's claim alone must not allocate more
constexpr std::int64_t kMaxType = 1 << 20;

/// Without token types.
PairPattern roberta_pair(std::int32_t cls, std::int32_t sep) {
  using enum PairPattern::Source;
  return {{{kSpecial, {cls}}, {kFirst}, {kSpecial, {sep, sep}}, {kSecond}, {kSpecial, {sep}}}};
}

/// The ids of a piece of a template, {"SpecialToken": {"id": ...}}.
std::vector<std::int32_t> special_ids(const JsonField& token, const JsonField& special) {
  const JsonField ids = special.at(token.at("id").text().c_str()).at("ids");
  std::vector<std::int32_t> found;
  for (std::size_t k = 0; k < ids.size(); ++k) found.push_back(ids[k].token_id());
  return found;
}

PairPattern read_pair(const JsonField& pieces, const JsonField& special) {
  using Source = PairPattern::Source;
  PairPattern pattern;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto sequence = pieces[i].find("Sequence");
    const JsonField piece = sequence ? *sequence : pieces[i].at("SpecialToken");
    PairPattern::Part part{.type = static_cast<std::int32_t>(piece.at("type_id").integer(0, kMaxType))};
    if (sequence) {
      const JsonField id = piece.at("id");
      if (id.text() != "A" && id.text() != "B") id.reject("the sequence A or B");
      part.source = id.text() == "A" ? Source::kFirst : Source::kSecond;
    } else {
      part.ids = special_ids(piece, special);
    }
    pattern.parts.push_back(std::move(part));
  }
  // A file's claim alone must not multiply a text.
  for (const Source source : {Source::kFirst, Source::kSecond})
    TERN_CHECK(std::ranges::count(pattern.parts, source, &PairPattern::Part::source) <= 1, pieces.where(),
               ": the template repeats a sequence; Tern supports each once");
  return pattern;
}

}  // namespace

PostProcessor::PostProcessor(const JsonField& field) { read(field); }

void PostProcessor::read(const JsonField& field) {
  const std::string& type = field.at("type").text();
  if (type == "Sequence") {
    const JsonField parts = field.at("processors");
    for (std::size_t i = 0; i < parts.size(); ++i) read(parts[i]);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto id_of = [&](const char* key) {
      const JsonField token = field.at(key);
      if (token.size() != 2) token.reject("[token, id]");
      return token[1].token_id();
    };
    const std::int32_t cls = id_of("cls"), sep = id_of("sep");
    steps_.push_back({{false, {cls}}, {true, {}}, {false, {sep}}});
    pairs_.push_back(type == "BertProcessing" ? bert_pair(cls, sep) : roberta_pair(cls, sep));
    added_ += 2;
  } else if (type == "TemplateProcessing") {
    read_template(field);
  } else if (type != "ByteLevel") {  // which changes only offsets
    fail(field.where(), ": Tern does not have the post-processor ", shortened(field.at("type").value()));
  }
}

void PostProcessor::read_template(const JsonField& field) {
  const JsonField single = field.at("single"), special = field.at("special_tokens");
  std::vector<Part> step;
  for (std::size_t i = 0; i < single.size(); ++i) {
    const JsonField piece = single[i];
    if (const auto sequence = piece.find("Sequence")) {
      if (sequence->at("id").text() != "A") sequence->reject("the sequence A, as there is only one");
      step.push_back({true, {}});
      continue;
    }
    Part part{false, special_ids(piece.at("SpecialToken"), special)};
    added_ += part.ids.size();
    step.push_back(std::move(part));
  }
  // Templates in a row that repeat the sequence would double it each time.
  const auto repeats = std::count_if(step.begin(), step.end(), [](const Part& part) { return part.sequence; });
  TERN_CHECK(repeats <= 1, single.where(), ": the template repeats the sequence ", repeats,
             " times; Tern supports it once");
  steps_.push_back(std::move(step));
  const auto pair = field.find("pair");
  pairs_.push_back(pair ? read_pair(*pair, special) : PairPattern());
}

void PostProcessor::apply(std::vector<std::int32_t>& ids, bool special) const {
  std::vector<std::int32_t> out;
  for (const std::vector<Part>& step : steps_) {
    out.clear();
    for (const Part& part : step) {
      if (part.sequence) out.insert(out.end(), ids.begin(), ids.end());
      if (special) out.insert(out.end(), part.ids.begin(), part.ids.end());
    }
    ids.swap(out);
  }
}

TokensAround PostProcessor::around(const std::string& name) const {
  constexpr std::int32_t kSequence = -1;
  std::vector<std::int32_t> ids = {kSequence};
  apply(ids, true);
  const auto place = std::ranges::find(ids, kSequence);
  TERN_CHECK(place != ids.end(), name, ": the post-processor's template leaves out the text");
  return {{ids.begin(), place}, {place + 1, ids.end()}};
}

PairPattern PostProcessor::pair(const std::string& name) const {
  using Source = PairPattern::Source;
  if (pairs_.empty()) return {{{Source::kFirst}, {Source::kSecond, {}, 1}}};
  TERN_CHECK(pairs_.size() == 1, name, ": Tern joins two texts by one post-processor, here are ", pairs_.size());
  for (const Source source : {Source::kFirst, Source::kSecond})
    TERN_CHECK(std::ranges::count(pairs_[0].parts, source, &PairPattern::Part::source) == 1, name,
               ": the post-processor has no template for a pair of texts with A and B");
  return pairs_[0];
}

Truncation::Truncation(const JsonField& field)
    : max_length(static_cast<std::size_t>(field.at("max_length").integer(0, kMaxLength))), left(false) {
  if (const auto direction = field.find("direction")) {
    left = direction->text() == "Left";
    if (!left && direction->text() != "Right") direction->reject("Left or Right");
  }
  const std::string& strategy = field.at("strategy").text();
  if (strategy != "LongestFirst" && strategy != "OnlyFirst")
    field.at("strategy").reject("LongestFirst or OnlyFirst, as there is one sequence");
  // The stride is the overlap with the parts that are cut off, which are not returned.
  const std::int64_t stride = field.at("stride").integer(0, kMaxLength);
  TERN_CHECK(max_length == 0 || static_cast<std::size_t>(stride) < max_length, field.where(), ": the stride ", stride,
             " must be smaller than max_length, ", max_length);
}

void Truncation::cut(std::vector<std::int32_t>& ids, std::size_t length, bool left) {
  if (ids.size() <= length) return;
  if (left) {
    ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(length));
  } else {
    ids.resize(length);
  }
}

Padding::Padding(const JsonField& field) : id(field.at("pad_id").token_id()) {
  const JsonField strategy = field.at("strategy");
  if (strategy.value().is_object()) {
    fixed = static_cast<std::size_t>(strategy.at("Fixed").integer(0, kMaxPadding));
  } else if (strategy.text() != "BatchLongest") {
    strategy.reject("BatchLongest or {\"Fixed\": length}");
  }
  if (const auto given = field.find("pad_to_multiple_of"))
    multiple = static_cast<std::size_t>(given->integer(0, kMaxPadding));
  const JsonField direction = field.at("direction");
  left = direction.text() == "Left";
  if (!left && direction.text() != "Right") direction.reject("Left or Right");
}

void Padding::apply(std::vector<std::int32_t>& ids) const {
  std::size_t length = fixed > 0 ? fixed : ids.size();
  if (multiple > 0) length = (length + multiple - 1) / multiple * multiple;
  if (ids.size() >= length) return;
  ids.insert(left ? ids.begin() : ids.end(), length - ids.size(), id);
}

}  // namespace tern::data
