#include "tern/data/hub/hub.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/input_file.h"
#include "tern/core/io/pickle.h"
#include "tern/core/io/state_file.h"
#include "tern/data/files/file_lock.h"
#include "tern/data/hub/cache.h"
#include "tern/data/hub/client.h"
#include "tern/data/hub/receive.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

std::string random_word() {
  std::random_device random;
  char text[9];
  std::snprintf(text, sizeof text, "%08x", random());
  return text;
}

/// Empty when the file is what its name says. Git names small files; a mirror may name them by plain SHA-1.
std::string sum_problem(const PartialFile& file, const std::string& etag) {
  const bool hex = etag.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (hex && etag.size() == 64) {
    const std::string sum = file.sha256();
    return sum == etag ? "" : "its sha256 is " + sum + ", expected " + etag;
  }
  if (hex && etag.size() == 40) {
    const std::string sum = file.git_sha1();
    return sum == etag || file.sha1() == etag ? "" : "its git sha1 is " + sum + ", expected " + etag;
  }
  return "";
}

class ModelFetch {
 public:
  ModelFetch(const HubName& name, const HubSelection& selection, const HubSettings& settings)
      : name_(name), selection_(selection), settings_(settings), cache_(settings, name.model), client_(settings) {}

  std::string run() {
    if (settings_.offline) return from_cache("HF_HUB_OFFLINE is set");
    if (is_commit(name_.revision) && !name_.file.empty() && cache_.has(name_.revision, name_.file))
      return result(name_.revision);  // a commit never changes
    try {
      return from_hub();
    } catch (const HubError& error) {
      const bool in_hub = error.code != "RevisionNotFound" && error.code != "EntryNotFound";
      const bool may_help =
          in_hub && (error.may_pass() || error.status == 401 || error.status == 403 || error.status == 404);
      if (!may_help) throw;
      std::string found;
      try {
        found = from_cache("the hub was asked in vain");
      } catch (const OutOfMemoryError&) {
        throw;
      } catch (const Error&) {
        throw error;  // what the hub said is worth more
      }
      settings_.say(std::string(error.what()) + "; what was fetched earlier is used: " + found);
      return found;
    }
  }

 private:
  std::string result(const std::string& commit) const {
    const fs::path folder = cache_.snapshot(commit);
    return (name_.file.empty() ? folder : folder / name_.file).string();
  }

  std::string shown() const { return name_.model + (name_.revision == "main" ? "" : "@" + name_.revision); }

  // With network.

  std::string from_hub() {
    const auto listing = name_.file.empty() ? client_.list(name_) : std::nullopt;
    if (listing) {
      commit_ = listing->commit;
      for (const std::string& file : listing->files)
        TERN_CHECK(!leaves_its_folder(file), shown(), ": the hub lists a file '", tern::detail::printable(file, 200),
                   "', which would be outside the model's folder: nothing of it is fetched");
      fetch_listed(listing->files);
    } else if (!name_.file.empty()) {
      fetch_file(name_.file);
    } else {
      fetch_guessed();
    }
    cache_.record(name_.revision, commit_);
    return result(commit_);
  }

  void fetch_listed(const std::vector<std::string>& files) {
    const std::vector<std::string> wanted = selected(files, [&](const std::string& file) { fetch_file(file); });
    for (const std::string& file : wanted) fetch_file(file);
  }

  /// The files to fetch of those that there are. Calls `get` for those whose text names further ones.
  template <class Get>
  std::vector<std::string> selected(const std::vector<std::string>& files, const Get& get) const {
    std::vector<std::string> wanted;
    if (!selection_.include.empty()) {
      std::copy_if(files.begin(), files.end(), std::back_inserter(wanted),
                   [&](const std::string& file) { return selection_.takes(file); });
      TERN_CHECK(!wanted.empty(), shown(), ": no file matches --include; there are ", some_of(files));
      return wanted;
    }
    std::vector<std::string> folders{""};
    const auto add = [&](const std::string& file) {
      if (selection_.takes(file) && std::count(wanted.begin(), wanted.end(), file) == 0) wanted.push_back(file);
    };
    for (size_t i = 0; i < folders.size(); ++i)
      for (const std::string& file : files_to_read(files, folders[i], selection_.use)) {
        add(file);
        if (std::count(wanted.begin(), wanted.end(), file) == 0) continue;
        if (file == "modules.json") {
          get(file);
          const std::vector<std::string> more = folders_of_modules(text_of(file), shown() + ": modules.json");
          folders.insert(folders.end(), more.begin(), more.end());
        } else if (is_weights_index(file)) {
          get(file);
          for (const std::string& part : parts_of_index(text_of(file), file, shown() + ": " + file)) add(part);
        }
      }
    TERN_CHECK(!wanted.empty(), shown(), ": has no file that Tern reads; there are ", some_of(files),
               "; tern fetch --include PATTERN fetches others");
    return wanted;
  }

