#pragma once
// BERT's WordPiece tokenizer (Devlin et al. 2019; Schuster and Nakajima 2012). For every text the ids equal those of
// Hugging Face tokenizers 0.23 with bert-base-uncased's tokenizer.json (BertNormalizer, BertPreTokenizer, WordPiece).

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tern/data/tokenizers/piece_trie.h"
#include "tern/data/tokenizers/tokenizer.h"
#include "tern/data/tokenizers/word_splitter.h"

namespace tern::data {

struct WordPieceOptions {
  bool lowercase = true;
  std::optional<bool> strip_accents{};  ///< not set: as lowercase
  bool split_cjk = true;                ///< every ideograph is a word ("tokenize_chinese_chars")
  std::size_t max_word_chars = 100;     ///< a longer word (in code points) becomes [UNK]
};

/// An immutable tokenizer: many threads may encode at once. Copies share one vocabulary.
///
/// Special tokens that occur in a text ("[SEP]", "[MASK]"...) become their ids, as in Hugging Face: matched in the raw
/// text, in exactly this spelling, also inside a word. Malformed UTF-8 counts as U+FFFD, which BERT drops.
class WordPiece final : public Tokenizer {
 public:
  WordPiece(const WordPiece&) = default;  // a move copies, so the source stays usable
  WordPiece& operator=(const WordPiece&) = default;

  /// Reads a vocab.txt: one token per line (LF or CRLF; trailing white space is dropped); the line number is the id. If
  /// a token occurs twice, the last line counts. Throws Error if the file cannot be read, is empty or not UTF-8, or
  /// lacks [UNK].
  static WordPiece from_file(const std::string& path, const WordPieceOptions& options = {});

  /// read_tokenizer() of a folder with BERT's tokenizer. Throws Error for another one.
  static WordPiece from_folder(const std::string& dir);

  /// The 30,522 tokens of bert-base-uncased, built into the library.
  static WordPiece from_embedded(const WordPieceOptions& options = {});

  /// Parses the text of a vocab.txt; errors call it `name`.
  static WordPiece from_text(std::string_view vocabulary, const WordPieceOptions& options = {},
                             const std::string& name = "vocabulary");

  /// The token with id i is tokens[i]; errors call the vocabulary `name`.
  static WordPiece from_tokens(const std::vector<std::string_view>& tokens, const WordPieceOptions& options = {},
                               const std::string& name = "vocabulary");

  /// The same tokenizer with these limits.
  WordPiece with(const TextLimits& limits) const;

  /// Appends the ids of a text, without [CLS] and [SEP]. Returns the number of malformed UTF-8 sequences dropped.
  std::size_t encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::vector<std::int32_t> encode(std::string_view text) const;

  /// [CLS] ids [SEP], with the ids truncated so that the result has at most max_length (>= 2) entries, at the side that
  /// limits() say. Reads no further than needed. `replaced`, if given, receives the number of malformed UTF-8 sequences
  /// dropped.
  std::vector<std::int32_t> encode_special(std::string_view text, std::size_t max_length = kNoLimit,
                                           std::size_t* replaced = nullptr) const override;

  /// The tokens of encode() as text, continuations with "##".
  std::vector<std::string> pieces(std::string_view text) const;

  /// The normalized words before they are cut into pieces, as Hugging Face's normalizer and pre-tokenizer give them;
  /// these do not handle special tokens.
  std::vector<std::string> words(std::string_view text) const;

  /// The token with this id. Throws Error if the id is not in 0..vocab_size()-1.
  std::string_view token(std::int32_t id) const override;
  /// The id of this token.
  std::optional<std::int32_t> id(std::string_view token) const override;

  std::int32_t unk_id() const { return vocabulary_->unk; }
  /// The number of lines of vocab.txt; all ids are smaller.
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(vocabulary_->starts.size()) - 1; }
  TokensAround around() const override { return {{cls_id()}, {sep_id()}}; }
  PairPattern pair() const override { return bert_pair(cls_id(), sep_id()); }
  std::optional<std::int32_t> special(SpecialToken token) const override;
  TextLimits limits() const override { return limits_; }
  const WordPieceOptions& options() const { return options_; }
  /// SHA-256 of vocabulary and options: tokenizers of equal hash give equal ids.
  std::string content_hash() const override;

  /// Writes a vocab.txt that from_file and Hugging Face read to equal ids.
  void write_vocab(const std::string& path) const;
  /// Writes DIR/vocab.txt and DIR/tokenizer_config.json for from_folder and Hugging Face's AutoTokenizer, which
  /// truncates to `model_max_length`. Creates the folder.
  void save(const std::string& dir, std::int64_t model_max_length = 512) const override;

 private:
  struct Vocabulary {
    std::string text;                  // all tokens, concatenated
    std::vector<std::size_t> starts;   // start of token i in text; one more entry at the end
    std::vector<std::int32_t> sorted;  // ids sorted by the bytes of their tokens; of equal tokens only the last
    PieceTrie trie;
    std::uint32_t word_root = 0;  // root of pieces that begin a word
    std::uint32_t tail_root = 0;  // root of pieces that continue a word (without "##")
    std::int32_t unk = 0;
    std::vector<std::pair<std::string, std::int32_t>> special;  // special tokens of the vocabulary
    std::array<std::int32_t, 128> punctuation{};                // id of an ASCII punctuation mark as a word

    std::string_view token(std::size_t id) const {
      return std::string_view(text).substr(starts[id], starts[id + 1] - starts[id]);
    }
    std::optional<std::int32_t> find(std::string_view token) const;
  };

  WordPiece(std::shared_ptr<const Vocabulary> vocabulary, const WordPieceOptions& options);
  static std::shared_ptr<const Vocabulary> build(const std::vector<std::string_view>& tokens, const std::string& name);
  static void build_trie(Vocabulary& vocabulary);

  std::size_t encode_some(std::string_view text, std::size_t limit, std::vector<std::int32_t>& ids) const;
  const char* encode_known_word(const char* p, const char* end, std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  const std::pair<std::string, std::int32_t>* special_at(const char* p, const char* end) const;
  std::int32_t required(SpecialToken token) const override;

  std::shared_ptr<const Vocabulary> vocabulary_;
  WordPieceOptions options_;
  SplitRules rules_;
  TextLimits limits_;
};

}  // namespace tern::data
