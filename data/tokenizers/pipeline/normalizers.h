#pragma once
// The normalizers of a tokenizer.json.

#include <cstddef>
#include <memory>
#include <string>

#include "tern/data/tokenizers/characters.h"
#include "tern/data/tokenizers/pipeline/json_field.h"

namespace tern::data {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Replaces a well-formed UTF-8 text. `origin` is that of Word: it counts the leading bytes that come from the first
  /// character of the input.
  virtual void apply(std::string& text, std::size_t& origin) const = 0;
};

/// Throws Error for a normalizer that Tern does not have, naming it.
std::unique_ptr<const Normalizer> read_normalizer(const JsonField& field);
/// Precompiled, SentencePiece's table of replacements.
std::unique_ptr<const Normalizer> read_precompiled(const JsonField& field);

/// The characters that stand for the bytes 0 to 255 in byte-level tokenizers (Radford et al. 2019).
const std::string& byte_character(unsigned char byte);
/// The byte that a character stands for; -1 for none.
int byte_of_character(char32_t c);

/// Hands every code point to `replace(out, c)`, which appends what takes its place.
template <class Replace>
void rewrite(std::string& text, std::size_t& origin, const Replace& replace) {
  std::string out;
  out.reserve(text.size() + text.size() / 8 + 8);
  std::size_t new_origin = 0;
  const char* p = text.data();
  const char* const first = p + origin;
  for (const char* const end = p + text.size(); p < end;) {
    const bool at_origin = p < first;
    replace(out, unicode::next_code_point(p, end));
    if (at_origin) new_origin = out.size();
  }
  text = std::move(out);
  origin = new_origin;
}

}  // namespace tern::data
