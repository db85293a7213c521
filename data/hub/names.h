#pragma once
// Names of models on Hugging Face's hub, their revisions and files.

#include <optional>
#include <string>

namespace tern::data {

struct HubName {
  std::string model = {};         // "ORG/NAME", or the "NAME" of an early model
  std::string revision = "main";  // a branch, a tag or a commit
  std::string file = {};          // of an address of one file
};

/// "ORG/NAME" or "NAME", with "@REVISION" behind it or not; "hf://ORG/NAME[@REVISION][/FILE]"; an address of the hub:
/// "https://huggingface.co/ORG/NAME", ".../tree/REVISION", ".../resolve/REVISION/FILE", ".../blob/REVISION/FILE", where
/// `endpoint` may stand in place of "https://huggingface.co". Nothing for any other text: a path such as "./model", the
/// name of a file of weights, another address. Throws Error for a data set or a space of the hub.
std::optional<HubName> hub_name(const std::string& text, const std::string& endpoint);

/// True for a text that begins with "http://", "https://" or "file:".
bool is_url(const std::string& text);

/// Throws Error, which begins with `what`, unless the text is a path within a folder: parts with slashes between them,
/// of which none is empty, "." or "..", without control characters and backslashes.
void require_inner_path(const std::string& text, const std::string& what);
/// True for a name that leaves its folder, by ".." or as an absolute path: no hub has such a file.
bool leaves_its_folder(const std::string& text);

/// True for the 40 lower-case hexadecimal digits of a commit.
bool is_commit(const std::string& revision);

}  // namespace tern::data
