#include "tern/data/files/gzip.h"

#include <zlib.h>

#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr int kGzipAlone = 16 + MAX_WBITS;  // zlib's way to say: gzip's header and checksum, no other format

/// A stream of zlib, ended with this object.
struct Inflater : z_stream {
  Inflater() : z_stream{} { TERN_CHECK(inflateInit2(this, kGzipAlone) == Z_OK, "zlib could not start"); }
  ~Inflater() { inflateEnd(this); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

}  // namespace

std::string gunzip(std::string_view bytes, const std::string& name, int64_t max_bytes) {
  constexpr size_t kMaxInput = size_t{1} << 30;  // zlib counts in 32 bits
  TERN_CHECK(bytes.size() <= kMaxInput, name, ": more than 1 GiB of gzip data");
  Inflater stream;
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  char block[1 << 16];
  for (int code = Z_OK; code != Z_STREAM_END;) {
    stream.next_out = reinterpret_cast<Bytef*>(block);
    stream.avail_out = sizeof block;
    code = inflate(&stream, Z_NO_FLUSH);
    const bool more = code == Z_OK || code == Z_STREAM_END;
    TERN_CHECK(more || code != Z_BUF_ERROR, name, ": truncated gzip data");
    TERN_CHECK(more, name, ": damaged gzip data: ", stream.msg != nullptr ? stream.msg : "unknown error");
    const size_t got = sizeof block - stream.avail_out;
    TERN_CHECK(static_cast<int64_t>(out.size() + got) <= max_bytes, name, ": refused: unpacks to more than expected");
    out.append(block, got);
  }
  TERN_CHECK(stream.avail_in == 0, name, ": damaged gzip data: ", stream.avail_in, " bytes follow its end");
  return out;
}

}  // namespace tern::data
