#pragma once
// BERT's WordPiece tokenizer (Devlin et al. 2019; Schuster and Nakajima 2012). Ids are equal to those of Hugging Face
// tokenizers 0.23 with bert-base-uncased's tokenizer.json (BertNormalizer, BertPreTokenizer, WordPiece) for every text.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tern/data/tokenizers/piece_trie.h"
#include "tern/data/tokenizers/word_splitter.h"

namespace tern::data {

struct WordPieceOptions {
  bool lowercase = true;
  std::optional<bool> strip_accents{};  ///< not given: as lowercase
  bool split_cjk = true;                ///< every ideograph is a word ("tokenize_chinese_chars")
  std::size_t max_word_chars = 100;     ///< a word of more code points is [UNK]
};

/// A tokenizer that never changes: encoding from many threads at once is safe. Copies share one vocabulary.
///
/// Special tokens that stand literally in a text ("[SEP]", "[MASK]"...) become their ids, as in Hugging Face: found in
/// the raw text, in exactly this spelling, also inside a word. Malformed UTF-8 counts as U+FFFD, which BERT drops.
class WordPiece {
 public:
  WordPiece(const WordPiece&) = default;  // moving copies: no tokenizer is left without its vocabulary
  WordPiece& operator=(const WordPiece&) = default;

  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  /// Reads a vocab.txt: one token a line (LF or CRLF; white space at the end of a line is dropped), the line number is
  /// the id. Of a token that is there twice the last line counts. Errors: cannot be read, no lines, not UTF-8, no
  /// [UNK].
  static WordPiece from_file(const std::string& path, const WordPieceOptions& options = {});

  /// Reads DIR/vocab.txt, or the WordPiece model in DIR/tokenizer.json where that is missing. `do_lower_case`,
  /// `strip_accents` and `tokenize_chinese_chars` come from DIR/tokenizer_config.json if it is there.
  static WordPiece from_folder(const std::string& dir);

  /// The 30,522 tokens of bert-base-uncased, built into the library.
  static WordPiece from_embedded(const WordPieceOptions& options = {});

  /// The text of a vocab.txt; `name` is what errors call it.
  static WordPiece from_text(std::string_view vocabulary, const WordPieceOptions& options = {},
                             const std::string& name = "vocabulary");

  /// Appends the ids of a text, without [CLS] and [SEP]. Returns how many malformed UTF-8 sequences were dropped.
  std::size_t encode(std::string_view text, std::vector<std::int32_t>& ids) const;
  std::vector<std::int32_t> encode(std::string_view text) const;

  /// [CLS] ids [SEP], the ids cut off so that the whole has at most max_length (2 or more) entries. Reads no further
  /// than needed. `replaced`, if given, receives how many malformed UTF-8 sequences were dropped.
  std::vector<std::int32_t> encode_special(std::string_view text, std::size_t max_length = kNoLimit,
                                           std::size_t* replaced = nullptr) const;

  /// The tokens of encode() as text, continuations with "##".
  std::vector<std::string> pieces(std::string_view text) const;

  /// The normalized words before they are cut into pieces: Hugging Face's normalizer and pre-tokenizer, which know no
  /// special tokens.
  std::vector<std::string> words(std::string_view text) const;

  /// The token with this id. Error: id outside 0..vocab_size()-1.
  std::string_view token(std::int32_t id) const;
  /// The id of this token.
  std::optional<std::int32_t> id(std::string_view token) const;

  std::int32_t unk_id() const { return vocabulary_->unk; }
  /// Errors: the vocabulary has no such token.
  std::int32_t cls_id() const { return special_id("[CLS]"); }
  std::int32_t sep_id() const { return special_id("[SEP]"); }
  std::int32_t pad_id() const { return special_id("[PAD]"); }
  std::int32_t mask_id() const { return special_id("[MASK]"); }

  /// The number of lines of vocab.txt; ids are below it.
  std::int64_t vocab_size() const { return static_cast<std::int64_t>(vocabulary_->starts.size()) - 1; }
  const WordPieceOptions& options() const { return options_; }
  /// A SHA-256 of vocabulary and options: tokenizers of equal hash give equal ids.
  std::string content_hash() const;

  /// Writes a vocab.txt that from_file and Hugging Face read to the same ids.
  void write_vocab(const std::string& path) const;
  /// Writes DIR/vocab.txt and DIR/tokenizer_config.json for from_folder and Hugging Face's AutoTokenizer;
  /// `model_max_length` is what those truncate to. Creates the folder.
  void save(const std::string& dir, std::int64_t model_max_length = 512) const;

 private:
  struct Vocabulary {
    std::string text;                  // all tokens, one after another
    std::vector<std::size_t> starts;   // of token i in text; one more at the end
    std::vector<std::int32_t> sorted;  // ids by the bytes of their tokens; of equal ones only the last
    PieceTrie trie;
    std::uint32_t word_root = 0;  // pieces that begin a word
    std::uint32_t tail_root = 0;  // pieces that go on ("##" taken off)
    std::int32_t unk = 0;
    std::vector<std::pair<std::string, std::int32_t>> special;  // those that the vocabulary has
    std::array<std::int32_t, 128> punctuation{};                // id of an ASCII mark as a word

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
  std::int32_t special_id(std::string_view token) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  WordPieceOptions options_;
  SplitRules rules_;
};

}  // namespace tern::data
