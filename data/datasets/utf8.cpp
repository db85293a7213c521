#include "tern/data/datasets/utf8.h"

#include <algorithm>
#include <cstring>

namespace tern::data {
namespace {

struct Sequence {
  size_t bytes;  // length of the well-formed character, or of the maximal ill-formed subpart
  bool valid;
};

/// Classifies the sequence that starts at in[at], which is not an ASCII byte.
Sequence classify(std::string_view in, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(in[i]); };
  const unsigned lead = byte(at);
  size_t length = 0;
  unsigned low = 0x80, high = 0xbf;  // range of the second byte
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;  // no surrogates
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;  // nothing above U+10FFFF
  } else {
    return {1, false};
  }
  for (size_t i = 1; i < length; ++i, low = 0x80, high = 0xbf) {
    if (at + i >= in.size() || byte(at + i) < low || byte(at + i) > high) return {i, false};
  }
  return {length, true};
}

}  // namespace

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
      const Sequence sequence = classify(in, at);
      if (!sequence.valid) {
        out.append(in, copied, at - copied);
        out += "\xef\xbf\xbd";
        copied = at + sequence.bytes;
        ++replaced;
      }
      at += sequence.bytes;
    }
  }
  out.append(in, copied, in.size() - copied);
  return replaced;
}

}  // namespace tern::data
