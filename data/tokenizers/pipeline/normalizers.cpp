#include "tern/data/tokenizers/pipeline/normalizers.h"

#include <array>
#include <optional>
#include <vector>

#include "tern/data/tokenizers/pipeline/patterns.h"

namespace tern::data {
namespace {

using unicode::Character;
using unicode::character;

struct NormalizerSequence : Normalizer {
  std::vector<std::unique_ptr<const Normalizer>> parts;
  void apply(std::string& text, std::size_t& origin) const override {
    for (const auto& part : parts) part->apply(text, origin);
  }
};

struct UnicodeForm : Normalizer {
  unicode::Form form;
  explicit UnicodeForm(unicode::Form form) : form(form) {}
  void apply(std::string& text, std::size_t& origin) const override {
    if (unicode::is_ascii(text)) return;
    if (origin > 0) origin = unicode::normalized(std::string_view(text).substr(0, origin), form).size();
    text = unicode::normalized(text, form);
    origin = std::min(origin, text.size());
  }
};

void append_lower(std::string& out, char32_t c) {
  unicode::append_utf8(out, c + static_cast<char32_t>(character(c).lower));
  if (c == 0x130) {
    out.pop_back();
    out.pop_back();
    out += "i\u0307";
  }
}

struct LowercaseNormalizer : Normalizer {
  void apply(std::string& text, std::size_t& origin) const override { rewrite(text, origin, append_lower); }
};

/// Drops the code points with one of the flags.
void drop(std::string& text, std::size_t& origin, std::uint16_t flags) {
  rewrite(text, origin, [flags](std::string& out, char32_t c) {
    if (!character(c).has(flags)) unicode::append_utf8(out, c);
  });
}

struct StripAccentsNormalizer : Normalizer {
  void apply(std::string& text, std::size_t& origin) const override {
    if (!unicode::is_ascii(text)) drop(text, origin, unicode::kCombining);
  }
};

struct BertNormalizer : Normalizer {
  bool clean, ideographs, strip, lowercase;
  explicit BertNormalizer(const JsonField& field)
      : clean(field.at("clean_text").boolean()),
        ideographs(field.at("handle_chinese_chars").boolean()),
        strip(false),
        lowercase(field.at("lowercase").boolean()) {
    strip = field.boolean_or("strip_accents", lowercase);
  }

  void apply(std::string& text, std::size_t& origin) const override {
    if (unicode::is_ascii(text)) return apply_to_ascii(text, origin);
    if (clean)
      rewrite(text, origin, [](std::string& out, char32_t c) {
        const Character& entry = character(c);
        if (entry.has(unicode::kWhiteSpace)) {
          if (!entry.has(unicode::kDroppedByBert)) out += ' ';
        } else if (!entry.has(unicode::kDroppedByBert)) {
          unicode::append_utf8(out, c);
        }
      });
    if (ideographs)
      rewrite(text, origin, [](std::string& out, char32_t c) {
        const bool alone = character(c).has(unicode::kBertIdeograph);
        if (alone) out += ' ';
        unicode::append_utf8(out, c);
        if (alone) out += ' ';
      });
    if (strip) {
      UnicodeForm(unicode::Form::kNfd).apply(text, origin);
      drop(text, origin, unicode::kNonspacing);
    }
    if (lowercase) rewrite(text, origin, append_lower);
  }

