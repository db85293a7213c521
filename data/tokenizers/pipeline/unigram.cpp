// Unigram language model (Kudo 2018): the segmentation of greatest probability.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "tern/data/tokenizers/characters.h"
#include "tern/data/tokenizers/piece_trie.h"
#include "tern/data/tokenizers/pipeline/models.h"

namespace tern::data {
namespace {

constexpr double kUnknownPenalty = 10;

double power_of_ten(int exponent) {
  char text[16];
  const int length = std::snprintf(text, sizeof text, "1e%d", exponent);
  double power = 0;
  std::from_chars(text, text + length, power);
  return power;
}

/// The score as the library's JSON parser reads it: the digits as an integer, rounded, and then divided by a power of
/// ten, rounded again. The last bit decides between segmentations of equal probability.
double score_of_library(double score) {
  char text[40];
  const char* const end = std::to_chars(text, text + sizeof text, std::abs(score), std::chars_format::scientific).ptr;
  std::uint64_t digits = 0;
  int exponent = 0;
  const char* p = text;
  for (bool fraction = false; p < end && *p != 'e'; ++p) {
    if (*p == '.') {
      fraction = true;
      continue;
    }
    digits = digits * 10 + static_cast<std::uint64_t>(*p - '0');
    exponent -= fraction;
  }
  int power = 0;
  if (p < end) std::from_chars(p[1] == '+' ? p + 2 : p + 1, end, power);
  exponent += power;
  auto value = static_cast<double>(digits);
  if (exponent < -308) {
    value /= 1e308;
    exponent += 308;
  }
  value = exponent < 0 ? value / power_of_ten(-exponent) : value * power_of_ten(exponent);
  return score < 0 ? -value : value;
}

class UnigramModel final : public TokenModel {
 public:
  explicit UnigramModel(const JsonField& field) : where_(field.where()) {
    const JsonField pieces = field.at("vocab");
    const std::size_t count = pieces.size();
    TERN_CHECK(count < INT32_MAX, pieces.where(), ": too many tokens");
    for (std::size_t i = 0; i < count; ++i) {
      const JsonField piece = pieces[i];
      if (piece.size() != 2) piece.reject("[token, score]");
      const std::string& token = piece[0].text();
      TERN_CHECK(token.find('\0') == std::string::npos, piece.where(),
                 ": the token contains the character U+0000, which Tern's Unigram cannot match");
      ids_.set(token, static_cast<std::int32_t>(i));
      tokens_.push_back(token);
      scores_.push_back(score_of_library(piece[1].number()));
      least_ = std::min(least_, scores_.back());
    }
    if (const auto unknown = field.find("unk_id")) {
      if (count == 0) unknown->reject("no unk_id, as the vocabulary is empty");
      unknown_ = static_cast<std::int32_t>(unknown->integer(0, static_cast<std::int64_t>(count) - 1));
    }
    if (field.boolean_or("byte_fallback", false))
      bytes_ = ids_of_bytes([this](std::string_view token) { return ids_.find(token); });
    std::vector<std::pair<std::string_view, std::int32_t>> order;
    for (std::size_t i = 0; i < ids_.size(); ++i)
      if (!ids_.key(i).empty()) order.emplace_back(ids_.key(i), ids_.number(i));
    std::sort(order.begin(), order.end());
    root_ = trie_.add(order);
  }

  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override {
    thread_local std::vector<Node> nodes;
    find_best(word, nodes);
    // The path is found from the end; neighbouring unknown characters become one token.
    const std::size_t first = ids.size();
    std::size_t unknown_end = 0;
    for (std::size_t end = word.size(); end > 0;) {
      const Node& node = nodes[end];
      const std::size_t begin = node.begin;
      if (node.id == unknown_) {
        if (unknown_end == 0) unknown_end = end;
        if (begin == 0) push_unknown(word.substr(0, unknown_end), ids);
      } else {
        if (unknown_end != 0) push_unknown(word.substr(end, unknown_end - end), ids);
        unknown_end = 0;
        ids.push_back(node.id);
      }
      end = begin;
    }
    std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
  }

