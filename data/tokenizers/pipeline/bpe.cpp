// Byte-pair encoding (Sennrich et al. 2016; on bytes: Radford et al. 2019).

#include <algorithm>
#include <array>
#include <string>

#include "tern/data/tokenizers/characters.h"
#include "tern/data/tokenizers/pipeline/models.h"
#include "tern/data/tokenizers/pipeline/normalizers.h"

namespace tern::data {
namespace {

/// Merges by their pair of ids, in one hash table with open addressing.
class MergeTable {
 public:
  struct Merge {
    std::uint64_t pair = kFree;
    std::int32_t rank = kNone;
    std::int32_t id = 0;  // of the merged token
  };
  static constexpr std::int32_t kNone = INT32_MAX;
  static constexpr std::uint64_t kFree = UINT64_MAX;  // no pair, as ids are not negative

  explicit MergeTable(std::size_t count) {
    std::size_t slots = 16;
    while (slots < count * 2) slots *= 2;
    slots_.resize(slots);
  }
  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  /// The merge of a pair; one of rank kNone if there is none.
  const Merge& find(std::int32_t left, std::int32_t right) const {
    const Merge& merge = slots_[place(pair_of(left, right))];
    return merge.pair == kFree ? none_ : merge;
  }
  void set(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t id) {
    const std::uint64_t pair = pair_of(left, right);
    slots_[place(pair)] = {pair, rank, id};
  }

 private:
  std::size_t place(std::uint64_t pair) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15u) >> 29) & mask;
    while (slots_[at].pair != pair && slots_[at].pair != kFree) at = (at + 1) & mask;
    return at;
  }
  std::vector<Merge> slots_;
  Merge none_;
};

/// Where a word may be cut without a change of its tokens: between two characters that no merge ever joins. Without a
/// pre-tokenizer, as in Llama 2, the whole text is one word, whose merges then cross no space mark.
class CutTable {
 public:
  /// Characters below kLimit that are tokens; of these at most kMost, which bounds the table.
  void add_character(char32_t c) {
    if (c >= kLimit || count_ + 1 >= kMost) return;
    if (index_.empty()) index_.resize(kLimit);
    if (index_[c] == 0) index_[c] = static_cast<std::uint16_t>(++count_);
  }
  void finish_characters() { joined_.resize((count_ + 1) * (count_ + 1)); }
  void add_joined(char32_t left, char32_t right) {
    if (left < kLimit && right < kLimit && count_ > 0) joined_[place(left, right)] = true;
  }
  bool empty() const { return count_ == 0; }
  bool may_cut(char32_t left, char32_t right) const {
    return left < kLimit && right < kLimit && index_[left] != 0 && index_[right] != 0 && !joined_[place(left, right)];
  }

 private:
  static constexpr char32_t kLimit = 0x3000;
  static constexpr std::size_t kMost = 2048;
  std::size_t place(char32_t left, char32_t right) const { return index_[left] * (count_ + 1) + index_[right]; }

  std::vector<std::uint16_t> index_;  // 0: not in the table
  std::size_t count_ = 0;
  std::vector<bool> joined_;
};

class BpeModel final : public VocabularyModel {
 public:
  explicit BpeModel(const JsonField& field)
      : VocabularyModel(field.at("vocab")),
        merges_(field.at("merges").size()),
        prefix_(field.text_or("continuing_subword_prefix", "")),
        suffix_(field.text_or("end_of_word_suffix", "")),
        ignore_merges_(field.boolean_or("ignore_merges", false)),
        fuse_unknown_(field.boolean_or("fuse_unk", false)) {
    if (const auto dropout = field.find("dropout"))
      TERN_CHECK(dropout->number() == 0, dropout->where(),
                 ": dropout makes random tokens, which Tern does not have; "
                 "expected null or 0, got ",
                 shortened(dropout->value()));
    if (const auto unknown = field.find("unk_token")) {
      unknown_ = vocabulary_.id(unknown->text());
      if (unknown_ < 0) missing_unknown_ = unknown->where() + ": the token " + shortened(unknown->value());
    }
    if (field.boolean_or("byte_fallback", false))
      fallback_ = ids_of_bytes([this](std::string_view token) { return vocabulary_.id(token); });
    for (std::size_t c = 0; c < ascii_ids_.size(); ++c)
      ascii_ids_[c] = vocabulary_.id(std::string(1, static_cast<char>(c)));
    if (prefix_.empty() && suffix_.empty() && !ignore_merges_) add_characters();
    read_merges(field.at("merges"));
    find_whole_words();
  }