  void apply_to_ascii(std::string& text, std::size_t& origin) const {
    std::size_t size = 0, new_origin = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      char byte = text[i];
      if (clean) {
        const Character& entry = character(static_cast<unsigned char>(byte));
        if (entry.has(unicode::kDroppedByBert)) continue;
        if (entry.has(unicode::kWhiteSpace)) byte = ' ';
      }
      if (lowercase && byte >= 'A' && byte <= 'Z') byte = static_cast<char>(byte + 32);
      text[size++] = byte;
      if (i < origin) new_origin = size;
    }
    text.resize(size);
    origin = new_origin;
  }
};

struct StripNormalizer : Normalizer {
  bool left, right;
  explicit StripNormalizer(const JsonField& field)
      : left(field.at("strip_left").boolean()), right(field.at("strip_right").boolean()) {}
  void apply(std::string& text, std::size_t& origin) const override {
    const char *p = text.data(), *end = p + text.size();
    std::size_t skipped = 0;
    while (left && p < end && character(unicode::next_code_point(p, end)).has(unicode::kWhiteSpace))
      skipped = static_cast<std::size_t>(p - text.data());
    text.erase(0, skipped);
    origin = origin > skipped ? origin - skipped : 0;
    while (right && !text.empty() && character(unicode::last_code_point(text)).has(unicode::kWhiteSpace)) {
      while ((static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.pop_back();
      text.pop_back();
    }
    origin = std::min(origin, text.size());
  }
};

struct ReplaceNormalizer : Normalizer {
  std::unique_ptr<const Pattern> pattern;
  std::string content;
  explicit ReplaceNormalizer(const JsonField& field)
      : pattern(read_pattern(field.at("pattern"))), content(field.at("content").text()) {}
  void apply(std::string& text, std::size_t& origin) const override {
    if (text.empty()) return;
    std::vector<Span> spans;
    pattern->find(text, spans);
    if (spans.size() == 1 && !spans[0].match) return;
    std::string out;
    std::size_t new_origin = 0;
    for (const Span& span : spans) {
      if (!span.match && span.begin < origin) new_origin = out.size() + std::min(span.end, origin) - span.begin;
      if (span.match) {
        out += content;
      } else {
        out.append(text, span.begin, span.end - span.begin);
      }
      if (span.match && span.end <= origin) new_origin = out.size();
    }
    text = std::move(out);
    origin = new_origin;
  }
};

struct PrependNormalizer : Normalizer {
  std::string prefix;
  explicit PrependNormalizer(const JsonField& field) : prefix(field.at("prepend").text()) {}
  void apply(std::string& text, std::size_t& origin) const override {
    if (text.empty()) return;
    text.insert(0, prefix);
    if (origin > 0) origin += prefix.size();
  }
};

/// Cleaning as in NMT (SentencePiece's nmt rules).
struct NmtNormalizer : Normalizer {
  void apply(std::string& text, std::size_t& origin) const override {
    rewrite(text, origin, [](std::string& out, char32_t c) {
      const bool dropped =
          (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
      const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      if (!dropped) unicode::append_utf8(out, space ? U' ' : c);
    });
  }
};

struct ByteLevelNormalizer : Normalizer {
  void apply(std::string& text, std::size_t& origin) const override {
    std::string out;
    std::size_t new_origin = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      out += byte_character(static_cast<unsigned char>(text[i]));
      if (i < origin) new_origin = out.size();
    }
    text = std::move(out);
    origin = new_origin;
  }
};

struct ByteCharacters {
  std::array<std::string, 256> of_byte;
  std::array<int, 512> byte_of;
  ByteCharacters() {
    byte_of.fill(-1);
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool shown = (byte >= 33 && byte <= 126) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t c = shown ? byte : next++;
      unicode::append_utf8(of_byte[byte], c);
      byte_of[c] = static_cast<int>(byte);
    }
  }
};

const ByteCharacters& byte_characters() {
  static const ByteCharacters characters;
  return characters;
}

}  // namespace

const std::string& byte_character(unsigned char byte) { return byte_characters().of_byte[byte]; }

int byte_of_character(char32_t c) { return c < 512 ? byte_characters().byte_of[c] : -1; }

std::unique_ptr<const Normalizer> read_normalizer(const JsonField& field) {
  const std::string& type = field.at("type").text();
  if (type == "Sequence") {
    auto sequence = std::make_unique<NormalizerSequence>();
    const JsonField parts = field.at("normalizers");
    for (std::size_t i = 0; i < parts.size(); ++i) sequence->parts.push_back(read_normalizer(parts[i]));
    return sequence;
  }
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(field);
  if (type == "NFC") return std::make_unique<UnicodeForm>(unicode::Form::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(unicode::Form::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(unicode::Form::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(unicode::Form::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "Strip") return std::make_unique<StripNormalizer>(field);
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(field);
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(field);
  if (type == "Nmt") return std::make_unique<NmtNormalizer>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Precompiled") return read_precompiled(field);
  fail(field.where(), ": Tern does not have the normalizer ", shortened(field.at("type").value()));
}

}  // namespace tern::data
