#pragma once
// Plain text for language models: documents, their tokens one after another, and blocks of these.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/datasets/token_set.h"
#include "tern/data/samples/dataset.h"

namespace tern::data {

enum class DocumentEnd : uint8_t { kFile, kBlankLine };

/// The documents of a text file, or of all .txt files of a folder at any depth in the order of their paths: each file
/// is one, or empty lines separate them. Ill-formed UTF-8 becomes U+FFFD, a byte order mark is skipped; documents that
/// are empty or white space alone are left out. Throws Error that names the file or folder, also when there are none.
std::vector<std::string> read_documents(const std::string& path, DocumentEnd end = DocumentEnd::kFile);

/// The token ids of all documents one after another, `separator` (an id, [SEP] or an end-of-text token) after each.
std::vector<int32_t> token_stream(const std::vector<std::string>& documents, const Encode& encode, int32_t separator);

/// Blocks of a token stream for next-token prediction. Sample b: {inputs, targets}, int64 [length] each; inputs are the
/// ids from b * stride on, targets those from b * stride + 1 on. The last ids that fill no block are left out.
class TokenBlocks final : public Dataset<> {
 public:
  /// `stride`: between the beginnings of blocks; 0: length, so that every id is a target at most once. Throws Error if
  /// the stream is too short for one block.
  TokenBlocks(std::vector<int32_t> ids, int64_t length, int64_t stride = 0);
  int64_t size() const override { return size_; }
  std::vector<Tensor> get(const ItemKey& key) const override;

 private:
  std::vector<int32_t> ids_;
  int64_t length_, stride_, size_;
};

/// A vocabulary of characters: the distinct code points of a text, in ascending order.
class CharVocabulary {
 public:
  /// Throws Error if the text is not well-formed UTF-8 or empty.
  explicit CharVocabulary(std::string_view text);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  /// Appends the ids of a text. Throws Error for a character that is not in the vocabulary. Serves as an Encode.
  void operator()(std::string_view text, std::vector<int32_t>& ids) const;
  /// The text of these ids. Throws Error for an id outside 0 .. size() - 1.
  std::string decode(std::span<const int32_t> ids) const;

 private:
  std::vector<char32_t> characters_;
};

}  // namespace tern::data