  bool take_bytes() override {
    if (!prefix_.empty() || !suffix_.empty()) return false;
    const auto known = [this](std::size_t byte) {
      return vocabulary_.id(byte_character(static_cast<unsigned char>(byte)));
    };
    // Bytes that no token stands for are dropped, unless a rule for unknown characters says otherwise.
    for (std::size_t byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = known(byte);
      if (byte_ids_[byte] < 0 && (unknown_ >= 0 || !missing_unknown_.empty() || !fallback_.empty())) return false;
    }
    StringMap mapped(whole_.size());
    std::string bytes;
    for (std::size_t i = 0; i < whole_.size(); ++i)
      if (to_bytes(whole_.key(i), bytes)) mapped.set(bytes, whole_.number(i));
    whole_ = std::move(mapped);
    bytes_ = true;
    return true;
  }

  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override {
    if (word.size() <= kLongWord || cuts_.empty() || bytes_) return encode_part(word, ids);
    std::size_t start = 0;
    const char* const begin = word.data();
    const char* p = begin;
    char32_t before = unicode::next_code_point(p, begin + word.size());
    while (p < begin + word.size()) {
      const auto at = static_cast<std::size_t>(p - begin);
      const char32_t c = unicode::next_code_point(p, begin + word.size());
      if (cuts_.may_cut(before, c)) {
        encode_part(word.substr(start, at - start), ids);
        start = at;
      }
      before = c;
    }
    encode_part(word.substr(start), ids);
  }

 private:
  static constexpr std::size_t kLongWord = 48;  // longer ones are cut, and merged with a queue

  void encode_part(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (const std::int32_t whole = whole_.find(word); whole >= 0) {
      ids.push_back(whole);
      return;
    }
    const std::size_t first = ids.size();
    append_symbols(word, ids, missing_unknown_);
    merge(ids, first);
  }

  void add_characters() {
    for (const auto& [id, entry] : vocabulary_.by_id()) {
      const std::string_view token = vocabulary_.entry(entry);
      const char* p = token.data();
      if (token.empty()) continue;
      const char32_t c = unicode::next_code_point(p, token.data() + token.size());
      if (p == token.data() + token.size()) cuts_.add_character(c);
    }
    cuts_.finish_characters();
  }

