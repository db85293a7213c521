#include "tern/data/tokenizers/wordpiece.h"

#include <algorithm>

#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr std::string_view kTail = "##";
constexpr const char* kSpecialTokens[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

}  // namespace

WordPiece::WordPiece(std::shared_ptr<const Vocabulary> vocabulary, const WordPieceOptions& options)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      rules_(options.lowercase, options.strip_accents.value_or(options.lowercase), options.split_cjk) {
  TERN_CHECK(options.max_word_chars >= 1, "tokenizer: max_word_chars must be at least 1, got 0");
}

std::optional<std::int32_t> WordPiece::Vocabulary::find(std::string_view wanted) const {
  const auto less = [this](std::int32_t id, std::string_view value) {
    return token(static_cast<std::size_t>(id)) < value;
  };
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), wanted, less);
  if (found == sorted.end() || token(static_cast<std::size_t>(*found)) != wanted) return std::nullopt;
  return *found;
}

std::shared_ptr<const WordPiece::Vocabulary> WordPiece::build(const std::vector<std::string_view>& tokens,
                                                              const std::string& name) {
  TERN_CHECK(!tokens.empty(), name, ": the vocabulary is empty; expected one token a line, [UNK] among them");
  TERN_CHECK(tokens.size() <= std::size_t{1} << 30, name, ": too many tokens: ", tokens.size());
  auto vocabulary = std::make_shared<Vocabulary>();
  vocabulary->starts.reserve(tokens.size() + 1);
  for (const std::string_view token : tokens) {
    vocabulary->starts.push_back(vocabulary->text.size());
    vocabulary->text += token;
  }
  vocabulary->starts.push_back(vocabulary->text.size());
  build_trie(*vocabulary);

  const auto unk = vocabulary->find("[UNK]");
  TERN_CHECK(unk.has_value(), name, ": the vocabulary has no [UNK]; a BERT vocab.txt has the line [UNK] (",
             tokens.size(), " tokens, the first is \"", tokens[0].substr(0, 40), "\")");
  vocabulary->unk = *unk;
  for (const char* special : kSpecialTokens) {
    if (const auto id = vocabulary->find(special)) vocabulary->special.emplace_back(special, *id);
  }
  for (std::size_t c = 0; c < vocabulary->punctuation.size(); ++c) {
    vocabulary->punctuation[c] = vocabulary->find(std::string(1, static_cast<char>(c))).value_or(*unk);
  }
  return vocabulary;
}

void WordPiece::build_trie(Vocabulary& vocabulary) {
  std::vector<std::pair<std::string_view, std::int32_t>> order;
  for (std::size_t id = 0; id + 1 < vocabulary.starts.size(); ++id) {
    order.emplace_back(vocabulary.token(id), static_cast<std::int32_t>(id));
  }
  std::sort(order.begin(), order.end());
  std::vector<std::pair<std::string_view, std::int32_t>> words, tails;
  for (std::size_t i = 0; i < order.size(); ++i) {
    auto [piece, id] = order[i];
    if (i + 1 < order.size() && order[i + 1].first == piece) continue;  // of equal lines the last one counts
    vocabulary.sorted.push_back(id);
    if (piece.find('\0') != std::string_view::npos) continue;  // the cleaner drops NUL, so the piece can never match
    // '#' always is a word by itself, so a piece with "##" cannot begin a word.
    const bool tail = piece.starts_with(kTail);
    if (tail) piece.remove_prefix(kTail.size());
    if (!piece.empty()) (tail ? tails : words).emplace_back(piece, id);
  }
  vocabulary.word_root = vocabulary.trie.add(words);
  vocabulary.tail_root = vocabulary.trie.add(tails);
}

std::size_t WordPiece::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  return encode_some(text, kNoLimit, ids);
}

std::vector<std::int32_t> WordPiece::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  encode(text, ids);
  return ids;
}

std::vector<std::int32_t> WordPiece::encode_special(std::string_view text, std::size_t max_length,
                                                    std::size_t* replaced) const {
  TERN_CHECK(max_length >= 2, "tokenizer: max_length must be at least 2 for [CLS] and [SEP], got ", max_length);
  const std::int32_t sep = sep_id();
  std::vector<std::int32_t> ids{cls_id()};
  const std::size_t dropped = encode_some(text, limits_.cuts_left ? kNoLimit : max_length - 1, ids);
  if (replaced != nullptr) *replaced = dropped;
  if (ids.size() > max_length - 1) {
    if (limits_.cuts_left)
      ids.erase(ids.begin() + 1, ids.end() - static_cast<std::ptrdiff_t>(max_length - 2));
    else
      ids.resize(max_length - 1);
  }
  ids.push_back(sep);
  return ids;
}

