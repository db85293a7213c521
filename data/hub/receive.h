#pragma once
// Receiving a file that may come in several requests.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tern/data/files/http.h"
#include "tern/data/files/partial_file.h"
#include "tern/data/hub/settings.h"

namespace tern::data {

struct FileSource {
  std::string what;              // for messages: "ORG/NAME: model.safetensors"
  std::optional<int64_t> bytes;  // unknown: as the answer says
  /// Asks for the bytes from `from` on.
  std::function<HttpResponse(int64_t from, const std::function<void(const HttpResponse&, std::string_view)>& on_body)>
      get;
  /// Throws the error of an answer that is none of success.
  std::function<void(const HttpResponse&)> refuse;
};

/// Appends what the file lacks. A request that is cut is continued where it ended, as often as `attempts` without a new
/// MiB; if the server answers with the whole file, it is received from its start. Throws Error where more or fewer
/// bytes come than were declared, and where the network stays away: what came is then kept. The result is the last
/// answer.
HttpResponse receive(PartialFile& file, const FileSource& source, const HubSettings& settings);

}  // namespace tern::data
