#pragma once
// Requests over HTTP, and reading of file: addresses, by libcurl. A build without TERN_CURL throws Error in place of
// each.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tern/kernels/base/check.h"

namespace tern::data {

/// There was no whole answer: no network, no such host, no connection, a connection that was cut or that stood still.
class NoAnswerError : public Error {
 public:
  using Error::Error;
};

struct HttpRequest {
  std::string url = {};
  bool head = false;  // only the headers of the answer
  int64_t from = 0;   // the first byte that is wanted; > 0: by Range
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string protocols = "https,http";  // those that are allowed
  int64_t head_seconds = 60;             // for a whole request of the headers
  int64_t stall_seconds = 60;            // given up after so many seconds below 1 kB/s
};

struct HttpResponse {
  int64_t status = 0;                               // 0 for file: addresses
  std::map<std::string, std::string> headers = {};  // names in lower case; the last of several with one name
  std::string url = {};                             // that was asked
  /// The value, or "" without the header.
  const std::string& header(const std::string& name) const;
};

/// Sends one request and follows no redirect. `on_body` gets the pieces of the body, and what it throws ends the
/// request and is thrown. Throws NoAnswerError where no whole answer came; a status such as 404 is an answer. Its
/// message is the reason alone: "Could not resolve host: example.org". Headers of more than 1 MiB are an Error.
HttpResponse http_request(const HttpRequest& request,
                          const std::function<void(const HttpResponse& response, std::string_view piece)>& on_body);

/// How redirects are followed.
struct Redirects {
  std::vector<std::pair<std::string, std::string>> secret = {};  // headers that only trusted origins get
  std::function<bool(const std::string& origin)> trusts = {};    // empty: none but that of the request
  /// For a redirect that is itself the answer; `trusted`: whether it leads to a trusted origin. Empty: none is.
  std::function<bool(const HttpResponse& redirect, bool trusted)> ends_at = {};
};

/// http_request, and the requests that up to five redirects ask for; `on_body` gets the last answer's body. Throws
/// Error for more redirects, and for one from https to http. The result's `url` is where the answer came from.
HttpResponse http_follow(HttpRequest request, const Redirects& redirects,
                         const std::function<void(const HttpResponse& response, std::string_view piece)>& on_body);
/// True for an answer that names another address.
bool is_redirect(const HttpResponse& response);

/// The address that a redirect from `base` to `location` (whole or relative) names. Throws Error where that is none.
std::string resolve_url(const std::string& base, const std::string& location);
/// "https://host:443": what must be equal for a secret to be sent to both. Throws Error for what is no http address.
std::string origin_of(const std::string& url);
/// The text as a part of an address: what is not a letter, a digit or one of "_.-~" and `safe` becomes %XX.
std::string url_quoted(std::string_view text, std::string_view safe = "");

}  // namespace tern::data
