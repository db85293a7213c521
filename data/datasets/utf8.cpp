#include "tern/data/datasets/utf8.h"

#include <cstring>

#include "tern/data/tokenizers/unicode.h"

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
