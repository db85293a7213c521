#include "tern/data/hub/cache.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/file_kind.h"
#include "tern/core/io/folders.h"
#include "tern/core/io/input_file.h"
#include "tern/core/io/json.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

/// "models--ORG--NAME".
std::string cache_folder_name(const std::string& model) {
  std::string name = "models--" + model;
  if (const size_t slash = name.find('/'); slash != name.npos) name.replace(slash, 1, "--");
  return name;
}

std::string link_target(const std::string& etag, const std::string& file) {
  std::string up = "../../";
  for (const char c : file)
    if (c == '/') up += "../";
  return up + "blobs/" + etag;
}

}  // namespace

HubCache::HubCache(const HubSettings& settings, const std::string& model) : settings_(settings) {
  TERN_CHECK(!settings.cache.empty(), model,
             ": there is no folder to fetch it to: neither HF_HUB_CACHE nor HOME is set");
  std::error_code error;
  cache_ = fs::absolute(settings.cache, error).lexically_normal();
  folder_ = cache_ / cache_folder_name(model);
}

std::optional<std::string> HubCache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  const fs::path path = folder_ / "refs" / revision;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  InputFile file(path.string());
  std::string commit(256, ' ');
  commit.resize(file.read(commit.data(), commit.size()));
  while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back()))) commit.pop_back();
  require_inner_path(commit, path.string() + ": the commit");
  return commit;
}

bool HubCache::has(const std::string& commit, const std::string& file) const {
  std::error_code error;
  return fs::is_regular_file(snapshot(commit) / file, error);
}

std::vector<std::string> HubCache::files(const std::string& commit) const {
  std::vector<std::string> names;
  std::error_code error;
  const fs::path folder = snapshot(commit);
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code none;
    if (fs::is_regular_file(it->path(), none)) names.push_back(it->path().lexically_relative(folder).generic_string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::vector<std::string>> HubCache::tree(const std::string& commit) const {
  const fs::path path = folder_ / "trees" / (commit + ".json");
  if (!tern::detail::name_exists(path.string())) return std::nullopt;
  std::vector<std::string> names;
  try {
    const nlohmann::json list = read_json_object(path.string());
    if (list.value("format_version", 0) != 1 || !list.contains("files") || !list["files"].is_object())
      return std::nullopt;
    for (const auto& [name, file] : list["files"].items()) names.push_back(name);
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const std::exception&) {  // a list that is damaged, or of another version, says nothing
    return std::nullopt;
  }
  return names;
}

void HubCache::create(const std::string& commit) const {
  create_folders((folder_ / "blobs").string());
  create_folders(snapshot(commit).string());
  const std::string tag = (cache_ / "CACHEDIR.TAG").string();
  if (tern::detail::name_exists(tag)) return;
  try {
    write_atomically(tag,
                     "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of Hugging Face's hub (huggingface_hub, "
                     "tern fetch): https://bford.info/cachedir/\n");
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error&) {  // of use to backups alone
  }
}

void HubCache::link(const std::string& etag, const std::string& commit, const std::string& file, bool fresh) const {
  const fs::path path = snapshot(commit) / file;
  create_folders(path.parent_path().string());
  const std::string target = link_target(etag, file);
  bool made = settings_.links && symlink(target.c_str(), path.c_str()) == 0;
  if (settings_.links && !made && errno == EEXIST && !has(commit, file)) {  // the blob that it led to is gone
    TERN_CHECK(unlink(path.c_str()) == 0, path.string(), ": cannot be replaced: ", std::strerror(errno));
    made = symlink(target.c_str(), path.c_str()) == 0;
  }
  if (!made && has(commit, file)) return;  // another process was faster
  if (!made) {
    const bool unsupported = !settings_.links || errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS;
    TERN_CHECK(unsupported, path.string(), ": cannot be created: ", std::strerror(errno));
    const fs::path copy = blob(etag + ".copy");
    std::error_code error;
    if (!fresh) fs::copy_file(blob(etag), copy, fs::copy_options::overwrite_existing, error);
    if (!error) fs::rename(fresh ? blob(etag) : copy, path, error);
    TERN_CHECK(!error, path.string(), ": cannot be created: ", error.message());
  }
  sync_folder(path.parent_path().string());
}

void HubCache::record(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return;
  const fs::path path = folder_ / "refs" / revision;
  try {
    if (commit_of(revision) == commit) return;
    create_folders(path.parent_path().string());
    write_atomically(path.string(), commit);
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    settings_.say(std::string("the commit of the revision is not recorded: ") + error.what());
  }
}

void HubCache::record_absent(const std::string& commit, const std::string& file) const {
  const fs::path path = folder_ / ".no_exist" / commit / file;
  if (commit.empty() || tern::detail::name_exists(path.string())) return;
  try {
    create_folders(path.parent_path().string());
    write_atomically(path.string(), "");
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error&) {  // it is asked for again the next time
  }
}

}  // namespace tern::data
