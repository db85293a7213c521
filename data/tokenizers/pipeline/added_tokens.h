#pragma once
// Tokens that are found in a text before the model sees it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tern/data/tokenizers/pipeline/json_field.h"
#include "tern/data/tokenizers/pipeline/models.h"
#include "tern/data/tokenizers/pipeline/normalizers.h"

namespace tern::data {

struct AddedToken {
  std::string content;
  std::string decoded = {};  ///< what decode() uses: the content, normalized if that applies
  std::int32_t id = 0;
  bool single_word = false;  ///< only where no word character is next to it
  bool lstrip = false;       ///< takes the white space to its left
  bool rstrip = false;       ///< takes the white space to its right
  bool normalized = false;   ///< is normalized, and found in the normalized text
  bool special = false;      ///< is left out by decode()
};

/// A part of a text: an added token, or text for the model if `id` is -1.
struct Section {
  std::size_t begin, end;
  std::int32_t id;
};

/// Finds texts from left to right: at each place the longest one.
class TextFinder {
 public:
  /// Throws Error if two texts are equal or one is empty; `where` begins its message.
  void build(std::vector<std::pair<std::string, std::uint32_t>> texts, const std::string& where);
  bool empty() const { return nodes_.empty(); }
  /// The longest text at text[at]; its number and length; length 0 for none.
  std::pair<std::uint32_t, std::size_t> longest_at(std::string_view text, std::size_t at) const;
  /// The next place from `at` on where a text may begin.
  std::size_t skip(std::string_view text, std::size_t at) const {
    while (at < text.size() && !first_[static_cast<unsigned char>(text[at])]) ++at;
    return at;
  }

 private:
  struct Node {
    std::uint32_t first_edge = 0, edges = 0;
    std::int64_t number = -1;
  };
  std::vector<Node> nodes_;
  std::vector<std::pair<std::uint8_t, std::uint32_t>> edges_;  // byte, node
  bool first_[256] = {};
};

class AddedTokens {
 public:
  /// Reads the array added_tokens. Throws Error where the ids are not those that Hugging Face's library would give.
  void read(const JsonField& field, const TokenModel& model, const Normalizer* normalizer);

  /// Cuts a text at the tokens that are not normalized, or at those that are.
  void split(std::string_view text, bool normalized, std::vector<Section>& sections) const;

  const AddedToken* find(std::int32_t id) const;
  std::optional<std::int32_t> id(std::string_view content) const;
  /// Whether a special token has this content.
  bool is_special(std::string_view content) const { return special_.find(content) >= 0; }
  /// All ids are smaller.
  std::int64_t bound() const { return tokens_.empty() ? 0 : std::int64_t{tokens_.back().id} + 1; }

 private:
  std::vector<AddedToken> tokens_;  // sorted by id
  StringMap special_;
  TextFinder plain_, normalized_;
};

}  // namespace tern::data