  void read_merges(const JsonField& list) {
    std::int32_t rank = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const JsonField merge = list[i];
      std::string left, right;
      if (merge.value().is_string()) {
        const std::string& line = merge.text();
        if (line.starts_with("#version")) continue;
        const std::size_t space = line.find(' ');
        if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
          merge.reject("two tokens with one space between them");
        left = line.substr(0, space);
        right = line.substr(space + 1);
      } else {
        if (merge.size() != 2) merge.reject("two tokens");
        left = merge[0].text();
        right = merge[1].text();
      }
      add_merge(merge, left, right, rank++);
    }
  }

  void add_merge(const JsonField& merge, const std::string& left, const std::string& right, std::int32_t rank) {
    const auto known = [&](std::string_view token) {
      const std::int32_t found = vocabulary_.id(token);
      TERN_CHECK(found >= 0, merge.where(), ": the vocabulary lacks \"", detail::printable(token), "\" of the merge ",
                 shortened(merge.value()), "; vocab and merges must belong together");
      return found;
    };
    const std::int32_t left_id = known(left), right_id = known(right);
    TERN_CHECK(right.size() >= prefix_.size(), merge.where(), ": the second token of the merge ",
               shortened(merge.value()), " must begin with the continuing_subword_prefix");
    merges_.set(left_id, right_id, rank, known(left + right.substr(prefix_.size())));
    if (!cuts_.empty() && !left.empty() && !right.empty()) {
      const char* p = right.data();
      cuts_.add_joined(unicode::last_code_point(left), unicode::next_code_point(p, p + right.size()));
    }
    // Such a merge adds no text, so a queued merge may be replaced by another one with the same result.
    if (right.size() == prefix_.size()) always_queue_ = true;
  }

  /// Collects the words that end up as one token, so that most words of a text need one look-up.
  void find_whole_words() {
    StringMap whole(vocabulary_.size());
    std::vector<std::int32_t> ids;
    for (const auto& [id, entry] : vocabulary_.by_id()) {
      const std::string_view token = vocabulary_.entry(entry);
      if (token.empty()) continue;
      if (!ignore_merges_) {
        if (token.size() > 256) continue;  // spaces and such; encode() computes them when they occur
        ids.clear();
        append_symbols(token, ids, "");
        merge(ids, 0);
        if (ids.size() != 1 || ids[0] != id) continue;
      }
      whole.set(token, id);
    }
    whole_ = std::move(whole);
  }

  /// The bytes that a token of byte characters stands for; false for other tokens.
  static bool to_bytes(std::string_view token, std::string& bytes) {
    bytes.clear();
    for (const char *p = token.data(), *end = p + token.size(); p < end;) {
      const int byte = byte_of_character(unicode::next_code_point(p, end));
      if (byte < 0) return false;
      bytes += static_cast<char>(byte);
    }
    return true;
  }

  /// Appends the tokens of single characters. `missing`, if not empty, names the unknown token that the vocabulary
  /// lacks: an unknown character is then an Error.
  void append_symbols(std::string_view word, std::vector<std::int32_t>& ids, const std::string& missing) const {
    if (bytes_) {
      for (const char c : word)
        if (const std::int32_t id = byte_ids_[static_cast<unsigned char>(c)]; id >= 0) ids.push_back(id);
      return;
    }
    std::string symbol;
    bool unknown = false;  // an unknown token is due, which waits for others to join it
    const char* const begin = word.data();
    for (const char *p = begin, *end = begin + word.size(); p < end;) {
      const char* const start = p;
      unicode::next_code_point(p, end);
      std::string_view name(start, static_cast<std::size_t>(p - start));
      if ((start != begin && !prefix_.empty()) || (p == end && !suffix_.empty())) {
        symbol = start != begin ? prefix_ : "";
        symbol += name;
        if (p == end) symbol += suffix_;
        name = symbol;
      }
      const bool plain = name.size() == 1 && static_cast<unsigned char>(name[0]) < 0x80;
      if (const std::int32_t id = plain ? ascii_ids_[static_cast<unsigned char>(name[0])] : vocabulary_.id(name);
          id >= 0) {
        if (unknown) ids.push_back(unknown_);
        unknown = false;
        ids.push_back(id);
      } else if (has_fallback(name)) {
        for (const char c : name) ids.push_back(fallback_[static_cast<unsigned char>(c)]);
      } else if (unknown_ >= 0) {
        if (unknown && !fuse_unknown_) ids.push_back(unknown_);
        unknown = true;
      } else {
        TERN_CHECK(missing.empty(), missing, " is not in the vocabulary, and a text has an unknown character, \"",
                   detail::printable(name), "\"; add the token, or set unk_token to null");
      }
    }
    if (unknown) ids.push_back(unknown_);
  }

  bool has_fallback(std::string_view name) const {
    return !fallback_.empty() && std::all_of(name.begin(), name.end(),
                                             [this](char c) { return fallback_[static_cast<unsigned char>(c)] >= 0; });
  }

  /// Applies the merges to the ids from `first` on: always the one of least rank, of equal ones the leftmost.
  void merge(std::vector<std::int32_t>& ids, std::size_t first) const {
    const std::size_t count = ids.size() - first;
    if (count < 2) return;
    if (count > kLongWord || always_queue_) return merge_by_queue(ids, first);
    std::array<const MergeTable::Merge*, kLongWord> pairs;  // pairs[i] is the merge of symbols i and i + 1
    std::int32_t* const symbols = ids.data() + first;
    std::size_t size = count;
    for (std::size_t i = 0; i + 1 < size; ++i) pairs[i] = &merges_.find(symbols[i], symbols[i + 1]);
    for (;;) {
      std::size_t best = 0;
      std::int32_t rank = MergeTable::kNone;
      for (std::size_t i = 0; i + 1 < size; ++i)
        if (pairs[i]->rank < rank) {
          rank = pairs[i]->rank;
          best = i;
        }
      if (rank == MergeTable::kNone) break;
      symbols[best] = pairs[best]->id;
      --size;
      for (std::size_t i = best + 1; i < size; ++i) {
        symbols[i] = symbols[i + 1];
        pairs[i - 1] = pairs[i];
      }
      // The merged symbol has new neighbours on both sides, so both of its pairs are looked up again.
      if (best + 1 < size) pairs[best] = &merges_.find(symbols[best], symbols[best + 1]);
      if (best > 0) pairs[best - 1] = &merges_.find(symbols[best - 1], symbols[best]);
    }
    ids.resize(first + size);
  }

  struct QueueSymbol {
    std::int32_t id, previous, next;  // neighbours by index, -1 for none; a removed symbol has the id -1
  };
  struct QueueEntry {
    std::uint64_t order;  // rank << 32 | index of the left symbol: the least is merged first
    std::int32_t id;      // of the merged token
    bool operator<(const QueueEntry& other) const { return order > other.order; }
  };

  void merge_by_queue(std::vector<std::int32_t>& ids, std::size_t first) const {
    thread_local std::vector<QueueSymbol> symbols;
    thread_local std::vector<QueueEntry> queue;
    const auto count = static_cast<std::int32_t>(ids.size() - first);
    symbols.clear();
    queue.clear();
    for (std::int32_t i = 0; i < count; ++i)
      symbols.push_back({ids[first + static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
    const auto symbol = [](std::int32_t i) -> QueueSymbol& { return symbols[static_cast<std::size_t>(i)]; };
    // Adds the merge of a symbol and the next one; whether there is one.
    const auto offer = [&](std::int32_t at) {
      if (at < 0 || symbol(at).next < 0) return false;
      const MergeTable::Merge& found = merges_.find(symbol(at).id, symbol(symbol(at).next).id);
      if (found.rank == MergeTable::kNone) return false;
      queue.push_back({static_cast<std::uint64_t>(found.rank) << 32 | static_cast<std::uint32_t>(at), found.id});
      return true;
    };
    for (std::int32_t i = 0; i + 1 < count; ++i) offer(i);
    std::make_heap(queue.begin(), queue.end());
    while (!queue.empty()) {
      const QueueEntry top = queue.front();
      std::pop_heap(queue.begin(), queue.end());
      queue.pop_back();
      const auto at = static_cast<std::int32_t>(top.order & 0xFFFFFFFFu);
      QueueSymbol& left = symbol(at);
      if (left.id < 0 || left.next < 0) continue;
      QueueSymbol& right = symbol(left.next);
      const MergeTable::Merge& now = merges_.find(left.id, right.id);
      if (now.rank == MergeTable::kNone || now.id != top.id) continue;  // one of the two was merged meanwhile
      left.id = top.id;
      right.id = -1;
      left.next = right.next;
      if (left.next >= 0) symbol(left.next).previous = at;
      if (offer(left.previous)) std::push_heap(queue.begin(), queue.end());
      if (offer(at)) std::push_heap(queue.begin(), queue.end());
    }
    ids.resize(first);
    for (const QueueSymbol& left : symbols)
      if (left.id >= 0) ids.push_back(left.id);
  }

  MergeTable merges_;
  CutTable cuts_;
  std::string prefix_, suffix_;
  bool ignore_merges_, fuse_unknown_;
  bool always_queue_ = false;
  std::int32_t unknown_ = -1;
  std::string missing_unknown_;         // place and name of an unk_token that the vocabulary lacks
  std::vector<std::int32_t> fallback_;  // ids of "<0x00>" to "<0xFF>"; empty without byte_fallback
  StringMap whole_;                     // words that are one token
  bool bytes_ = false;                  // words are bytes
  std::array<std::int32_t, 256> byte_ids_{};
  std::array<std::int32_t, 128> ascii_ids_{};  // tokens of one ASCII character
};

}  // namespace

std::unique_ptr<TokenModel> read_bpe(const JsonField& field) { return std::make_unique<BpeModel>(field); }

}  // namespace tern::data
