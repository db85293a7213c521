#include "tern/data/hub/names.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "tern/core/io/pickle.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

/// A part of a name on the hub: up to 96 letters, digits and "_-.", of which "-" and "." are not the first or the last
/// and do not stand twice in a row.
bool is_hub_word(const std::string& word) {
  const auto plain = [](unsigned char c) { return c < 128 && (std::isalnum(c) || c == '_' || c == '-' || c == '.'); };
  const auto at_end = [](char c) { return c == '-' || c == '.'; };
  return !word.empty() && word.size() <= 96 && std::all_of(word.begin(), word.end(), plain) && !at_end(word.front()) &&
         !at_end(word.back()) && word.find("--") == word.npos && word.find("..") == word.npos;
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == '/')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts, size_t begin) {
  std::string text;
  for (size_t i = begin; i < parts.size(); ++i) text += (i > begin ? "/" : "") + parts[i];
  return text;
}

bool is_inner_path(const std::string& text) {
  if (text.size() > 4096) return false;
  for (const std::string& part : parts_of(text)) {
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    for (const unsigned char c : part)
      if (c < ' ' || c == 127 || c == '\\') return false;
  }
  return true;
}

/// What %XX stands for is put in its place; other text stays.
std::string unquoted(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool quoted = text[i] == '%' && i + 2 < text.size() &&
                        std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                        std::isxdigit(static_cast<unsigned char>(text[i + 2]));
    plain += quoted ? static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16)) : text[i];
    if (quoted) i += 2;
  }
  return plain;
}

/// ".../ORG/NAME/tree/REVISION": the parts of an address behind the host.
HubName name_in_address(const std::vector<std::string>& parts, const std::string& text) {
  constexpr const char* kKinds[] = {"datasets", "spaces", "kernels", "buckets"};
  for (const char* kind : kKinds)
    TERN_CHECK(parts[0] != kind, text, ": is one of the hub's ", kind, "; models are fetched");
  const auto is_verb = [](const std::string& part) {
    return part == "tree" || part == "resolve" || part == "blob" || part == "raw";
  };
  const size_t words = parts.size() > 1 && !is_verb(parts[1]) ? 2 : 1;
  HubName name{.model = joined({parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(words)}, 0)};
  TERN_CHECK(std::all_of(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(words), is_hub_word), text,
             ": names no model; expected ORG/NAME behind the host");
  if (parts.size() == words) return name;
  TERN_CHECK(is_verb(parts[words]) && parts.size() > words + 1, text, ": expected ORG/NAME, ORG/NAME/tree/REVISION or ",
             "ORG/NAME/resolve/REVISION/FILE behind the host");
  name.revision = unquoted(parts[words + 1]);
  size_t next = words + 2;
  if (name.revision == "refs" && parts.size() > words + 3) {  // refs/pr/1, refs/convert/parquet
    name.revision += "/" + parts[words + 2] + "/" + parts[words + 3];
    next += 2;
  }
  name.file = unquoted(joined(parts, next));
  TERN_CHECK(parts[words] == "tree" ? name.file.empty() : !name.file.empty(), text,
             ": expected .../tree/REVISION or .../resolve/REVISION/FILE");
  return name;
}

/// The text behind the host, without what follows "?" or "#"; nothing unless the text is an address of the host.
std::optional<std::string> behind(const std::string& text, const std::string& host) {
  if (!text.starts_with(host + "/")) return std::nullopt;
  std::string path = text.substr(host.size() + 1);
  path = path.substr(0, path.find_first_of("?#"));
  while (path.ends_with('/')) path.pop_back();
  return path;
}

void check_revision(const std::string& revision, const std::string& text) {
  require_inner_path(revision, tern::detail::printable(text, 200) + ": the revision");
}

/// "ORG/NAME@REVISION"; nothing for what is no name.
std::optional<HubName> plain_name(const std::string& text) {
  const size_t at = text.find('@');
  const std::string model = text.substr(0, at);
  const std::vector<std::string> words = parts_of(model);
  if (words.size() > 2 || !std::all_of(words.begin(), words.end(), is_hub_word)) return std::nullopt;
  if (at == std::string::npos) return HubName{.model = model};
  const std::string revision = text.substr(at + 1);
  if (!is_inner_path(revision)) return std::nullopt;
  return HubName{.model = model, .revision = revision};
}

/// A text that stands for a file which is not there, and not for a model.
bool is_file_name(const std::string& text) {
  constexpr const char* kEndings[] = {".safetensors", ".bin",   ".pt",   ".pth",  ".ckpt", ".pkl",
                                      ".onnx",        ".npz",   ".npy",  ".json", ".txt",  ".csv",
                                      ".tsv",         ".jsonl", ".toml", ".gz",   ".zip",  ".git"};
  return std::any_of(std::begin(kEndings), std::end(kEndings), [&](const char* end) { return text.ends_with(end); });
}

}  // namespace

std::optional<HubName> hub_name(const std::string& text, const std::string& endpoint) {
  for (const std::string& host : {endpoint, std::string("https://huggingface.co"), std::string("https://hf.co")})
    if (const auto path = behind(text, host)) {
      HubName name = name_in_address(parts_of(*path), text);
      check_revision(name.revision, text);
      return name;
    }
  if (text.starts_with("hf://")) {
    const std::vector<std::string> parts = parts_of(text.substr(5));
    TERN_CHECK(parts.size() >= 2, text, ": expected hf://ORG/NAME, with @REVISION and /FILE or without");
    std::optional<HubName> name = plain_name(parts[0] + "/" + parts[1]);
    TERN_CHECK(name, text, ": expected hf://ORG/NAME, with @REVISION and /FILE or without");
    name->file = joined(parts, 2);
    return name;
  }
  if (is_file_name(text.substr(0, text.find('@')))) return std::nullopt;
  return plain_name(text);
}

bool is_url(const std::string& text) {
  return text.starts_with("http://") || text.starts_with("https://") || text.starts_with("file:");
}

void require_inner_path(const std::string& text, const std::string& what) {
  TERN_CHECK(is_inner_path(text), what, " '", tern::detail::printable(text, 200),
             "' is no path within a folder: it leaves it, or has a part without a name or with a character that no ",
             "file name should have");
}

bool leaves_its_folder(const std::string& text) {
  const std::vector<std::string> parts = parts_of(text);
  return text.starts_with('/') || std::count(parts.begin(), parts.end(), "..") > 0;
}

bool is_commit(const std::string& revision) {
  return revision.size() == 40 && revision.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace tern::data
