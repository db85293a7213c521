#include "tern/data/hub/client.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tern/core/io/json.h"
#include "tern/core/io/pickle.h"

namespace tern::data {
namespace {

constexpr size_t kMaxListBytes = size_t{64} << 20;  // some hundred thousand files
constexpr double kMaxAskedSeconds = 10;             // a longer wait is the user's to decide
const char* const kAgent = "tern";

/// The whole number in the text, if that is all there is.
std::optional<int64_t> number_in(const std::string& text) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
  return std::stoll(text);
}

/// W/"abc" and "abc" name the same blob as abc.
std::string plain_etag(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  while (etag.ends_with('"')) etag.pop_back();
  etag.erase(0, std::min(etag.find_first_not_of('"'), etag.size()));
  return etag;
}

/// The address of rel="next" in a header Link.
std::string next_page(const std::string& links) {
  std::istringstream parts(links);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t begin = part.find('<'), end = part.find('>');
    if (begin != part.npos && end != part.npos && begin < end && part.find("rel=\"next\"", end) != part.npos)
      return part.substr(begin + 1, end - begin - 1);
  }
  return "";
}

std::string text_in(const nlohmann::json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string in_text(const HubName& name) { return name.model + (name.revision == "main" ? "" : "@" + name.revision); }

}  // namespace

Redirects HubClient::redirects() const {
  Redirects redirects;
  if (!settings_.token.empty()) redirects.secret = {{"Authorization", "Bearer " + settings_.token}};
  // A model that was renamed is at another address of the hub; files are often on another host, which gets no token.
  redirects.trusts = [own = origin_of(settings_.endpoint)](const std::string& origin) {
    return origin == own || origin == "https://huggingface.co:443" || origin == "https://hf.co:443";
  };
  return redirects;
}

std::string HubClient::address_of(const HubName& name, const std::string& revision, const std::string& file) const {
  return settings_.endpoint + "/" + name.model + "/resolve/" + url_quoted(revision) + "/" + url_quoted(file, "/");
}

std::optional<double> HubClient::asked_wait(const HttpResponse& response) {
  if (const auto seconds = number_in(response.header("retry-after"))) return static_cast<double>(*seconds);
  // RateLimit: "api";r=0;t=55
  const std::string& limit = response.header("ratelimit");
  const size_t at = limit.find("t=");
  if (at == limit.npos) return std::nullopt;
  const size_t end = std::min(limit.find_first_not_of("0123456789", at + 2), limit.size());
  const auto seconds = number_in(limit.substr(at + 2, end - at - 2));
  return seconds ? std::optional(static_cast<double>(*seconds)) : std::nullopt;
}

