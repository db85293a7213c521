#pragma once
// What Tern asks of the hub: which commit a revision is, which files it has, and the headers and bytes of a file.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/files/http.h"
#include "tern/data/hub/names.h"
#include "tern/data/hub/settings.h"

namespace tern::data {

/// The hub refuses, or does not answer as one.
class HubError : public Error {
 public:
  HubError(const std::string& message, int64_t status, std::string code = "")
      : Error(message), status(status), code(std::move(code)) {}
  int64_t status;    // of HTTP; 0: there was no answer
  std::string code;  // "RepoNotFound", "RevisionNotFound", "EntryNotFound", "GatedRepo", or empty
  /// The network or the hub may be well again later.
  bool may_pass() const { return status == 0 || status == 408 || status == 429 || status >= 500; }
};

/// The files of a model at a commit.
struct HubListing {
  std::string commit = {};
  std::vector<std::string> files = {};
};

/// What the hub says of a file before it sends it.
struct HubFile {
  std::string commit = {};  // empty: it does not say
  std::string etag = {};    // the name of the blob: SHA-256 for large files, git's SHA-1 for small ones
  std::optional<int64_t> bytes = {};
};

class HubClient {
 public:
  explicit HubClient(const HubSettings& settings) : settings_(settings) {}

  /// Nothing where the server has files but no lists of them. Throws HubError.
  std::optional<HubListing> list(const HubName& name) const;
  /// Of the model's file at `revision`, which may be the commit that the name's revision is. Throws HubError; its code
  /// is EntryNotFound where there is no such file.
  HubFile describe(const HubName& name, const std::string& revision, const std::string& file) const;
  /// The bytes from `from` on, with the headers of the answer. Throws HubError, and NoAnswerError when it was cut.
  HttpResponse get(const HubName& name, const std::string& revision, const std::string& file, int64_t from,
                   const std::function<void(const HttpResponse& response, std::string_view piece)>& on_body) const;
  /// The seconds that an answer asks to wait, if it does.
  static std::optional<double> asked_wait(const HttpResponse& response);
  /// The error of an answer that is none of success. `what`: "the file 'config.json'", or empty for the model.
  HubError error_of(const HttpResponse& response, const HubName& name, const std::string& what) const;
  /// Sleeps before attempt `attempt`, from 1 on.
  void wait(int attempt, const std::string& reason) const;

 private:
  /// Sends the request again while the hub is busy. Throws HubError when there is no answer.
  HttpResponse ask(const HttpRequest& request, const Redirects& redirects, const HubName& name,
                   std::string* body) const;
  Redirects redirects() const;
  std::string address_of(const HubName& name, const std::string& revision, const std::string& file) const;

  const HubSettings& settings_;
};

}  // namespace tern::data
