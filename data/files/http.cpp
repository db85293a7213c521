#include "tern/data/files/http.h"

#include <curl/curl.h>

#include <cctype>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

namespace tern::data {
namespace {

constexpr size_t kMaxHeaderBytes = size_t{1} << 20;

using HttpBody = std::function<void(const HttpResponse&, std::string_view)>;

struct Exchange {
  const HttpBody& on_body;
  HttpResponse response = {};
  size_t header_bytes = 0;
  std::exception_ptr thrown = {};
};

/// Exceptions do not pass through libcurl: they are kept, and the request ends.
template <class Action>
size_t guarded(Exchange& exchange, size_t size, const Action& action) {
  try {
    action();
    return size;
  } catch (...) {
    exchange.thrown = std::current_exception();
    return size + 1;
  }
}

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

size_t on_http_header(char* data, size_t, size_t size, void* user) {
  Exchange& exchange = *static_cast<Exchange*>(user);
  return guarded(exchange, size, [&] {
    exchange.header_bytes += size;
    TERN_CHECK(exchange.header_bytes <= kMaxHeaderBytes, "the headers of the answer are longer than 1 MiB");
    const std::string_view line(data, size);
    if (line.starts_with("HTTP/")) {  // a new answer, after "100 Continue"
      exchange.response = {.url = exchange.response.url};
      const size_t space = line.find(' ');
      if (space != line.npos) exchange.response.status = std::atoi(std::string(line.substr(space + 1, 4)).c_str());
      return;
    }
    const size_t colon = line.find(':');
    if (colon == line.npos) return;
    std::string name(without_spaces(line.substr(0, colon)));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    exchange.response.headers[name] = std::string(without_spaces(line.substr(colon + 1)));
  });
}

size_t on_http_body(char* data, size_t, size_t size, void* user) {
  Exchange& exchange = *static_cast<Exchange*>(user);
  return guarded(exchange, size, [&] { exchange.on_body(exchange.response, std::string_view(data, size)); });
}

void start_libcurl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

using Url = std::unique_ptr<CURLU, void (*)(CURLU*)>;

/// Throws Error unless libcurl can read the address.
Url parsed_url(const std::string& text) {
  start_libcurl();
  Url url(curl_url(), curl_url_cleanup);
  TERN_CHECK(url && curl_url_set(url.get(), CURLUPART_URL, text.c_str(), CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK,
             "not an address: ", text.substr(0, 200));
  return url;
}

std::string part_of(const Url& url, CURLUPart part, unsigned int flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return "";
  const std::unique_ptr<char, void (*)(void*)> owner(text, curl_free);
  return text;
}

}  // namespace

HttpResponse http_request(const HttpRequest& request, const HttpBody& on_body) {
  start_libcurl();
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  TERN_CHECK(curl, "libcurl could not start");
  std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(nullptr, curl_slist_free_all);
  for (const auto& [name, value] : request.headers) {
    TERN_CHECK((name + value).find_first_of("\r\n") == std::string::npos, "the header ", name, " has a line end in it");
    curl_slist* const longer = curl_slist_append(headers.get(), (name + ": " + value).c_str());
    TERN_CHECK(longer != nullptr, "libcurl has no memory");
    static_cast<void>(headers.release());
    headers.reset(longer);
  }
  Exchange exchange{on_body, {.url = request.url}};
  char message[CURL_ERROR_SIZE] = "";
  const auto set = [&](CURLoption option, auto value) {
    TERN_CHECK(curl_easy_setopt(curl.get(), option, value) == CURLE_OK, "libcurl refuses the request of ", request.url);
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, request.protocols.c_str());
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(std::min<int64_t>(request.stall_seconds, 20)));
  set(CURLOPT_LOW_SPEED_LIMIT, 1000L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_seconds));
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(message));
  set(CURLOPT_HEADERFUNCTION, on_http_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&exchange));
  set(CURLOPT_WRITEFUNCTION, on_http_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&exchange));
  if (request.head) set(CURLOPT_NOBODY, 1L);
  if (request.head) set(CURLOPT_TIMEOUT, static_cast<long>(request.head_seconds));
  const std::string range = std::to_string(request.from) + "-";
  if (request.from > 0) set(CURLOPT_RANGE, range.c_str());
  const CURLcode code = curl_easy_perform(curl.get());
  if (exchange.thrown) std::rethrow_exception(exchange.thrown);
  if (code == CURLE_OK) return exchange.response;
  const std::string reason = message[0] != 0 ? message : curl_easy_strerror(code);
  if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT) fail(reason);
  throw NoAnswerError(reason);
}

std::string resolve_url(const std::string& base, const std::string& location) {
  const Url url = parsed_url(base);
  TERN_CHECK(curl_url_set(url.get(), CURLUPART_URL, location.c_str(), CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK,
             "redirected to what is no address: ", location.substr(0, 200));
  return part_of(url, CURLUPART_URL);
}

std::string origin_of(const std::string& text) {
  const Url url = parsed_url(text);
  std::string host = part_of(url, CURLUPART_HOST);
  for (char& c : host) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::string scheme = part_of(url, CURLUPART_SCHEME);
  TERN_CHECK((scheme == "http" || scheme == "https") && !host.empty(),
             "not an address of http or https: ", text.substr(0, 200));
  return scheme + "://" + host + ":" + part_of(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

}  // namespace tern::data