  static std::string some_of(const std::vector<std::string>& files) {
    std::string text;
    for (size_t i = 0; i < std::min<size_t>(files.size(), 5); ++i)
      text += (i > 0 ? ", " : "") + tern::detail::printable(files[i], 100);
    if (files.size() > 5) text += " and " + std::to_string(files.size() - 5) + " more";
    return files.empty() ? "none" : text;
  }

  std::string text_of(const std::string& file) const {
    return read_whole_file((cache_.snapshot(commit_) / file).string());
  }

  /// Of a server that has no list of files: asks for each that Tern may read.
  void fetch_guessed() {
    TERN_CHECK(selection_.include.empty(), shown(), ": ", settings_.endpoint,
               " has no list of the model's files, which --include needs");
    std::vector<std::string> found;
    for (const std::string& file : names_to_try(selection_.use)) {
      const bool weights = file.find("model.") != std::string::npos;
      if (weights && !found.empty() && found.back().find("model.") != std::string::npos) break;  // one kind of weights
      try {
        fetch_file(file);
        found.push_back(file);
      } catch (const HubError& error) {
        if (error.status != 404 || error.code == "RepoNotFound" || error.code == "RevisionNotFound") throw;
        if (!commit_.empty()) cache_.record_absent(commit_, file);
      }
    }
    if (found.empty())
      throw HubError(
          shown() + ": " + settings_.endpoint + " has no such model, or it has no file that " + "Tern reads (HTTP 404)",
          404);
    fetch_listed(found);
  }

  /// Fetches the file unless the snapshot has it.
  void fetch_file(const std::string& file) {
    require_inner_path(file, shown() + ": the file");
    if (!commit_.empty() && cache_.has(commit_, file)) return;
    const HubFile described = client_.describe(name_, commit_.empty() ? name_.revision : commit_, file);
    if (commit_.empty()) {
      TERN_CHECK(!described.commit.empty() && described.commit.size() <= 64 &&
                     described.commit.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos,
                 shown(), ": ", settings_.endpoint, " does not answer as a hub: the header X-Repo-Commit of ", file,
                 " is '", tern::detail::printable(described.commit), "'; compare HF_ENDPOINT");
      commit_ = described.commit;
      if (cache_.has(commit_, file)) return;
    }
    TERN_CHECK(described.commit.empty() || described.commit == commit_, shown(), ": ", file, " is of the commit ",
               tern::detail::printable(described.commit), ", not of ", commit_);
    try {
      cache_.create(commit_);
      const bool fresh = fetch_blob(file, described);
      cache_.link(described.etag, commit_, file, fresh);
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const HubError&) {
      throw;
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool unwritable = text.find("cannot be ") != text.npos || text.find(" are free") != text.npos;
      fail(text.starts_with(shown()) ? "" : shown() + ": " + file + ": ", text,
           unwritable ? "; another cache is chosen by HF_HUB_CACHE, or tern fetch --cache" : "");
    }
  }

  /// Whether the blob is there and has the size that was declared: a power cut may have shortened it.
  bool has_blob(const HubFile& described) const {
    std::error_code error;
    const fs::path blob = cache_.blob(described.etag);
    if (!fs::is_regular_file(blob, error)) return false;
    const auto bytes = fs::file_size(blob, error);
    return !error && (!described.bytes || bytes == static_cast<uintmax_t>(*described.bytes));
  }

  /// True if the blob is new.
  bool fetch_blob(const std::string& file, const HubFile& described) const {
    if (has_blob(described)) return false;
    const FileLock lock(cache_.lock(described.etag),
                        [&] { settings_.say(shown() + ": waiting for another process that fetches " + file); });
    if (has_blob(described)) return false;
    // Without a working lock each process writes to its own temporary file, as huggingface_hub always does.
    const std::string word = lock.held() ? "" : "." + random_word();
    PartialFile part(cache_.blob(described.etag + word + ".incomplete"));
    const FileSource source{
        .what = shown() + ": " + file,
        .bytes = described.bytes,
        .get = [&](int64_t from, const auto& on_body) { return client_.get(name_, commit_, file, from, on_body); },
        .refuse = [&](const HttpResponse& answer) { throw client_.error_of(answer, name_, "file '" + file + "'"); }};
    try {
      receive_checked(part, source, described);
    } catch (...) {
      if (!lock.held()) part.remove();
      throw;
    }
    part.finish(cache_.blob(described.etag));
    return true;
  }

