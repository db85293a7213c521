#pragma once
// Models by the names that they have on Hugging Face's hub, fetched into the cache that Python's huggingface_hub has
// too: each finds what the other fetched.

#include <functional>
#include <string>

#include "tern/data/hub/names.h"
#include "tern/data/hub/selection.h"
#include "tern/data/hub/settings.h"

namespace tern::data {

/// The folder of the model's files at the revision (CACHE/models--ORG--NAME/snapshots/COMMIT), or the file of a name
/// with one. What the cache lacks is fetched: the files of the selection, each
///   checked: the size that the hub declares, and SHA-256 or git's SHA-1, by which the blob is named;
///   continued after a cut, from blobs/ETAG.incomplete; a damaged part is fetched again from its start;
///   by one process at a time, which holds huggingface_hub's lock of the file (CACHE/.locks);
///   on the disk before it has its name.
/// The revision is recorded (refs) when all files are there. A commit that the cache holds is used where the hub does
/// not answer, which the log says. Errors, in one line: no such model, revision or file, no access, no network, a file
/// of another sum or size, a full disk, a cache that cannot be written to; offline, the file that the cache lacks.
std::string fetch_model(const HubName& name, const HubSelection& selection, const HubSettings& settings);

/// The file behind an address of http, https or file, in Tern's own cache (cache_directory()/urls); an address of the
/// hub is fetch_model(). "#sha256=HEX" behind the address is checked, and a file with that sum is not asked for again;
/// another is asked for with the ETag and the time of the one that is there. Errors as those of fetch_model().
std::string fetch_url(const std::string& url, const HubSettings& settings);

/// What a user gave for a model folder, a file of weights or a tokenizer: itself if there is such a path, or if it
/// cannot be a name of a model; otherwise fetch_model() or fetch_url(). With the settings of the environment. The error
/// says that there is no such path either.
std::string local_model(const std::string& given, HubUse use, const std::function<void(const std::string&)>& log);

}  // namespace tern::data
