// TERN_CURL=OFF.

#include "tern/data/files/http.h"

#include "tern/data/without/part.h"

namespace tern::data {

HttpResponse http_request(const HttpRequest& request,
                          const std::function<void(const HttpResponse&, std::string_view)>&) {
  fail_without("cannot fetch " + request.url, "libcurl", "TERN_CURL");
}

std::string resolve_url(const std::string& base, const std::string&) {
  fail_without("cannot fetch " + base, "libcurl", "TERN_CURL");
}

std::string origin_of(const std::string& url) { fail_without("cannot fetch " + url, "libcurl", "TERN_CURL"); }

}  // namespace tern::data
