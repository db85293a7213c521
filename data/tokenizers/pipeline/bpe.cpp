// Byte-pair encoding (Sennrich et al. 2016; on bytes: Radford et al. 2019).

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "tern/data/tokenizers/characters.h"
#include "tern/data/tokenizers/pipeline/bpe_merges.h"
#include "tern/data/tokenizers/pipeline/bpe_path.h"
#include "tern/data/tokenizers/pipeline/models.h"
#include "tern/data/tokenizers/pipeline/normalizers.h"

namespace tern::data {
namespace {

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
    read_merges(field.at("merges"));
    find_whole_words();
    has_path_ = can_have_path();
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
    if (word.size() <= kLongWord || bytes_ || !has_path_) return encode_part(word, ids);
    std::call_once(path_made_, [this] { make_path(); });
    while (!word.empty()) {
      word.remove_prefix(path_->append(word, ids));
      const std::size_t unknown = unknown_at_start(word);
      append_symbols(word.substr(0, unknown), ids, missing_unknown_);
      word.remove_prefix(unknown);
    }
  }

 private:
  static constexpr std::size_t kLongWord = 48;  // of longer ones the path is searched, or they are merged with a queue

  void encode_part(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (const std::int32_t whole = whole_.find(word); whole >= 0) {
      ids.push_back(whole);
      return;
    }
    const std::size_t first = ids.size();
    append_symbols(word, ids, missing_unknown_);
    merge(ids, first);
  }

  /// Whether the path can be searched: unknown characters end a word, as something stands for them that is in no merge.
  /// Long tokens, which only a damaged file has, would take long to prepare.
  bool can_have_path() const {
    constexpr std::size_t kMostBytes = 512, kMostInAll = std::size_t{1} << 22;
    if (!prefix_.empty() || !suffix_.empty() || ignore_merges_ || always_queue_) return false;
    if (unknown_ < 0 && missing_unknown_.empty()) return false;
    std::size_t bytes = 0;
    for (const auto& [id, entry] : vocabulary_.by_id()) {
      const std::string_view token = vocabulary_.entry(entry);
      if (token.size() > kMostBytes || token.find('\0') != std::string_view::npos) return false;
      bytes += token.size();
    }
    const std::unordered_set<std::int32_t> of_bytes(fallback_.begin(), fallback_.end());
    bool merged = false;
    merges_.for_each_pair([&](std::int32_t left, std::int32_t right) {
      for (const std::int32_t id : {left, right}) merged = merged || id == unknown_ || of_bytes.contains(id);
    });
    return bytes <= kMostInAll && !merged;
  }

  void make_path() const {
    std::vector<BpePath::Entry> entries;
    for (const auto& [id, entry] : vocabulary_.by_id()) {
      BpePath::Entry token{vocabulary_.entry(entry), id, {}};
      if (token.text.empty()) continue;
      append_symbols(token.text, token.symbols, "");
      if (!token.symbols.empty()) entries.push_back(std::move(token));
    }
    std::ranges::sort(entries, {}, &BpePath::Entry::text);
    path_ = std::make_unique<const BpePath>(merges_, entries);
  }

  /// The bytes of the characters before the first one that is a token.
  std::size_t unknown_at_start(std::string_view word) const {
    const char* const end = word.data() + word.size();
    for (const char* p = word.data(); p < end;) {
      const char* const start = p;
      unicode::next_code_point(p, end);
      if (vocabulary_.id({start, static_cast<std::size_t>(p - start)}) >= 0)
        return static_cast<std::size_t>(start - word.data());
    }
    return word.size();
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
  mutable std::once_flag path_made_;  // at the first long word: most models have none
  mutable std::unique_ptr<const BpePath> path_;
  std::string prefix_, suffix_;
  bool ignore_merges_, fuse_unknown_;
  bool always_queue_ = false;
  bool has_path_ = false;
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
