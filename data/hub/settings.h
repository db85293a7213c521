#pragma once
// Where Hugging Face's hub and its cache are, by the variables that huggingface_hub 2.4 reads.

#include <cstdint>
#include <functional>
#include <string>

namespace tern::data {

struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // without a slash at its end
  std::string cache = {};                           // holds the folders models--ORG--NAME; empty: there is none
  std::string token = {};                           // empty: none is sent
  bool offline = false;
  bool links = true;          // false: a snapshot holds the files themselves
  int64_t head_seconds = 10;  // for the headers of a file
  int64_t stall_seconds = 10;
  int attempts = 5;         // of a request that is refused for now, or cut without a new byte
  double wait_seconds = 1;  // before the second of them; twice as long before each further one
  std::function<void(const std::string& line)> log = {};  // progress

  void say(const std::string& line) const {
    if (log) log(line);
  }
};

/// endpoint: HF_ENDPOINT. cache: HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else the folder hub in HF_HOME, which is by
/// default the folder huggingface in XDG_CACHE_HOME or ~/.cache; "~" and $NAME in them are replaced. token: HF_TOKEN,
/// else HUGGING_FACE_HUB_TOKEN, else the file HF_TOKEN_PATH, by default HF_HOME/token; none with
/// HF_HUB_DISABLE_IMPLICIT_TOKEN. offline: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE. links: HF_HUB_DISABLE_SYMLINKS.
/// Seconds: HF_HUB_ETAG_TIMEOUT, HF_HUB_DOWNLOAD_TIMEOUT. Throws Error that names the variable for a value of another
/// form, and the file for one that is no token.
HubSettings hub_settings();

}  // namespace tern::data
