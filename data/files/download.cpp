#include "tern/data/files/download.h"

#include <curl/curl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>

#include "tern/data/files/files.h"
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
  std::string problem;
};

size_t on_data(char* data, size_t, size_t size, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  transfer.received += static_cast<int64_t>(size);
  if (transfer.received > transfer.source.bytes) {
    transfer.problem = "more than the expected " + std::to_string(transfer.source.bytes) + " bytes";
    return 0;
  }
  if (std::fwrite(data, 1, size, transfer.file) != size) {
    transfer.problem = std::string("writing failed: ") + std::strerror(errno);
    return 0;
  }
  transfer.digest.update(std::string_view(data, size));
  const int64_t tenths = 10 * transfer.received / transfer.source.bytes;
  if (transfer.log && tenths > transfer.tenths) {
    transfer.tenths = tenths;
    transfer.log("fetching " + transfer.source.url + ": " + std::to_string(10 * tenths) + " %");
  }
  return size;
}

/// Empty when all went well, otherwise the reason.
std::string perform(Transfer& transfer) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  if (!curl) return "libcurl could not start";
  char message[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_URL, transfer.source.url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "https,file");
  curl_easy_setopt(curl.get(), CURLOPT_REDIR_PROTOCOLS_STR, "https");
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_MAXREDIRS, 5L);
  curl_easy_setopt(curl.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, 20L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_LIMIT, 1000L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_TIME, 60L);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, message);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &transfer);
  const CURLcode code = curl_easy_perform(curl.get());
  if (!transfer.problem.empty()) return transfer.problem;
  if (code != CURLE_OK) return message[0] != 0 ? message : curl_easy_strerror(code);
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
  Transfer transfer{source, log, file.get(), {}, 0, 0, {}};
  std::string problem = perform(transfer);
  if (std::fclose(file.release()) != 0 && problem.empty()) problem = std::strerror(errno);
  if (problem.empty()) return;
  std::error_code ignored;
  fs::remove(path, ignored);
  fail("cannot fetch ", source.url, ": ", problem);
}

}  // namespace tern::data
