#include "tern/data/tokenizers/pipeline/added_tokens.h"

#include <algorithm>

#include "tern/data/tokenizers/characters.h"

namespace tern::data {
namespace {

using unicode::character;

bool is_word_at_start(std::string_view text) {
  const char* p = text.data();
  return !text.empty() && character(unicode::next_code_point(p, p + text.size())).has(unicode::kWordCharacter);
}

bool is_word_at_end(std::string_view text) {
  return !text.empty() && character(unicode::last_code_point(text)).has(unicode::kWordCharacter);
}

std::size_t white_space_at_start(std::string_view text) {
  const char *p = text.data(), *const end = p + text.size();
  const char* done = p;
  while (p < end && character(unicode::next_code_point(p, end)).has(unicode::kWhiteSpace)) done = p;
  return static_cast<std::size_t>(done - text.data());
}

/// Where the white space at the end of a text begins.
std::size_t white_space_at_end(std::string_view text) {
  while (!text.empty() && character(unicode::last_code_point(text)).has(unicode::kWhiteSpace)) {
    while ((static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.remove_suffix(1);
    text.remove_suffix(1);
  }
  return text.size();
}

}  // namespace

void TextFinder::build(std::vector<std::pair<std::string, std::uint32_t>> texts, const std::string& where) {
  if (texts.empty()) return;
  std::sort(texts.begin(), texts.end());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    TERN_CHECK(!texts[i].first.empty(), where, ": an added token is empty after normalization");
    TERN_CHECK(i == 0 || texts[i].first != texts[i - 1].first, where, ": two added tokens are both \"",
               detail::printable(texts[i].first), "\" after normalization; the text would fit both");
    first_[static_cast<unsigned char>(texts[i].first[0])] = true;
  }
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, texts.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (texts[begin].first.size() == depth) nodes_[node].number = texts[begin++].second;
    nodes_[node].first_edge = static_cast<std::uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = texts[begin].first[depth];
      std::size_t next = begin;
      while (next < end && texts[next].first[depth] == byte) ++next;
      edges_.emplace_back(static_cast<std::uint8_t>(byte), static_cast<std::uint32_t>(nodes_.size()));
      nodes_.emplace_back();
      ranges.push_back({begin, next, depth + 1});
      ++nodes_[node].edges;
      begin = next;
    }
  }
}

std::pair<std::uint32_t, std::size_t> TextFinder::longest_at(std::string_view text, std::size_t at) const {
  std::pair<std::uint32_t, std::size_t> found{0, 0};
  const Node* node = &nodes_[0];
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto begin = edges_.begin() + node->first_edge, end = begin + node->edges;
    const auto byte = static_cast<std::uint8_t>(text[i]);
    const auto edge = std::lower_bound(begin, end, byte, [](const auto& a, std::uint8_t b) { return a.first < b; });
    if (edge == end || edge->first != byte) break;
    node = &nodes_[edge->second];
    if (node->number >= 0) found = {static_cast<std::uint32_t>(node->number), i + 1 - at};
  }
  return found;
}

void AddedTokens::read(const JsonField& field, const TokenModel& model, const Normalizer* normalizer) {
  std::int64_t next_id = static_cast<std::int64_t>(model.size());
  StringMap seen;
  for (std::size_t i = 0; i < field.size(); ++i) {
    const JsonField item = field[i];
    AddedToken token{.content = item.at("content").text(),
                     .id = item.at("id").token_id(),
                     .single_word = item.at("single_word").boolean(),
                     .lstrip = item.at("lstrip").boolean(),
                     .rstrip = item.at("rstrip").boolean(),
                     .normalized = item.at("normalized").boolean(),
                     .special = item.at("special").boolean()};
    if (token.content.empty()) continue;
    TERN_CHECK(seen.find(token.content) < 0, item.where(), ": the token \"", detail::printable(token.content),
               "\" is added twice; remove one of both");
    seen.set(token.content, 1);
    // Hugging Face's library gives a token that the model lacks the next free number, whatever the file says.
    const std::int32_t known = model.id(token.content);
    const std::int64_t id = known >= 0 ? known : next_id++;
    TERN_CHECK(id == token.id, item.where(), ": the added token \"", detail::printable(token.content), "\" has the id ",
               token.id, ", but by the vocabulary its id is ", id,
               "; the ids of added tokens that the model lacks must follow the model's, in the order of the file");
    TERN_CHECK(known >= 0 || !model.token(token.id), item.where(), ": the id ", token.id, " of the added token \"",
               detail::printable(token.content), "\" is that of another token of the model");
    tokens_.push_back(std::move(token));
  }
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  std::vector<std::pair<std::string, std::uint32_t>> plain, normalized;
  for (std::uint32_t i = 0; i < tokens_.size(); ++i) {
    std::string text = tokens_[i].content;
    std::size_t origin = 0;
    if (tokens_[i].normalized && normalizer != nullptr) normalizer->apply(text, origin);
    tokens_[i].decoded = text;
    if (tokens_[i].special) special_.set(tokens_[i].content, 1);
    (tokens_[i].normalized ? normalized : plain).emplace_back(std::move(text), i);
  }
  plain_.build(std::move(plain), field.where());
  normalized_.build(std::move(normalized), field.where());
}

void AddedTokens::split(std::string_view text, bool normalized, std::vector<Section>& sections) const {
  const TextFinder& finder = normalized ? normalized_ : plain_;
  std::size_t done = 0;
  for (std::size_t at = 0; !finder.empty() && (at = finder.skip(text, at)) < text.size();) {
    const auto [number, length] = finder.longest_at(text, at);
    if (length == 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[number];
    std::size_t begin = at, end = at + length;
    at = end;  // a token that is not taken hides others within it all the same
    if (token.single_word && (is_word_at_end(text.substr(0, begin)) || is_word_at_start(text.substr(end)))) continue;
    // The token before may have taken this white space.
    if (token.lstrip) begin = std::max(white_space_at_end(text.substr(0, begin)), done);
    if (token.rstrip) end += white_space_at_start(text.substr(end));
    if (done < begin) sections.push_back({done, begin, -1});
    if (begin < end) sections.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) sections.push_back({done, text.size(), -1});
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto found = std::lower_bound(tokens_.begin(), tokens_.end(), id,
                                      [](const AddedToken& token, std::int32_t value) { return token.id < value; });
  return found != tokens_.end() && found->id == id ? &*found : nullptr;
}

std::optional<std::int32_t> AddedTokens::id(std::string_view content) const {
  for (const AddedToken& token : tokens_)
    if (token.content == content) return token.id;
  return std::nullopt;
}

}  // namespace tern::data
