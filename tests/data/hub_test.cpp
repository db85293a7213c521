// Models of a hub: the layout of the cache, what is fetched and found, names and settings.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <future>

#include "tern/tests/data/hub_fixture.h"

namespace tern::data {
namespace {

TEST_F(HubTest, TheCacheHasHuggingFacesLayout) {
  const fs::path snapshot = fetch();
  EXPECT_EQ(snapshot, folder() / "snapshots" / kCommit);
  EXPECT_EQ(names_in(snapshot), (std::set<std::string>{"config.json", "model.safetensors", "vocab.txt"}));
  expect_weights();
  EXPECT_EQ(read_bytes(folder() / "refs/main"), kCommit);
  EXPECT_EQ(fs::read_symlink(snapshot / "model.safetensors"), "../../blobs/" + weights_sum());
  EXPECT_EQ(fs::read_symlink(snapshot / "vocab.txt"), "../../blobs/" + test::git_sha1_of("[PAD]\n[UNK]\n"));
  EXPECT_EQ(names_in(folder() / "blobs").size(), 3);  // nothing incomplete is left
  EXPECT_TRUE(fs::exists(root() / "hub/.locks/models--org--name" / (weights_sum() + ".lock")));
  EXPECT_TRUE(fs::exists(root() / "hub/CACHEDIR.TAG"));

  hub_.forget_requests();
  files_.forget_requests();
  EXPECT_EQ(fetch(), snapshot);
  EXPECT_EQ(hub_.requests().size(), 1);  // which commit main is
  EXPECT_EQ(files_.requests().size(), 0);

  fetch({.include = {"onnx/*", "README.md"}});
  EXPECT_EQ(fs::read_symlink(snapshot / "onnx/notes.txt"), "../../../blobs/" + test::git_sha1_of("notes"));
  // What git hash-object says of "hello\n".
  EXPECT_EQ(fs::read_symlink(snapshot / "README.md"), "../../blobs/ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST_F(HubTest, Offline) {
  HubSettings offline = settings_;
  offline.offline = true;
  const auto error_offline = [&](const HubName& name = {.model = "org/name"}) {
    return error_of([&] { fetch_model(name, {}, offline); });
  };
  EXPECT_TRUE(contains(error_offline(), {"org/name", "HF_HUB_OFFLINE", "lacks the model", "tern fetch org/name"}));
  const fs::path snapshot = fetch();
  hub_.forget_requests();
  EXPECT_EQ(fetch_model({.model = "org/name"}, {}, offline), snapshot);
  EXPECT_EQ(fetch_model({.model = "org/name", .revision = kCommit}, {}, offline), snapshot);
  EXPECT_TRUE(contains(error_offline({.model = "org/name", .revision = "v2"}), {"org/name@v2", "lacks the model"}));
  EXPECT_TRUE(contains(error_offline({.model = "org/name", .file = "README.md"}), {"lacks README.md"}));
  // A link whose blob is gone is no file.
  fs::remove(blob(weights_sum()));
  EXPECT_TRUE(contains(error_offline(), {"lacks model.safetensors"}));
  write("hub/models--org--name/snapshots/" + kCommit + "/model.safetensors.index.json",
        R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})");
  write("hub/models--org--name/snapshots/" + kCommit + "/model-1.safetensors", "one");
  EXPECT_TRUE(contains(error_offline(), {"lacks model-2.safetensors"}));
  fs::remove(snapshot / "model.safetensors.index.json");
  // huggingface_hub's list of the commit's files says what else belongs to the model.
  write("hub/models--org--name/trees/" + kCommit + ".json",
        R"({"format_version": 1, "files": {"config.json": {}, "model.safetensors": {}, "tokenizer.json": {}}})");
  EXPECT_TRUE(contains(error_offline(), {"lacks tokenizer.json"}));
  EXPECT_EQ(hub_.requests().size(), 0);
}

TEST_F(HubTest, AHubThatDoesNotAnswerLeavesWhatWasFetched) {
  const std::string snapshot = fetch();
  settings_.endpoint = "http://127.0.0.1:9";
  EXPECT_EQ(fetch(), snapshot);
  EXPECT_TRUE(logged("what was fetched earlier is used"));
  fs::remove(blob(weights_sum()));
  EXPECT_TRUE(contains(fetch_error(), {"127.0.0.1:9 does not answer"}));
}

TEST_F(HubTest, Revisions) {
  test::HubRepo& repo = hub_.repos["org/name"];
  repo.refs = {{"main", ""}, {"refs/pr/7", kOther}, {"v1.0", kOther}, {"feature/fast", ""}};
  for (const std::string revision : {"v1.0", "refs/pr/7", "feature/fast"}) {
    const std::string commit = revision == "feature/fast" ? kCommit : kOther;
    EXPECT_EQ(fetch({}, {.model = "org/name", .revision = revision}), (folder() / "snapshots" / commit).string());
    EXPECT_EQ(read_bytes(folder() / "refs" / revision), commit);
  }
  EXPECT_EQ(fetch({}, {.model = "org/name", .revision = kCommit}), (folder() / "snapshots" / kCommit).string());
  EXPECT_FALSE(fs::exists(folder() / "refs" / kCommit));
  // The branch moves: files that stay the same are not sent again.
  fetch();
  files_.forget_requests();
  repo.commit = std::string(40, 'c');
  repo.small["config.json"] = "{\"model_type\": \"vit\"}\n";
  const fs::path moved = fetch();
  EXPECT_EQ(read_bytes(moved / "config.json"), repo.small["config.json"]);
  EXPECT_EQ(read_bytes(folder() / "refs/main"), repo.commit);
  EXPECT_EQ(files_.requests().size(), 0);
  EXPECT_NE(read_bytes(folder() / "snapshots" / kCommit / "config.json"), repo.small["config.json"]);
}

TEST_F(HubTest, NamesThatLeaveTheFolder) {
  const auto nothing_outside = [&] {
    for (const std::string& name : names_in(root())) EXPECT_TRUE(name.starts_with("hub/")) << name;
    EXPECT_FALSE(fs::exists(root() / "hub/x"));
    EXPECT_FALSE(fs::exists(folder() / "x"));
  };
  for (const std::string name : {"../../x", "/etc/x", "a/../../../x"}) {
    hub_.repos["org/name"].also_listed = {name};
    EXPECT_TRUE(contains(fetch_error(), {"org/name", name, "outside"}));
  }
  hub_.repos["org/name"].also_listed = {"odd\\name", "new\nline"};
  fetch();
  EXPECT_TRUE(fails([&] { fetch({.include = {"odd*"}}); }, {"odd\\name"}));
  hub_.repos["org/name"].also_listed = {};

  test::HubRepo parts = hub_.repos["org/name"];
  parts.large = {};
  for (const std::string index : {R"({"weight_map": {"w": "../../../x"}})", R"({"weight_map": {"w": "/etc/x"}})"}) {
    parts.small["model.safetensors.index.json"] = index;
    hub_.repos["org/parts"] = parts;
    EXPECT_TRUE(contains(fetch_error({.model = "org/parts"}), {"model.safetensors.index.json", "x'"}));
    fs::remove_all(root() / "hub");
  }
  parts.small = {{"modules.json", R"([{"path": "../.."}])"}};
  hub_.repos["org/parts"] = parts;
  EXPECT_TRUE(contains(fetch_error({.model = "org/parts"}), {"modules.json", "'../..'"}));

  for (const std::string etag : {"\"../../x\"", "\"a/b\"", "\"\"", "\"..\""}) {
    hub_.before = changed(hub_, "HEAD", "vocab.txt", 100,
                          [&](const HubRequest&, HubReply& reply) { set_header(reply, "ETag", etag); });
    fs::remove_all(root() / "hub");
    EXPECT_TRUE(contains(fetch_error(), {"ETag", "vocab.txt"}));
  }
  for (const std::string revision : {"../../x", "/x", "a//b", ""})
    EXPECT_TRUE(contains(fetch_error({.model = "org/name", .revision = revision}), {"revision"}));
  nothing_outside();
}

TEST_F(HubTest, FilesThatTernReads) {
  hub_.repos["org/parts"] = {
      .commit = kOther,
      .small = {
          {"config.json", "{}"},
          {"tokenizer.json", "{}"},
          {"tokenizer_config.json", "{}"},
          {"special_tokens_map.json", "{}"},
          {"training_args.json", "{}"},
          {"modules.json", R"([{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense"}])"},
          {"1_Pooling/config.json", "{}"},
          {"2_Dense/config.json", "{ }"},
          {"2_Dense/model.safetensors", "dense"},
          {"model.safetensors.index.json",
           R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}})"},
          {"model-1.safetensors", "one"},
          {"model-2.safetensors", "two"},
          {"model-3.safetensors", "three"},
          {"pytorch_model.bin", "other"},
          {"onnx/model.onnx", "onnx"}}};
  const HubName name{.model = "org/parts"};
  const std::set<std::string> all = {
      "1_Pooling/config.json",   "2_Dense/config.json", "2_Dense/model.safetensors",    "config.json",
      "model-1.safetensors",     "model-2.safetensors", "model.safetensors.index.json", "modules.json",
      "special_tokens_map.json", "tokenizer.json",      "tokenizer_config.json"};
  EXPECT_EQ(names_in(fetch({}, name)), all);
  fs::remove_all(root() / "hub");
  EXPECT_EQ(
      names_in(fetch({.use = HubUse::kTokenizer}, name)),
      (std::set<std::string>{"config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"}));
  fs::remove_all(root() / "hub");
  EXPECT_EQ(names_in(fetch({.include = {"*.onnx", "1_Pooling/"}, .exclude = {"nothing"}}, name)),
            (std::set<std::string>{"1_Pooling/config.json", "onnx/model.onnx"}));
  fs::remove_all(root() / "hub");
  EXPECT_EQ(names_in(fetch({.exclude = {"*.safetensors", "modules.json"}}, name)),
            (std::set<std::string>{"config.json", "model.safetensors.index.json", "special_tokens_map.json",
                                   "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_TRUE(
      fails([&] { fetch({.include = {"*.gguf"}}, name); }, {"no file matches --include", "1_Pooling/config.json"}));
  hub_.repos["org/parts"].small.erase("model-2.safetensors");
  fs::remove_all(root() / "hub");
  EXPECT_TRUE(contains(fetch_error(name), {"no file 'model-2.safetensors'"}));
}

/// A server that has the files, but not the hub's lists.
TEST_F(HubTest, AMirrorWithoutLists) {
  hub_.before = [](const HubRequest& request, HubReply& reply) {
    reply = {.status = 404};
    return request.path.starts_with("/api/");
  };
  const fs::path snapshot = fetch();
  EXPECT_EQ(names_in(snapshot), (std::set<std::string>{"config.json", "model.safetensors", "vocab.txt"}));
  EXPECT_EQ(read_bytes(folder() / "refs/main"), kCommit);
  EXPECT_TRUE(fs::exists(folder() / ".no_exist" / kCommit / "tokenizer.json"));
  EXPECT_TRUE(fails([&] { fetch({.include = {"*.onnx"}}); }, {"no list"}));
  hub_.before = [](const HubRequest&, HubReply& reply) {
    reply = {.status = 404};
    return true;
  };
  EXPECT_TRUE(contains(fetch_error({.model = "org/none"}), {"no such model", "404"}));
}

TEST_F(HubTest, OneProcessFetchesAFile) {
  const fs::path path = root() / "hub/.locks/models--org--name" / (weights_sum() + ".lock");
  fs::create_directories(path.parent_path());
  const int lock = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  std::promise<void> waits;
  HubSettings other = settings_;
  other.log = [&](const std::string& line) {
    if (line == "org/name: waiting for another process that fetches model.safetensors") waits.set_value();
  };
  auto fetched = std::async(std::launch::async, [&] { return fetch_model({.model = "org/name"}, {}, other); });
  ASSERT_EQ(waits.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(files_.requests().size(), 0);
  write("hub/models--org--name/blobs/" + weights_sum(), weights_);  // as the other process does
  close(lock);
  fetched.get();
  expect_weights();
  EXPECT_EQ(files_.requests().size(), 0);

  // Several at once, from the beginning.
  fs::remove_all(root() / "hub");
  std::vector<std::future<std::string>> several;
  settings_.log = {};
  for (int i = 0; i < 4; ++i) several.push_back(std::async(std::launch::async, [&] { return fetch(); }));
  for (auto& one : several) EXPECT_EQ(one.get(), folder() / "snapshots" / kCommit);
  expect_weights();
  EXPECT_EQ(files_.count("GET", "/large/"), 1);
}

/// The file of a lock that its holder removes keeps nobody out.
TEST_F(HubTest, ALockWhoseFileIsRemoved) {
  const fs::path path = root() / "hub/.locks/models--org--name" / (weights_sum() + ".lock");
  fs::create_directories(path.parent_path());
  const int lock = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  std::promise<void> waits;
  HubSettings other = settings_;
  other.log = [&](const std::string& line) {
    if (line.find("waiting") != line.npos) waits.set_value();
  };
  auto fetched = std::async(std::launch::async, [&] { return fetch_model({.model = "org/name"}, {}, other); });
  ASSERT_EQ(waits.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  fs::remove(path);
  close(lock);
  fetched.get();
  expect_weights();
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(HubTest, ABlobThatAPowerCutShortened) {
  fetch();
  write("hub/models--org--name/blobs/" + weights_sum(), weights_.substr(0, 10));
  fs::remove(folder() / "snapshots" / kCommit / "model.safetensors");
  fetch();
  expect_weights();
}

TEST_F(HubTest, WithoutLinks) {
  settings_.links = false;
  const fs::path snapshot = fetch();
  expect_weights();
  EXPECT_FALSE(fs::is_symlink(snapshot / "model.safetensors"));
  // A blob that another snapshot leads to is copied.
  settings_.links = true;
  fs::remove_all(root() / "hub");
  fetch();
  settings_.links = false;
  hub_.repos["org/name"].commit = kOther;
  fetch();
  expect_weights();
  EXPECT_TRUE(read_bytes(folder() / "snapshots" / kOther / "model.safetensors") == weights_);
}

TEST_F(HubTest, Urls) {
  const Environment cache("XDG_CACHE_HOME", (root() / "cache").string());
  const std::string url = files_.url() + "/large/" + weights_sum(), with_sum = url + "#sha256=" + weights_sum();
  const fs::path path = fetch_url(with_sum, settings_);
  EXPECT_TRUE(path.string().starts_with((root() / "cache/tern/urls/").string())) << path;
  EXPECT_TRUE(read_bytes(path) == weights_);
  files_.forget_requests();
  EXPECT_EQ(fetch_url(with_sum, settings_), path);
  EXPECT_EQ(files_.requests().size(), 0);
  settings_.offline = true;
  EXPECT_EQ(fetch_url(url, settings_), path);
  EXPECT_TRUE(fails([&] { fetch_url(files_.url() + "/other", settings_); }, {"HF_HUB_OFFLINE", "/other"}));
  settings_.offline = false;
  // Asked for again, and unchanged.
  files_.before = [](const HubRequest& request, HubReply& reply) {
    reply = {.headers = {{"ETag", "\"v1\""}}, .body = "text"};
    if (request.headers.count("if-none-match") != 0) reply = {.status = 304};
    return true;
  };
  const fs::path text = fetch_url(files_.url() + "/a/text.txt?x=1", settings_);
  EXPECT_EQ(text.filename(), "text.txt");
  EXPECT_EQ(fetch_url(files_.url() + "/a/text.txt?x=1", settings_), text.string());
  EXPECT_EQ(files_.requests().back().headers.at("if-none-match"), "\"v1\"");
  EXPECT_EQ(read_bytes(text), "text");
  files_.before = {};

  EXPECT_TRUE(fails([&] { fetch_url(url + "#sha256=" + std::string(64, '0'), settings_); },
                    {"its sha256 is " + weights_sum(), "expected 0000"}));
  EXPECT_TRUE(read_bytes(path) == weights_);
  EXPECT_TRUE(fails([&] { fetch_url(url + "#sha256=12", settings_); }, {"#sha256=", "64"}));
  EXPECT_TRUE(fails([&] { fetch_url(url + "#part", settings_); }, {"#sha256="}));
  EXPECT_TRUE(fails([&] { fetch_url(files_.url() + "/large/none", settings_); }, {"/large/none", "HTTP 404"}));
  EXPECT_TRUE(fails([&] { fetch_url("http://127.0.0.1:9/x", settings_); }, {"http://127.0.0.1:9/x"}));
  const std::string local = write("a b.bin", "local");  // a space
  EXPECT_EQ(read_bytes(fetch_url("file://" + local, settings_)), "local");
  EXPECT_TRUE(fails([&] { fetch_url("file:///no/such/file", settings_); }, {"file:///no/such/file"}));
  EXPECT_EQ(fetch_url(hub_.url() + "/org/name/resolve/main/onnx/notes.txt", settings_),
            (folder() / "snapshots" / kCommit / "onnx/notes.txt").string());
}

TEST_F(HubTest, LocalModel) {
  const Environment endpoint("HF_ENDPOINT", hub_.url()), cache("HF_HUB_CACHE", (root() / "hub").string()),
      online("HF_HUB_OFFLINE", std::nullopt), token("HF_TOKEN", std::nullopt), proxy("no_proxy", "127.0.0.1");
  const auto local = [&](const std::string& given) { return local_model(given, HubUse::kModel, log_to(lines_)); };
  write("model/config.json", "{}");
  for (const std::string& given : {(root() / "model").string(), std::string("./none"), std::string("none.pth"),
                                   (root() / "model/config.json").string() + ":state", std::string("")})
    EXPECT_EQ(local(given), given);
  EXPECT_EQ(hub_.requests().size(), 0);
  EXPECT_EQ(local("org/name"), (folder() / "snapshots" / kCommit).string());
  EXPECT_EQ(local("hf://org/name@" + kCommit), (folder() / "snapshots" / kCommit).string());
  EXPECT_TRUE(fails([&] { local("org/none"); }, {"org/none: no such folder or file here", "no such model"}));
}

TEST(HubNames, Forms) {
  const std::string hub = "http://mirror:80/hf";
  const struct {
    const char *text, *model, *revision, *file;
  } good[] = {
      {"bert-base-uncased", "bert-base-uncased", "main", ""},
      {"org/name", "org/name", "main", ""},
      {"org/na.me_1-x@v1.0", "org/na.me_1-x", "v1.0", ""},
      {"org/name@refs/pr/3", "org/name", "refs/pr/3", ""},
      {"hf://org/name", "org/name", "main", ""},
      {"hf://org/name@dev/a/b.txt", "org/name", "dev", "a/b.txt"},
      {"https://huggingface.co/org/name", "org/name", "main", ""},
      {"https://huggingface.co/gpt2/", "gpt2", "main", ""},
      {"https://hf.co/org/name/tree/dev?x=1", "org/name", "dev", ""},
      {"https://huggingface.co/org/name/resolve/main/a/b%20c.txt?download=true", "org/name", "main", "a/b c.txt"},
      {"https://huggingface.co/org/name/blob/refs%2Fpr%2F1/a.txt", "org/name", "refs/pr/1", "a.txt"},
      {"https://huggingface.co/org/name/resolve/refs/pr/1/a.txt", "org/name", "refs/pr/1", "a.txt"},
      {"https://huggingface.co/gpt2/resolve/main/a.txt", "gpt2", "main", "a.txt"},
      {"http://mirror:80/hf/org/name", "org/name", "main", ""}};
  for (const auto& g : good) {
    SCOPED_TRACE(g.text);
    const auto name = hub_name(g.text, hub);
    ASSERT_TRUE(name);
    EXPECT_EQ(name->model, g.model);
    EXPECT_EQ(name->revision, g.revision);
    EXPECT_EQ(name->file, g.file);
  }
  for (const char* text : {"./model",
                           "../model",
                           "/model",
                           "a/b/c",
                           "runs/",
                           "~/model",
                           "model.safetensors",
                           "org/weights.pth",
                           "a--b",
                           "-a",
                           "a.",
                           "org/..",
                           "..",
                           ".",
                           "",
                           "a b",
                           "org/name@",
                           "org/name@../x",
                           "https://example.org/org/name",
                           "org\\name",
                           "na\xc3\xafve",
                           "file:///x",
                           "reviews.csv",
                           "model.pth:ema"})
    EXPECT_FALSE(hub_name(text, hub)) << text;
  for (const char* text :
       {"https://huggingface.co/datasets/org/name", "https://huggingface.co/org/name/commits/main",
        "https://huggingface.co/org/name/resolve/main", "hf://name", "hf://a b/c", "https://huggingface.co/"})
    EXPECT_NE(error_of([&] { hub_name(text, hub); }), "no error") << text;
}

TEST(HubEnvironment, Variables) {
  std::vector<std::unique_ptr<Environment>> cleared;
  for (const char* name :
       {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
        "HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_DISABLE_IMPLICIT_TOKEN",
        "HF_HUB_DISABLE_SYMLINKS", "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"})
    cleared.push_back(std::make_unique<Environment>(name, std::nullopt));
  const TemporaryDirectory folder(fs::temp_directory_path(), "tern-hub-test");
  const fs::path root = folder.path();
  const auto put = [&](const char* name, const std::string& value) {
    return std::make_unique<Environment>(name, value);
  };
  const auto home = put("HOME", root.string());
  EXPECT_EQ(hub_settings().cache, (root / ".cache/huggingface/hub").string());
  EXPECT_EQ(hub_settings().endpoint, "https://huggingface.co");
  EXPECT_FALSE(hub_settings().offline);
  {
    const auto a = put("XDG_CACHE_HOME", "/xdg");
    EXPECT_EQ(hub_settings().cache, "/xdg/huggingface/hub");
    const auto b = put("HF_HOME", "~/hf");
    EXPECT_EQ(hub_settings().cache, (root / "hf/hub").string());
    const auto c = put("HUGGINGFACE_HUB_CACHE", "/old");
    EXPECT_EQ(hub_settings().cache, "/old");
    const auto d = put("HF_HUB_CACHE", "${HOME}/x$HOME_NOT_SET/$HOME");
    EXPECT_EQ(hub_settings().cache, root.string() + "/x$HOME_NOT_SET/" + root.string());
    EXPECT_EQ(hub_settings().token, "");
    fs::create_directories(root / "hf");
    std::ofstream(root / "hf/token") << " hf_file \n";
    EXPECT_EQ(hub_settings().token, "hf_file");
    const auto e = put("HUGGING_FACE_HUB_TOKEN", "hf_old");
    EXPECT_EQ(hub_settings().token, "hf_old");
    const auto f = put("HF_TOKEN", "hf_new\n");
    EXPECT_EQ(hub_settings().token, "hf_new");
    const auto g = put("HF_TOKEN", "a\nInjected: b");
    EXPECT_TRUE(fails([] { hub_settings(); }, {"HF_TOKEN"}));
    const auto h = put("HF_HUB_DISABLE_IMPLICIT_TOKEN", "yes");
    EXPECT_EQ(hub_settings().token, "");
  }
  const auto a = put("HF_TOKEN_PATH", (root / "my").string());
  std::ofstream(root / "my") << "hf_my";
  EXPECT_EQ(hub_settings().token, "hf_my");
  std::ofstream(root / "my") << std::string(10000, 'x');
  EXPECT_TRUE(fails([] { hub_settings(); }, {(root / "my").string()}));
  std::ofstream(root / "my") << "";
  const auto b = put("HF_ENDPOINT", "http://mirror/"), c = put("HF_HUB_OFFLINE", "on"),
             d = put("HF_HUB_ETAG_TIMEOUT", "30"), e = put("HF_HUB_DISABLE_SYMLINKS", "1");
  const HubSettings settings = hub_settings();
  EXPECT_EQ(settings.endpoint, "http://mirror");
  EXPECT_TRUE(settings.offline);
  EXPECT_FALSE(settings.links);
  EXPECT_EQ(settings.head_seconds, 30);
  const auto f = put("HF_HUB_OFFLINE", "0"), g = put("TRANSFORMERS_OFFLINE", "1");
  EXPECT_FALSE(hub_settings().offline);
  const auto h = put("HF_HUB_DOWNLOAD_TIMEOUT", "soon");
  EXPECT_TRUE(fails([] { hub_settings(); }, {"HF_HUB_DOWNLOAD_TIMEOUT", "soon"}));
  const auto i = put("HF_ENDPOINT", "mirror");
  EXPECT_TRUE(fails([] { hub_settings(); }, {"HF_ENDPOINT", "mirror"}));
}

}  // namespace
}  // namespace tern::data
