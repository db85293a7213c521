// WordPiece (Schuster and Nakajima 2012) and WordLevel.

#include <algorithm>
#include <string>

#include "tern/data/tokenizers/piece_trie.h"
#include "tern/data/tokenizers/pipeline/models.h"

namespace tern::data {
namespace {

class WordLevelModel final : public VocabularyModel {
 public:
  explicit WordLevelModel(const JsonField& field) : VocabularyModel(field.at("vocab")), where_(field.where()) {
    unknown_ = vocabulary_.id(field.at("unk_token").text());
  }
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override {
    const std::int32_t found = vocabulary_.id(word);
    TERN_CHECK(found >= 0 || unknown_ >= 0, where_, ": a text has a word that the vocabulary lacks, \"",
               detail::printable(word), "\", and the vocabulary has no unk_token");
    ids.push_back(found >= 0 ? found : unknown_);
  }

 private:
  std::string where_;
  std::int32_t unknown_;
};

/// Greedy longest match first.
class WordPieceModel final : public VocabularyModel {
 public:
  explicit WordPieceModel(const JsonField& field) : VocabularyModel(field.at("vocab")), where_(field.where()) {
    unknown_ = vocabulary_.id(field.at("unk_token").text());
    const std::string& prefix = field.at("continuing_subword_prefix").text();
    max_chars_ = static_cast<std::size_t>(field.at("max_input_chars_per_word").integer(0, INT64_MAX));
    std::vector<std::pair<std::string_view, std::int32_t>> words, tails;
    for (const auto& [id, entry] : vocabulary_.by_id()) {
      std::string_view token = vocabulary_.entry(entry);
      TERN_CHECK(token.find('\0') == std::string_view::npos, field.where(), "/vocab: the token with id ", id,
                 " contains the character U+0000, which Tern's WordPiece cannot match");
      if (!token.empty()) words.emplace_back(token, id);
      if (token.size() > prefix.size() && token.starts_with(prefix))
        tails.emplace_back(token.substr(prefix.size()), id);
    }
    std::sort(words.begin(), words.end());
    std::sort(tails.begin(), tails.end());
    word_root_ = trie_.add(words);
    tail_root_ = trie_.add(tails);
  }

  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override {
    if (word.size() > max_chars_) {
      const auto continues = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; };
      const auto more = std::count_if(word.begin(), word.end(), continues);
      if (word.size() - static_cast<std::size_t>(more) > max_chars_) return push_unknown(word, ids);
    }
    const std::size_t first = ids.size();
    const char* p = word.data();
    const char* const end = p + word.size();
    for (std::uint32_t root = word_root_; p < end; root = tail_root_) {
      const PieceTrie::Match piece = trie_.longest(root, p, end);
      if (piece.id < 0) {
        ids.resize(first);
        return push_unknown(word, ids);
      }
      ids.push_back(piece.id);
      p = piece.end;
    }
  }

 private:
  void push_unknown(std::string_view word, std::vector<std::int32_t>& ids) const {
    TERN_CHECK(unknown_ >= 0, where_, ": a text has a word that the vocabulary cannot spell, \"",
               detail::printable(word), "\", and the vocabulary has no unk_token");
    ids.push_back(unknown_);
  }

  std::string where_;
  std::int32_t unknown_;
  std::size_t max_chars_ = 0;
  PieceTrie trie_;
  std::uint32_t word_root_ = 0, tail_root_ = 0;
};

/// The type of a model; files of old versions lack it.
std::string model_type(const JsonField& field) {
  if (const auto type = field.find("type")) return type->text();
  if (field.find("merges")) return "BPE";
  if (field.find("continuing_subword_prefix")) return "WordPiece";
  if (field.at("vocab").value().is_array()) return "Unigram";
  return "WordLevel";
}

}  // namespace

std::unique_ptr<TokenModel> read_model(const JsonField& field) {
  const std::string type = model_type(field);
  if (type == "BPE") return read_bpe(field);
  if (type == "Unigram") return read_unigram(field);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(field);
  if (type == "WordLevel") return std::make_unique<WordLevelModel>(field);
  fail(field.where(), ": Tern does not have the model \"", detail::printable(type),
       "\"; it has BPE, Unigram, WordPiece and WordLevel");
}

}  // namespace tern::data