// Appends ids until the text ends or ids.size() reaches the limit (which it may exceed by a few).
std::size_t WordPiece::encode_some(std::string_view text, std::size_t limit, std::vector<std::int32_t>& ids) const {
  const char* p = text.data();
  const char* const end = p + text.size();
  WordSplitter splitter(rules_, options_.max_word_chars, [&](std::string_view word, bool too_long) {
    if (too_long) {
      ids.push_back(vocabulary_->unk);
    } else if (ids.size() < limit) {
      encode_word(word, ids);
    }
  });
  while (p < end && ids.size() < limit) {
    const auto byte = static_cast<unsigned char>(*p);
    switch (rules_.kind[byte]) {
      case ByteKind::kSpace:
        ++p;
        break;
      case ByteKind::kPunctuation:
        if (byte == '[') {
          if (const auto* special = special_at(p, end)) {
            ids.push_back(special->second);
            p += special->first.size();
            break;
          }
        }
        ids.push_back(vocabulary_->punctuation[byte]);
        ++p;
        break;
      case ByteKind::kWord:
        if (const char* next = encode_known_word(p, end, ids)) {
          p = next;
          break;
        }
        [[fallthrough]];
      default:
        p = splitter.scan(p, end);
    }
  }
  return splitter.replaced();
}

// Fast path for an ASCII word that is one piece of the vocabulary. Returns the end of the word, otherwise null.
const char* WordPiece::encode_known_word(const char* p, const char* end, std::vector<std::int32_t>& ids) const {
  const PieceTrie::Unit* const units = vocabulary_->trie.units();
  const char* const begin = p;
  PieceTrie::Unit unit;
  std::uint32_t base = vocabulary_->word_root;
  for (; p < end; ++p) {
    const std::uint8_t letter = rules_.letter[static_cast<unsigned char>(*p)];
    if (letter == 0) {
      const ByteKind kind = rules_.kind[static_cast<unsigned char>(*p)];
      if (kind != ByteKind::kSpace && kind != ByteKind::kPunctuation) return nullptr;
      break;
    }
    unit = units[base ^ letter];
    if (unit.label() != letter) return nullptr;
    base = unit.base();
  }
  if (unit.id < 0 || static_cast<std::size_t>(p - begin) > options_.max_word_chars) return nullptr;
  ids.push_back(unit.id);
  return p;
}

// Greedy longest match first; a word without a full match becomes one [UNK].
void WordPiece::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::size_t first = ids.size();
  const char* p = word.data();
  const char* const end = p + word.size();
  std::uint32_t root = vocabulary_->word_root;
  while (p < end) {
    const PieceTrie::Match piece = vocabulary_->trie.longest(root, p, end);
    if (piece.id < 0) {
      ids.resize(first);
      ids.push_back(vocabulary_->unk);
      return;
    }
    ids.push_back(piece.id);
    p = piece.end;
    root = vocabulary_->tail_root;
  }
}

const std::pair<std::string, std::int32_t>* WordPiece::special_at(const char* p, const char* end) const {
  const std::string_view rest(p, static_cast<std::size_t>(end - p));
  for (const auto& special : vocabulary_->special) {
    if (rest.starts_with(special.first)) return &special;
  }
  return nullptr;
}

std::vector<std::string> WordPiece::pieces(std::string_view text) const {
  std::vector<std::string> result;
  for (const std::int32_t id : encode(text)) result.emplace_back(token(id));
  return result;
}

std::vector<std::string> WordPiece::words(std::string_view text) const {
  std::vector<std::string> result;
  WordSplitter splitter(rules_, kNoLimit, [&](std::string_view word, bool) { result.emplace_back(word); });
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const ByteKind kind = rules_.kind[static_cast<unsigned char>(*p)];
    if (kind == ByteKind::kPunctuation) result.emplace_back(1, *p);
    if (kind == ByteKind::kPunctuation || kind == ByteKind::kSpace) {
      ++p;
    } else {
      p = splitter.scan(p, end);
    }
  }
  return result;
}

std::string_view WordPiece::token(std::int32_t id) const {
  TERN_CHECK(id >= 0 && id < vocab_size(), "tokenizer: no token has the id ", id, "; ids are 0 to ", vocab_size() - 1);
  return vocabulary_->token(static_cast<std::size_t>(id));
}

std::optional<std::int32_t> WordPiece::id(std::string_view token) const { return vocabulary_->find(token); }

WordPiece WordPiece::with(const TextLimits& limits) const {
  WordPiece other = *this;
  other.limits_ = limits;
  return other;
}

std::optional<std::int32_t> WordPiece::special(SpecialToken token) const {
  for (const auto& [text, id] : vocabulary_->special)
    if (text == name_of(token)) return id;
  return std::nullopt;
}

std::int32_t WordPiece::required(SpecialToken token) const {
  const std::optional<std::int32_t> id = special(token);
  TERN_CHECK(id, "tokenizer: the vocabulary has no ", name_of(token), " (", vocab_size(),
             " tokens); add it as a line of vocab.txt");
  return *id;
}

}  // namespace tern::data