void HubClient::wait(int attempt, const std::string& reason) const {
  const double seconds = settings_.wait_seconds * std::pow(2, attempt - 1);
  std::ostringstream shown;
  shown << seconds;
  settings_.say("hub: " + reason + "; trying again in " + shown.str() + " s");
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

HubError HubClient::error_of(const HttpResponse& response, const HubName& name, const std::string& what) const {
  const std::string code = response.header("x-error-code");
  const std::string said = tern::detail::printable(response.header("x-error-message"), 200);
  std::string text = in_text(name) + ": ";
  const std::string number =
      " (HTTP " + std::to_string(response.status) + (said.empty() ? "" : ", \"" + said + "\"") + ")";
  const std::string page = settings_.endpoint + "/" + name.model;
  const bool known = !settings_.token.empty();
  if (code == "GatedRepo" || (response.status == 403 && code.empty())) {
    text +=
        settings_.endpoint + " gives no access" + number + "; " +
        (known ? "accept the model's terms on " + page + " as the owner of the token, whose rights must include reading"
               : "accept the model's terms on " + page +
                     ", then set HF_TOKEN to a token of yours, or log in (hf auth login)");
  } else if (code == "RevisionNotFound") {
    text += "the model has no revision '" + tern::detail::printable(name.revision) + "'" + number +
            "; a branch, a tag or a whole commit is one";
  } else if (code == "EntryNotFound" || (response.status == 404 && !what.empty() && code.empty())) {
    text += "the model has no " + what + number;
  } else if (response.status == 401 && known) {
    text += settings_.endpoint + " does not accept the token of HF_TOKEN or of the token file" + number +
            ", or the model does not exist; log in anew (hf auth login)";
  } else if (code == "RepoNotFound" || response.status == 401 || response.status == 404) {
    text += settings_.endpoint + " has no such model" + number + "; " +
            (known ? "compare the name with its page, and whether the token may read it"
                   : "compare the name with its page; for a private one set HF_TOKEN, or log in (hf auth login)");
  } else if (response.status == 429) {
    const auto seconds = asked_wait(response);
    text += settings_.endpoint + " refuses further requests for now" + number + "; try again " +
            (seconds ? "in " + std::to_string(static_cast<int64_t>(*seconds)) + " s" : std::string("later")) +
            (known ? "" : ", or with HF_TOKEN, which allows more of them");
  } else if (response.status >= 500 || response.status == 408) {
    text += settings_.endpoint + " fails" + number + "; try again later";
  } else {
    text += settings_.endpoint + " does not answer as a hub" + number + "; compare HF_ENDPOINT";
  }
  return {text, response.status, code};
}

HttpResponse HubClient::ask(const HttpRequest& request, const Redirects& redirects, const HubName& name,
                            std::string* body) const {
  for (int attempt = 1;; ++attempt) {
    if (body != nullptr) body->clear();
    std::string reason;
    try {
      HttpResponse response = http_follow(request, redirects, [&](const HttpResponse&, std::string_view piece) {
        if (body == nullptr) return;
        TERN_CHECK(body->size() + piece.size() <= kMaxListBytes, "the answer is longer than ", kMaxListBytes, " bytes");
        body->append(piece);
      });
      const bool busy = response.status == 408 || response.status == 429 || response.status >= 500;
      const double asked = asked_wait(response).value_or(0);
      if (!busy || attempt >= std::min(settings_.attempts, 3) || asked > kMaxAskedSeconds) return response;
      if (asked > 0) std::this_thread::sleep_for(std::chrono::duration<double>(asked));
      reason = "HTTP " + std::to_string(response.status);
    } catch (const NoAnswerError& error) {
      reason = error.what();
      if (attempt >= std::min(settings_.attempts, 2))
        throw HubError(in_text(name) + ": " + settings_.endpoint + " does not answer: " + reason, 0);
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const Error& error) {
      fail(in_text(name), ": ", settings_.endpoint, ": ", error.what());
    }
    wait(attempt, reason);
  }
}

std::optional<HubListing> HubClient::list(const HubName& name) const {
  HttpRequest request{
      .url = settings_.endpoint + "/api/models/" + name.model + "/revision/" + url_quoted(name.revision),
      .headers = {{"User-Agent", kAgent}},
      .stall_seconds = settings_.stall_seconds};
  std::string body;
  const HttpResponse response = ask(request, redirects(), name, &body);
  if (response.status == 404 && response.header("x-error-code").empty()) return std::nullopt;
  if (response.status != 200) throw error_of(response, name, "");
  const std::string source = name.model + ": the hub's description of the model";
  const nlohmann::json described = parse_json_object(body, source);
  HubListing listing{.commit = text_in(described, "sha")};
  const bool plain = !listing.commit.empty() && listing.commit.size() <= 64 &&
                     listing.commit.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  TERN_CHECK(plain, source, ": \"sha\" must be a commit, got '", tern::detail::printable(listing.commit), "'");
  const auto files = described.find("siblings");
  if (files != described.end() && files->is_array()) {
    for (const nlohmann::json& file : *files)
      if (std::string path = text_in(file, "rfilename"); !path.empty()) listing.files.push_back(std::move(path));
    return listing;
  }
  request.url = settings_.endpoint + "/api/models/" + name.model + "/tree/" + listing.commit + "?recursive=true";
  constexpr int kMaxPages = 1000;
  for (int page = 0; !request.url.empty(); ++page) {
    TERN_CHECK(page < kMaxPages, name.model, ": the hub's list of files has more than ", kMaxPages, " pages");
    const HttpResponse answer = ask(request, redirects(), name, &body);
    if (answer.status == 404 && answer.header("x-error-code").empty()) return std::nullopt;
    if (answer.status != 200) throw error_of(answer, name, "");
    const nlohmann::json tree = parse_json(body, name.model + ": the hub's list of files");
    TERN_CHECK(tree.is_array(), name.model, ": the hub's list of files must be an array, got ", shortened(tree));
    for (const nlohmann::json& entry : tree)
      if (text_in(entry, "type") != "directory") listing.files.push_back(text_in(entry, "path"));
    const std::string next = next_page(answer.header("link"));
    request.url = next.empty() ? "" : resolve_url(request.url, next);
    TERN_CHECK(next.empty() || redirects().trusts(origin_of(request.url)), name.model,
               ": the hub's list of files continues on another host: ", request.url.substr(0, 200));
  }
  return listing;
}

HubFile HubClient::describe(const HubName& name, const std::string& revision, const std::string& file) const {
  Redirects own = redirects();
  // What is said of the file is in the redirect to another host, and in any that says something of it.
  own.ends_at = [](const HttpResponse& redirect, bool trusted) {
    return !trusted || !redirect.header("x-linked-etag").empty();
  };
  const HttpResponse response = ask({.url = address_of(name, revision, file),
                                     .head = true,
                                     .headers = {{"Accept-Encoding", "identity"}, {"User-Agent", kAgent}},
                                     .head_seconds = settings_.head_seconds,
                                     .stall_seconds = settings_.head_seconds},
                                    own, name, nullptr);
  const std::string what = "file '" + tern::detail::printable(file, 200) + "'";
  const bool redirected = is_redirect(response);
  if (response.status != 200 && !redirected) throw error_of(response, name, what);
  HubFile described{.commit = response.header("x-repo-commit")};
  const std::string& linked = response.header("x-linked-etag");
  described.etag = plain_etag(linked.empty() ? response.header("etag") : linked);
  const auto plain = [](unsigned char c) { return c < 128 && (std::isalnum(c) || c == '-' || c == '_'); };
  if (described.etag.empty() || described.etag.size() > 128 ||
      !std::all_of(described.etag.begin(), described.etag.end(), plain))
    throw HubError(
        in_text(name) + ": " + settings_.endpoint + " does not answer as a hub: the ETag of the " + what +
            (described.etag.empty() ? " is missing" : " is '" + tern::detail::printable(described.etag) + "'") +
            "; compare HF_ENDPOINT",
        response.status);
  const std::string& linked_size = response.header("x-linked-size");
  const std::string& size = !linked_size.empty() || redirected ? linked_size : response.header("content-length");
  described.bytes = number_in(size);
  TERN_CHECK(size.empty() || described.bytes, in_text(name), ": the hub gives the ", what, " a size of '",
             tern::detail::printable(size, 40), "' bytes");
  return described;
}

HttpResponse HubClient::get(const HubName& name, const std::string& revision, const std::string& file, int64_t from,
                            const std::function<void(const HttpResponse&, std::string_view)>& on_body) const {
  return http_follow({.url = address_of(name, revision, file),
                      .from = from,
                      .headers = {{"Accept-Encoding", "identity"}, {"User-Agent", kAgent}},
                      .stall_seconds = settings_.stall_seconds},
                     redirects(), on_body);
}

}  // namespace tern::data
