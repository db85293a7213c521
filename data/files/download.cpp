#include "tern/data/files/download.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tern/data/files/files.h"
#include "tern/data/files/http.h"
#include "tern/data/files/sha256.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

struct Transfer {
  const Download& source;
  const std::function<void(const std::string&)>& log;
  std::FILE* file;
  Sha256 digest;
  int64_t received = 0;
  int64_t tenths = 0;
};

void take(Transfer& transfer, std::string_view piece) {
  transfer.received += static_cast<int64_t>(piece.size());
  TERN_CHECK(transfer.received <= transfer.source.bytes, "more than the expected ", transfer.source.bytes, " bytes");
  TERN_CHECK(std::fwrite(piece.data(), 1, piece.size(), transfer.file) == piece.size(),
             "writing failed: ", std::strerror(errno));
  transfer.digest.update(piece);
  const int64_t tenths = 10 * transfer.received / transfer.source.bytes;
  if (transfer.log && tenths > transfer.tenths) {
    transfer.tenths = tenths;
    transfer.log("fetching " + transfer.source.url + ": " + std::to_string(10 * tenths) + " %");
  }
}

/// Empty when all went well, otherwise the reason.
std::string perform(Transfer& transfer) {
  try {
    const HttpResponse response = http_follow({.url = transfer.source.url, .protocols = "https,file"}, {},
                                              [&](const HttpResponse& answer, std::string_view piece) {
                                                if (answer.status < 300) take(transfer, piece);
                                              });
    if (response.status >= 300) return "the server answers " + std::to_string(response.status);
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }
  if (transfer.received != transfer.source.bytes) {
    return "got " + std::to_string(transfer.received) + " of " + std::to_string(transfer.source.bytes) + " bytes";
  }
  const std::string digest = transfer.digest.hex();
  if (digest != transfer.source.sha256) {
    return "its sha256 is " + digest + ", expected " + transfer.source.sha256;
  }
  return "";
}

}  // namespace

void download(const Download& source, const fs::path& path, const std::function<void(const std::string&)>& log) {
  File file = create_file(path);
  Transfer transfer{source, log, file.get(), {}, 0, 0};
  std::string problem = perform(transfer);
  if (std::fclose(file.release()) != 0 && problem.empty()) problem = std::strerror(errno);
  if (problem.empty()) return;
  std::error_code ignored;
  fs::remove(path, ignored);
  fail("cannot fetch ", source.url, ": ", problem);
}

}  // namespace tern::data