  void receive_checked(PartialFile& part, const FileSource& source, const HubFile& described) const {
    const bool continued = part.bytes() > 0;
    if (described.bytes) require_free_space(part.path().parent_path(), *described.bytes - part.bytes());
    settings_.say("fetching " + source.what +
                  (described.bytes ? ", " + std::to_string(*described.bytes) + " bytes" : "") +
                  (continued ? ", from byte " + std::to_string(part.bytes()) + " on" : ""));
    receive(part, source, settings_);
    std::string problem = sum_problem(part, described.etag);
    if (!problem.empty() && continued) {
      settings_.say(source.what + ": what an earlier fetch had left was damaged; fetching it anew");
      part.restart();
      receive(part, source, settings_);
      problem = sum_problem(part, described.etag);
    }
    if (problem.empty()) return;
    part.remove();
    fail(source.what, ": ", problem, "; nothing of it is kept");
  }

  // Without.

  std::string from_cache(const std::string& reason) {
    const auto commit = cache_.commit_of(name_.revision);
    std::error_code error;
    const std::string lacks = shown() + ": " + reason + ", and the cache " + settings_.cache + " lacks ";
    TERN_CHECK(commit && fs::is_directory(cache_.snapshot(*commit), error), lacks,
               name_.file.empty() ? "the model" : name_.file + " of the model", advice());
    commit_ = *commit;
    if (!name_.file.empty()) {
      TERN_CHECK(cache_.has(commit_, name_.file), lacks, name_.file, advice());
      return result(commit_);
    }
    const auto tree = cache_.tree(commit_);
    const auto need = [&](const std::string& file) {
      require_inner_path(file, shown() + ": the file");
      TERN_CHECK(cache_.has(commit_, file), lacks, file, advice());
    };
    const std::vector<std::string> there = cache_.files(commit_);
    TERN_CHECK(!there.empty(), lacks, "the model's files", advice());
    const std::vector<std::string> files = selected(tree ? *tree : there, need);
    for (const std::string& file : files) need(file);
    if (selection_.include.empty()) need_for_use(files, lacks);
    return result(commit_);
  }

  /// Without a list of what the model has, what every model has must be there.
  void need_for_use(const std::vector<std::string>& files, const std::string& lacks) const {
    const auto has_any = [&](std::initializer_list<const char*> names) {
      return std::any_of(names.begin(), names.end(),
                         [&](const char* name) { return std::count(files.begin(), files.end(), name) > 0; });
    };
    if (selection_.use == HubUse::kTokenizer) {
      TERN_CHECK(has_any({"tokenizer.json", "vocab.txt"}), lacks, "tokenizer.json", advice());
      return;
    }
    TERN_CHECK(has_any({"config.json"}) || !selection_.takes("config.json"), lacks, "config.json", advice());
    const bool weights = std::any_of(files.begin(), files.end(), [](const std::string& file) {
      return file.find("model.safetensors") != file.npos || file.find("pytorch_model.bin") != file.npos;
    });
    TERN_CHECK(weights || !selection_.takes("model.safetensors"), lacks, "model.safetensors", advice());
  }

  std::string advice() const {
    return settings_.offline
               ? "; unset HF_HUB_OFFLINE, or fetch it where there is a network (tern fetch " + shown() + ")"
               : "";
  }

  const HubName& name_;
  const HubSelection& selection_;
  const HubSettings& settings_;
  HubCache cache_;
  HubClient client_;
  std::string commit_;
};

}  // namespace

std::string fetch_model(const HubName& name, const HubSelection& selection, const HubSettings& settings) {
  require_inner_path(name.revision, name.model + ": the revision");
  if (!name.file.empty()) require_inner_path(name.file, name.model + ": the file");
  return ModelFetch(name, selection, settings).run();
}

std::string local_model(const std::string& given, HubUse use, const std::function<void(const std::string&)>& log) {
  if (given.empty() || tern::detail::name_exists(given) || tern::detail::name_exists(file_of_weights(given)))
    return given;
  HubSettings settings = hub_settings();
  const std::optional<HubName> name = hub_name(given, settings.endpoint);
  if (!name && !is_url(given)) return given;
  settings.log = log;
  if (!name) return fetch_url(given, settings);
  if (is_url(given)) return fetch_model(*name, {.use = use}, settings);
  try {
    return fetch_model(*name, {.use = use}, settings);
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    fail(given, ": no such folder or file here, and as a model of the hub ", error.what());
  }
}

}  // namespace tern::data
