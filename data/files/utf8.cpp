#include "tern/data/files/utf8.h"

#include <cstring>

namespace tern::data {

int64_t append_valid_utf8(std::string_view in, std::string& out) {
  int64_t replaced = 0;
  size_t copied = 0;  // in[0, copied) is in `out`
  size_t at = 0;
  while (at < in.size()) {
    uint64_t eight = 0;
    if (at + 8 <= in.size()) std::memcpy(&eight, in.data() + at, 8);
    if (at + 8 <= in.size() && (eight & 0x8080808080808080ull) == 0) {
      at += 8;
    } else if (static_cast<unsigned char>(in[at]) < 0x80) {
      ++at;
    } else {
      const char* next = in.data() + at;
      const bool valid = unicode::decode_utf8(next, in.data() + in.size()) != unicode::kInvalid;
      const size_t end = static_cast<size_t>(next - in.data());
      if (!valid) {
        out.append(in, copied, at - copied);
        out += "\xef\xbf\xbd";
        copied = end;
        ++replaced;
      }
      at = end;
    }
  }
  out.append(in, copied, in.size() - copied);
  return replaced;
}

}  // namespace tern::data

namespace tern::data::unicode {

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
