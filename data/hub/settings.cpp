#include "tern/data/hub/settings.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/input_file.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool is_true(const std::string& value) {
  std::string upper = value;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper == "1" || upper == "ON" || upper == "YES" || upper == "TRUE";
}

std::string home_folder() {
  if (const std::string home = variable("HOME"); !home.empty()) return home;
  const passwd* const user = getpwuid(getuid());
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "";
}

/// With the home folder for "~" at the beginning, and the values of $NAME and ${NAME} where they are set.
fs::path expanded(std::string path) {
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, home_folder());
  std::string whole;
  for (size_t at = 0; at < path.size();) {
    const bool braces = path.compare(at, 2, "${") == 0;
    const size_t begin = at + (braces ? 2 : 1);
    size_t end = begin;
    while (end < path.size() && (std::isalnum(static_cast<unsigned char>(path[end])) || path[end] == '_')) ++end;
    const bool names = path[at] == '$' && end > begin && (!braces || (end < path.size() && path[end] == '}'));
    const char* const value = names ? std::getenv(path.substr(begin, end - begin).c_str()) : nullptr;
    if (value == nullptr) {
      whole += path[at++];
    } else {
      whole += value;
      at = end + (braces ? 1 : 0);
    }
  }
  return whole;
}

/// The value of the first variable that is not empty, else `otherwise`.
fs::path folder_of(std::initializer_list<const char*> names, const fs::path& otherwise) {
  for (const char* name : names)
    if (const std::string value = variable(name); !value.empty()) return expanded(value);
  return otherwise;
}

int64_t seconds_of(const char* name, int64_t otherwise) {
  const std::string value = variable(name);
  if (value.empty()) return otherwise;
  const bool whole = value.size() <= 6 && value.find_first_not_of("0123456789") == std::string::npos;
  TERN_CHECK(whole, name, ": expected a whole number of seconds, got '", value.substr(0, 40), "'");
  return std::max<int64_t>(std::stoll(value), 1);
}

/// The token without surrounding white space. White space inside it is refused: a line end would begin another header.
std::string clean_token(const std::string& text, const std::string& source) {
  const char* const spaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(spaces);
  if (begin == std::string::npos) return "";
  const std::string token = text.substr(begin, text.find_last_not_of(spaces) - begin + 1);
  const bool plain = std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > ' ' && c < 127; });
  TERN_CHECK(plain && token.size() <= 4096, source, ": holds no token: a token is one word of ASCII");
  return token;
}

std::string token_of(const fs::path& home) {
  if (is_true(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return "";
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (const std::string value = variable(name); !value.empty()) return clean_token(value, name);
  const fs::path path = folder_of({"HF_TOKEN_PATH"}, home.empty() ? home : home / "token");
  if (path.empty() || !tern::detail::name_exists(path.string())) return "";
  InputFile file(path.string());
  TERN_CHECK(file.bytes() <= 8192, path.string(), ": holds no token: ", file.bytes(), " bytes");
  std::string text(8192, ' ');
  text.resize(file.read(text.data(), text.size()));
  return clean_token(text, path.string());
}

}  // namespace

HubSettings hub_settings() {
  HubSettings settings;
  if (const std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty()) {
    settings.endpoint = endpoint.substr(0, endpoint.find_last_not_of('/') + 1);
    TERN_CHECK(settings.endpoint.starts_with("http://") || settings.endpoint.starts_with("https://"),
               "HF_ENDPOINT: expected an address such as https://huggingface.co, got '", endpoint.substr(0, 100), "'");
  }
  const std::string user = home_folder();
  const fs::path caches = folder_of({"XDG_CACHE_HOME"}, user.empty() ? fs::path() : fs::path(user) / ".cache");
  const fs::path home = folder_of({"HF_HOME"}, caches.empty() ? caches : caches / "huggingface");
  settings.cache = folder_of({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}, home.empty() ? home : home / "hub").string();
  settings.token = token_of(home);
  const std::string offline = variable("HF_HUB_OFFLINE");
  settings.offline = is_true(offline.empty() ? variable("TRANSFORMERS_OFFLINE") : offline);
  settings.links = !is_true(variable("HF_HUB_DISABLE_SYMLINKS"));
  settings.head_seconds = seconds_of("HF_HUB_ETAG_TIMEOUT", settings.head_seconds);
  settings.stall_seconds = seconds_of("HF_HUB_DOWNLOAD_TIMEOUT", settings.stall_seconds);
  return settings;
}

}  // namespace tern::data
