#include "tern/data/tokenizers/unicode.h"

namespace tern::data::unicode {
namespace {

#include "tern/data/tokenizers/unicode/table.inc"

constexpr char32_t kBlock = 128;

}  // namespace

const CodePoint& properties(char32_t c) { return kRecords[kValues[kBlocks[c / kBlock] * kBlock + c % kBlock]]; }

std::u32string_view expansion(const CodePoint& entry) {
  return {kExpansions + (entry.strip >> 2), static_cast<std::size_t>(entry.strip & 3)};
}

char32_t decode_utf8(const char*& p, const char* end) {
  const auto lead = static_cast<unsigned char>(*p++);
  if (lead < 0x80) return lead;
  if (lead < 0xC2 || lead > 0xF4) return kInvalid;
  const int more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  // The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t c = lead & (0x3F >> more);
  for (int i = 0; i < more; ++i) {
    if (p == end) return kInvalid;
    const auto byte = static_cast<unsigned char>(*p);
    if (byte < low || byte > high) return kInvalid;
    c = c << 6 | (byte & 0x3F);
    low = 0x80;
    high = 0xBF;
    ++p;
  }
  return c;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace tern::data::unicode
