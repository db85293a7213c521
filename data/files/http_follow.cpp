// What http.h has on top of libcurl.

#include <algorithm>
#include <cctype>

#include "tern/data/files/http.h"

namespace tern::data {

const std::string& HttpResponse::header(const std::string& name) const {
  static const std::string none;
  const auto found = headers.find(name);
  return found == headers.end() ? none : found->second;
}

std::string url_quoted(std::string_view text, std::string_view safe) {
  std::string quoted;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 128 && (std::isalnum(byte) || std::string_view("_.-~").find(c) != std::string_view::npos ||
                       safe.find(c) != safe.npos)) {
      quoted += c;
    } else {
      quoted += '%';
      quoted += "0123456789ABCDEF"[byte >> 4];
      quoted += "0123456789ABCDEF"[byte & 15];
    }
  }
  return quoted;
}

bool is_redirect(const HttpResponse& response) {
  constexpr int64_t kRedirects[] = {301, 302, 303, 307, 308};
  return std::count(std::begin(kRedirects), std::end(kRedirects), response.status) > 0 &&
         !response.header("location").empty();
}

HttpResponse http_follow(HttpRequest request, const Redirects& redirects,
                         const std::function<void(const HttpResponse& response, std::string_view piece)>& on_body) {
  constexpr int kMaxRedirects = 5;
  const auto body_of_last = [&](const HttpResponse& response, std::string_view piece) {
    if (!is_redirect(response)) on_body(response, piece);
  };
  // An address of a file has no origin, and no secret is sent to it.
  const std::string first = request.url.starts_with("http") ? origin_of(request.url) : "";
  const auto trusted = [&](const std::string& origin) {
    return origin == first || (redirects.trusts && redirects.trusts(origin));
  };
  const auto open_headers = request.headers;
  for (int count = 0; count <= kMaxRedirects; ++count) {
    request.headers = open_headers;
    if (!first.empty() && trusted(origin_of(request.url)))
      request.headers.insert(request.headers.end(), redirects.secret.begin(), redirects.secret.end());
    HttpResponse response = http_request(request, body_of_last);
    if (!is_redirect(response)) return response;
    const std::string next = resolve_url(request.url, response.header("location")), origin = origin_of(next);
    if (redirects.ends_at && redirects.ends_at(response, trusted(origin))) return response;
    TERN_CHECK(!request.url.starts_with("https:") || next.starts_with("https:"), "redirected from https to ", next,
               ", which is not encrypted");
    request.url = next;
  }
  fail("redirected more than ", kMaxRedirects, " times, last to ", request.url);
}

}  // namespace tern::data
