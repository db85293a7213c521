#include <iostream>

#include "tern/data/hub/hub.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/launch/process_end.h"
#include "tern/models/cli/options/common_options.h"
#include "tern/models/cli/options/train_help.h"

namespace tern::cli {
namespace {

struct FetchOptions : CommonOptions {
  using Self = FetchOptions;
  std::string name = option(&Self::name, "", "name",
                            "ORG/NAME[@REVISION] or an address of Hugging Face's hub; or the address of one file, with "
                            "#sha256=HEX behind it where its sum is known",
                            Required{});
  std::string revision = option(&Self::revision, "", "--revision", "branch, tag or commit; default: main");
  std::vector<std::string> include =
      option(&Self::include, {}, "--include",
             "patterns (*.onnx, onnx/*): fetch the files that match one, in place of those that Tern reads");
  std::vector<std::string> exclude = option(&Self::exclude, {}, "--exclude", "patterns of files that are not fetched");
  std::string cache =
      option(&Self::cache, "", "--cache", "folder of the cache; default: HF_HUB_CACHE, else ~/.cache/huggingface/hub");
};

int fetch(const FetchOptions& a) {
  data::HubSettings settings = data::hub_settings();
  if (!a.cache.empty()) settings.cache = a.cache;
  if (!a.quiet) settings.log = [](const std::string& line) { std::cerr << line << "\n"; };
  std::optional<data::HubName> name = data::hub_name(a.name, settings.endpoint);
  if (!name) {
    if (!data::is_url(a.name)) throw UsageError("fetch: expected ORG/NAME or an address, got '" + a.name + "'");
    for (const char* option : {"--revision", "--include", "--exclude", "--cache"})
      if (a.given(option)) throw UsageError(std::string(option) + ": is for models of the hub, not for " + a.name);
    std::cout << data::fetch_url(a.name, settings) << "\n";
    return 0;
  }
  if (!a.revision.empty()) {
    if (name->revision != "main" && name->revision != a.revision)
      throw UsageError("--revision " + a.revision + ": " + a.name + " says " + name->revision);
    name->revision = a.revision;
  }
  if (!name->file.empty() && (a.given("--include") || a.given("--exclude")))
    throw UsageError("--include and --exclude are for a model; " + a.name + " is one file");
  std::cout << data::fetch_model(*name, {.include = a.include, .exclude = a.exclude}, settings) << "\n";
  return 0;
}

}  // namespace

Command fetch_command() {
  const auto options = std::make_shared<FetchOptions>();
  return {"fetch", "a public model into Hugging Face's cache; prints its folder",
          "The cache is that of Python's huggingface_hub: each finds what the other fetched. HF_HOME, HF_HUB_CACHE,\n"
          "HF_HUB_OFFLINE, HF_ENDPOINT and HF_TOKEN (or the token file of 'hf auth login') are followed.\n"
          "Examples:\n"
          "  tern fetch sentence-transformers/all-MiniLM-L6-v2\n"
          "  tern fetch ORG/NAME@refs/pr/1 --include '*.json' 'onnx/*'\n"
          "  tern train " +
              example_family().name + " --init ORG/NAME --data reviews.csv",
          options, [options] { return fetch(*options); }};
}

}  // namespace tern::cli
