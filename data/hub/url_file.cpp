// Files by their address, in Tern's own cache.

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/file_kind.h"
#include "tern/core/io/folders.h"
#include "tern/core/io/json.h"
#include "tern/core/io/pickle.h"
#include "tern/data/files/file_lock.h"
#include "tern/data/files/files.h"
#include "tern/data/files/sha256.h"
#include "tern/data/hub/hub.h"
#include "tern/data/hub/receive.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

struct UrlParts {
  std::string url = {}, name = {};  // without the sum; of the file
  std::string sum = {};             // SHA-256, or empty
};

/// In lower case; empty unless all are hexadecimal digits.
std::string lower_hex(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text.find_first_not_of("0123456789abcdef") == std::string::npos ? text : "";
}

UrlParts parts_of_url(const std::string& text) {
  const size_t end = std::min(text.find('#'), text.size());
  UrlParts parts{.url = url_quoted(text.substr(0, end), ":/?[]@!$&'()*+,;=%")};  // a space becomes %20
  if (end < text.size()) {
    const std::string behind = text.substr(end);
    parts.sum = lower_hex(behind.starts_with("#sha256=") ? behind.substr(8) : "");
    TERN_CHECK(parts.sum.size() == 64, text, ": expected #sha256= and 64 hexadecimal digits behind the address");
  }
  std::string path = parts.url.substr(0, parts.url.find('?'));
  parts.name = path.substr(path.rfind('/') + 1);
  std::replace_if(
      parts.name.begin(), parts.name.end(), [](unsigned char c) { return c <= ' ' || c >= 127 || c == '\\'; }, '_');
  if (parts.name.empty() || parts.name.front() == '.' || parts.name.size() > 200) parts.name = "file";
  return parts;
}

/// What is known of the file that is there.
struct UrlRecord {
  std::string sum = {}, etag = {}, modified = {};
  int64_t bytes = -1;
};

UrlRecord read_url_record(const fs::path& path) {
  UrlRecord record;
  if (!tern::detail::name_exists(path.string())) return record;
  try {
    const nlohmann::json json = read_json_object(path.string());
    record = {json.value("sha256", ""), json.value("etag", ""), json.value("last_modified", ""),
              json.value("bytes", int64_t{-1})};
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const std::exception&) {  // a damaged record: the file is fetched again
    return {};
  }
  return record;
}

class UrlFetch {
 public:
  UrlFetch(const std::string& text, const HubSettings& settings) : settings_(settings), parts_(parts_of_url(text)) {
    const fs::path cache = cache_directory();
    TERN_CHECK(!cache.empty(), text, ": no folder to fetch it to: neither XDG_CACHE_HOME nor HOME is set");
    folder_ = cache / "urls" / sha256(parts_.url).substr(0, 32);
    path_ = folder_ / parts_.name;
  }

  std::string run() {
    record_ = read_url_record(record_path());
    if (is_there() && !parts_.sum.empty()) return path_.string();
    if (settings_.offline && !parts_.url.starts_with("file:")) {
      TERN_CHECK(is_there(), parts_.url, ": HF_HUB_OFFLINE is set, and the cache ", folder_.string(), " lacks the file",
                 "; unset it, or fetch it where there is a network");
      return path_.string();
    }
    create_folders(folder_.string());
    const FileLock lock(folder_ / ".lock",
                        [&] { settings_.say(parts_.url + ": waiting for another process that fetches it"); });
    record_ = read_url_record(record_path());
    if (is_there() && !parts_.sum.empty()) return path_.string();
    PartialFile part(folder_ / (parts_.name + ".incomplete"));
    if (parts_.sum.empty() && part.bytes() > 0) part.restart();  // of which version it is a part is not known
    try {
      fetch(part);
    } catch (const Unchanged&) {
      part.remove();
    }
    return path_.string();
  }

 private:
  struct Unchanged {};

  fs::path record_path() const { return folder_ / "source.json"; }

  bool is_there() const {
    std::error_code error;
    const auto bytes = fs::file_size(path_, error);
    return !error && static_cast<int64_t>(bytes) == record_.bytes && (parts_.sum.empty() || parts_.sum == record_.sum);
  }

  void fetch(PartialFile& part) {
    HttpRequest request{.url = parts_.url,
                        .headers = {{"Accept-Encoding", "identity"}},
                        .protocols = "https,http,file",
                        .stall_seconds = std::max<int64_t>(settings_.stall_seconds, 60)};
    if (is_there() && !record_.etag.empty()) request.headers.emplace_back("If-None-Match", record_.etag);
    if (is_there() && !record_.modified.empty()) request.headers.emplace_back("If-Modified-Since", record_.modified);
    const FileSource source{.what = parts_.url,
                            .bytes = std::nullopt,
                            .get =
                                [&](int64_t from, const auto& on_body) {
                                  request.from = from;
                                  return http_follow(request, {}, on_body);
                                },
                            .refuse =
                                [&](const HttpResponse& answer) {
                                  if (answer.status == 304 && is_there()) throw Unchanged();
                                  fail(parts_.url, ": the server answers HTTP ", answer.status);
                                }};
    settings_.say("fetching " + parts_.url);
    HttpResponse answer;
    try {
      answer = receive(part, source, settings_);
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const Error& error) {
      const std::string text = error.what();
      fail(text.starts_with(parts_.url) ? "" : parts_.url + ": ", text);
    }
    const std::string sum = part.sha256();
    if (!parts_.sum.empty() && sum != parts_.sum) {
      part.remove();
      fail(parts_.url, ": its sha256 is ", sum, ", expected ", parts_.sum, "; nothing of it is kept");
    }
    const int64_t bytes = part.bytes();
    part.finish(path_);
    write_atomically(record_path().string(), nlohmann::ordered_json{{"url", parts_.url},
                                                                    {"bytes", bytes},
                                                                    {"sha256", sum},
                                                                    {"etag", answer.header("etag")},
                                                                    {"last_modified", answer.header("last-modified")}}
                                                     .dump(2) +
                                                 "\n");
  }

  const HubSettings& settings_;
  const UrlParts parts_;
  fs::path folder_, path_;
  UrlRecord record_;
};

}  // namespace

std::string fetch_url(const std::string& url, const HubSettings& settings) {
  if (const auto name = hub_name(url, settings.endpoint)) return fetch_model(*name, {}, settings);
  TERN_CHECK(is_url(url), url, ": is no address of http, https or file");
  return UrlFetch(url, settings).run();
}

}  // namespace tern::data
