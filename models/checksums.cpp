#include "tern/models/checksums.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/input_file.h"
#include "tern/core/io/json.h"
#include "tern/data/files/sha256.h"
#include "tern/kernels/base/check.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kChecksums = "checksums.json";

struct Digest {
  uint64_t bytes = 0;
  std::string sha256;
};

Digest digest_of(const fs::path& path) {
  InputFile file(path.string());
  Digest digest;
  data::Sha256 hash;
  std::vector<char> buffer(1 << 20);
  while (const size_t count = file.read(buffer.data(), buffer.size())) {
    hash.update(std::string_view(buffer.data(), count));
    digest.bytes += count;
  }
  digest.sha256 = hash.hex();
  return digest;
}

Json read_checksums(const fs::path& path) {
  try {
    return Json(read_json_object(path.string()));
  } catch (const Error& error) {
    fail(error.what(), "; the checkpoint is damaged or incomplete");
  }
}

}  // namespace

void write_checksums(const std::string& dir) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(dir)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  Json json;
  for (const fs::path& file : files) {
    const Digest digest = digest_of(file);
    json[file.filename().string()] = {{"bytes", digest.bytes}, {"sha256", digest.sha256}};
  }
  write_atomically((fs::path(dir) / kChecksums).string(), json.dump(2) + "\n");
}

void check_checksums(const std::string& dir, const std::vector<std::string>& except) {
  const fs::path list = fs::path(dir) / kChecksums;
  const Json json = read_checksums(list);
  TERN_CHECK(!json.empty(), list.string(), ": is empty; the checkpoint is damaged");
  for (const auto& [name, wanted] : json.items()) {
    TERN_CHECK(wanted.is_object() && wanted.contains("bytes") && wanted["bytes"].is_number_unsigned() &&
                   wanted.contains("sha256") && wanted["sha256"].is_string() &&
                   fs::path(name).filename() == fs::path(name),
               list.string(), ": is damaged");
    if (std::find(except.begin(), except.end(), name) != except.end()) continue;
    const fs::path path = fs::path(dir) / name;
    const Digest digest = digest_of(path);
    TERN_CHECK(digest.bytes == wanted["bytes"].get<uint64_t>(), path.string(), ": has ", digest.bytes,
               " bytes instead of ", wanted["bytes"].get<uint64_t>(), "; the checkpoint is damaged");
    TERN_CHECK(digest.sha256 == wanted["sha256"].get<std::string>(), path.string(),
               ": its checksum is wrong; the checkpoint is damaged");
  }
}

void check_model_files(const std::string& path) {
  std::error_code ignored;
  fs::path dir = path;
  if (!fs::is_directory(dir, ignored)) dir = dir.parent_path();
  // Only checkpoints of Tern have a state.json; checksums.json of another program has another form.
  if (!fs::exists(dir / kChecksums, ignored) || !fs::exists(dir / "state.json", ignored)) return;
  // What only a resumed run reads may be missing: it is three quarters of a checkpoint.
  check_checksums(dir.string(), {"optimizer.safetensors", "best.safetensors", "state.json"});
}

}  // namespace tern::models