  std::int32_t id(std::string_view token) const override { return ids_.find(token); }
  std::optional<std::string_view> token(std::int32_t id) const override {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size()) return std::nullopt;
    return tokens_[static_cast<std::size_t>(id)];
  }
  std::size_t size() const override { return tokens_.size(); }
  std::int64_t bound() const override { return static_cast<std::int64_t>(tokens_.size()); }

 private:
  struct Node {
    double score = 0;
    std::size_t begin = kNoBegin;
    std::int32_t id = 0;
  };
  static constexpr std::size_t kNoBegin = std::numeric_limits<std::size_t>::max();

  /// Fills nodes[end] with the last token of the best path to `end`; of equal ones the first that is found.
  void find_best(std::string_view word, std::vector<Node>& nodes) const {
    nodes.assign(word.size() + 1, Node());
    const PieceTrie::Unit* const units = trie_.units();
    const char* const text = word.data();
    const char* const end = text + word.size();
    for (const char* p = text; p < end;) {
      const auto begin = static_cast<std::size_t>(p - text);
      const double score = nodes[begin].score;
      const char* after = p;
      unicode::next_code_point(after, end);
      bool single = false;
      std::uint32_t base = root_;
      for (const char* q = p; q < end;) {
        const auto byte = static_cast<std::uint8_t>(*q);
        const PieceTrie::Unit unit = units[base ^ byte];
        if (unit.label() != byte || byte == 0) break;
        ++q;
        if (unit.id >= 0) {
          improve(nodes[static_cast<std::size_t>(q - text)], begin, unit.id,
                  scores_[static_cast<std::size_t>(unit.id)] + score);
          single = single || q == after;
        }
        base = unit.base();
      }
      if (!single) {
        Node& node = nodes[static_cast<std::size_t>(after - text)];
        const double unknown_score = least_ - kUnknownPenalty + score;
        if (node.begin == kNoBegin || unknown_score > node.score) {
          TERN_CHECK(unknown_ >= 0, where_, ": a text has a character that no token covers, \"",
                     detail::printable(std::string_view(p, static_cast<std::size_t>(after - p))),
                     "\", and the model has no unk_id");
          improve(node, begin, unknown_, unknown_score);
        }
      }
      p = after;
    }
  }

  static void improve(Node& node, std::size_t begin, std::int32_t id, double score) {
    if (node.begin != kNoBegin && !(score > node.score)) return;
    node = {score, begin, id};
  }

  /// Appends the ids of unknown text, in reverse: the token of that text, its bytes, or the unknown token.
  void push_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (const std::int32_t found = ids_.find(text); found >= 0) {
      ids.push_back(found);
      return;
    }
    const auto known = [this](char byte) { return bytes_[static_cast<unsigned char>(byte)] >= 0; };
    if (!bytes_.empty() && std::all_of(text.begin(), text.end(), known)) {
      for (auto byte = text.rbegin(); byte != text.rend(); ++byte)
        ids.push_back(bytes_[static_cast<unsigned char>(*byte)]);
      return;
    }
    ids.push_back(unknown_);
  }

  std::string where_;
  StringMap ids_;
  std::vector<std::string> tokens_;
  std::vector<double> scores_;
  double least_ = std::numeric_limits<double>::infinity();
  std::int32_t unknown_ = -1;
  std::vector<std::int32_t> bytes_;  // ids of "<0x00>" to "<0xFF>"; empty without byte_fallback
  PieceTrie trie_;
  std::uint32_t root_ = 0;
};

}  // namespace

std::unique_ptr<TokenModel> read_unigram(const JsonField& field) { return std::make_unique<UnigramModel>(field); }

}  // namespace tern::data
