// tern fetch, and models by name where a command takes a model folder, with a hub on this machine.

#include <set>

#include "tern/tests/data/hub_server.h"
#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

const std::string kCommit(40, 'a');

class FetchTest : public ProgramTest {
 protected:
  void SetUp() override {
    test::HubRepo repo{.commit = kCommit, .refs = {{"main", ""}, {"v1", ""}}};
    for (const std::string name : {"config.json", "vocab.txt", "tokenizer_config.json"})
      repo.small[name] = read("curve/" + name);
    repo.large["model.safetensors"] = read("curve/model.safetensors");
    repo.small["notes/a.txt"] = "a";
    hub_.add_large(repo.large["model.safetensors"]);
    hub_.repos["org/curve"] = repo;
  }

  /// As a user whose hub is the server; further variables are NAME=VALUE, NAME alone is unset.
  Setting online(const std::vector<std::string>& more = {}, const std::string& input = "") const {
    return {.input = input, .in_child = [this, more] {
              setenv("HF_ENDPOINT", hub_.url().c_str(), 1);
              setenv("no_proxy", "127.0.0.1", 1);
              for (const char* name : {"HF_HUB_OFFLINE", "HF_TOKEN", "HF_TOKEN_PATH"}) unsetenv(name);
              for (const std::string& set : more) {
                const size_t equals = set.find('=');
                setenv(set.substr(0, equals).c_str(), set.substr(equals + 1).c_str(), 1);
              }
            }};
  }
  std::string cache() const { return "cache/huggingface/hub"; }
  std::string snapshot() const { return file(cache() + "/models--org--curve/snapshots/" + kCommit).string(); }

  test::HubServer hub_;
};

TEST_F(FetchTest, PrintsTheFolder) {
  const Result first = succeeds("fetch org/curve", online());
  EXPECT_EQ(first.out, snapshot() + "\n");
  EXPECT_TRUE(has(first.err, "fetching org/curve: model.safetensors"));
  EXPECT_TRUE(read_text(snapshot() + "/model.safetensors") == read("curve/model.safetensors"));
  EXPECT_EQ(succeeds("fetch org/curve --revision v1 --quiet", online()).err, "");
  EXPECT_EQ(read(cache() + "/models--org--curve/refs/v1"), kCommit);
  EXPECT_EQ(succeeds("fetch org/curve --cache mine --include *.txt none --exclude notes/*", online()).out,
            file("mine/models--org--curve/snapshots/" + kCommit).string() + "\n");
  EXPECT_EQ(listing("mine/models--org--curve/snapshots/" + kCommit), "vocab.txt");
  EXPECT_EQ(succeeds(Words{"fetch", hub_.url() + "/org/curve/resolve/main/notes/a.txt"}, online()).out,
            snapshot() + "/notes/a.txt\n");
  succeeds("fetch --include *.json *.txt --include none org/curve", online());
  write("options.toml", "include = [\"notes/*\", \"*.txt\"]\nquiet = true\n");
  EXPECT_EQ(succeeds("fetch org/curve --config options.toml --cache other", online()).err, "");
  EXPECT_EQ(listing("other/models--org--curve/snapshots/" + kCommit), "notes vocab.txt");
}

TEST_F(FetchTest, Errors) {
  expect_error(tern("fetch org/none", online()), 1, {"org/none", "no such model"});
  expect_error(tern("fetch org/curve --revision v2", online()), 1, {"org/curve@v2", "no revision 'v2'"});
  expect_error(tern("fetch org/curve --include *.onnx", online()), 1, {"--include", "config.json"});
  expect_error(tern("fetch org/curve"), 1, {"HF_HUB_OFFLINE", "tern fetch org/curve"});
  expect_error(tern("fetch ./curve", online()), 2, {"expected ORG/NAME", "./curve"});
  expect_error(tern("fetch org/curve@v1 --revision v2", online()), 2, {"v1", "v2"});
  expect_error(tern("fetch file:///x --include *", online()), 2, {"--include"});
  expect_error(tern("fetch", online()), 2, {"name"});
  expect_error(tern("fetch org/curve", online({"HF_ENDPOINT=http://127.0.0.1:9"})), 1,
               {"org/curve", "127.0.0.1:9 does not answer"});
  expect_error(tern("fetch org/curve", online({"HF_ENDPOINT=mirror"})), 1, {"HF_ENDPOINT", "mirror"});
  expect_error(tern("predict runs/none", online()), 1, {"runs/none: no such folder or file", "no such model"});
  hub_.repos["org/curve"].token = "hf_right";
  const Result denied = tern("fetch org/curve", online({"HF_TOKEN=hf_wrong"}));
  expect_error(denied, 1, {"gives no access", "HTTP 403"});
  EXPECT_FALSE(has(denied.err, "hf_wrong"));
  succeeds("fetch org/curve", online({"HF_TOKEN=hf_right"}));
}

TEST_F(FetchTest, ModelsByName) {
  const std::string line = "the movie was great\n";
  const std::string expected = succeeds("predict curve", line).out;
  EXPECT_EQ(succeeds("predict org/curve --quiet", online({}, line)).out, expected);
  EXPECT_EQ(succeeds("predict org/curve@v1", online({}, line)).out, expected);
  hub_.forget_requests();
  EXPECT_EQ(succeeds("predict org/curve", line).out, expected);  // offline
  EXPECT_EQ(hub_.requests().size(), 0u);
  EXPECT_EQ(succeeds("info org/curve", online()).out, succeeds("info curve").out);
  EXPECT_EQ(succeeds("eval org/curve --data curve/data.csv --json", online()).out,
            succeeds("eval curve --data curve/data.csv --json").out);
  const Words train = "train distilbert --data curve/data.csv --max-steps 2 --dtype fp32 --init";
  succeeds(train + "curve --out a", online());
  succeeds(train + "org/curve@v1 --out b", online());
  EXPECT_TRUE(weights("a") == weights("b"));
  EXPECT_EQ(options_of("b")["init"], "org/curve@v1");
  succeeds("resume b --quiet");
  // A folder is preferred to a name.
  fs::create_directories(file("org"));
  copy("curve", "org/curve");
  hub_.forget_requests();
  EXPECT_EQ(succeeds("predict org/curve", online({}, line)).out, expected);
  EXPECT_EQ(hub_.requests().size(), 0u);
}

TEST_F(FetchTest, ATokenizerByName) {
  hub_.repos["org/words"] = {
      .commit = kCommit,
      .small = {{"tokenizer.json", R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"},)"
                                   R"( "pre_tokenizer": {"type": "Whitespace"}})"},
                {"model.safetensors", "unread"}}};
  const Result direct = succeeds("tokenize --vocab org/words", online({}, "b a b\n"));
  EXPECT_EQ(direct.out, "1 0 1\n");
  EXPECT_EQ(hub_.count("GET", "model.safetensors"), 0u);
  EXPECT_EQ(succeeds("tokenize --vocab org/words", "b a\n").out, "1 0\n");  // offline
}

TEST_F(FetchTest, ProcessesAtOnce) {
  std::vector<std::unique_ptr<Process>> several;
  for (int i = 0; i < 3; ++i) several.push_back(std::make_unique<Process>("fetch org/curve", folder_, online()));
  for (const auto& process : several) {
    const Result result = process->finish();
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, snapshot() + "\n");
  }
  EXPECT_EQ(hub_.count("GET", "/large/"), 1u);
}

TEST_F(FetchTest, InterruptedAndContinued) {
  int cuts = 1;
  hub_.before = [&](const test::HubRequest& request, test::HubReply& reply) {
    if (!request.path.starts_with("/large/") || cuts-- <= 0) return false;
    reply = hub_.answer(request);
    reply.cut_after = 1000;
    return true;
  };
  const Result result = interrupted("fetch org/curve", "continuing at byte 1000", SIGINT, online());
  EXPECT_EQ(result.status, 130);
  EXPECT_FALSE(exists(cache() + "/models--org--curve/refs/main"));
  hub_.forget_requests();
  succeeds("fetch org/curve", online());
  for (const test::HubRequest& request : hub_.requests())
    if (request.method == "GET" && request.path.starts_with("/large/")) {
      EXPECT_EQ(request.headers.at("range"), "bytes=1000-");
    }
  EXPECT_TRUE(read_text(snapshot() + "/model.safetensors") == read("curve/model.safetensors"));
}

TEST_F(FetchTest, ACacheThatIsReadOnly) {
  if (geteuid() != 0) GTEST_SKIP() << "root: a cache of another user is needed";
  succeeds("fetch org/curve", online());
  const auto as_user = [&](const std::string& input = "") {
    Setting setting = online({}, input);
    const auto before = setting.in_child, user = as_another_user().in_child;
    setting.in_child = [before, user] {
      before();
      user();
    };
    return setting;
  };
  EXPECT_EQ(tern("fetch org/curve", as_user()).out, snapshot() + "\n");
  EXPECT_EQ(succeeds("predict org/curve", as_user("the movie\n")).out, succeeds("predict curve", "the movie\n").out);
  expect_error(tern("fetch org/curve --include notes/*", as_user()), 1,
               {"org/curve: notes/a.txt", "Permission denied", "HF_HUB_CACHE"});
}

/// What a power cut leaves is whole or is fetched again, and a recorded revision has all its files.
TEST_F(FetchTest, APowerCut) {
  const auto fetch = [&](const std::string& fault) {
    Setting setting = online();
    setting.in_child = [before = setting.in_child, fault, folder = fs::canonical(folder_) / "hub",
                        preload = test::preload(TERN_DISK_FAULTS)] {
      before();
      setenv("TERN_FAULT_FOLDER", folder.c_str(), 1);
      setenv("TERN_FAULT", fault.c_str(), 1);
      setenv("LD_PRELOAD", preload.c_str(), 1);
    };
    return tern("fetch org/curve --cache hub --quiet", setting);
  };
  const std::string folder = "hub/models--org--curve/", model = folder + "snapshots/" + kCommit + "/model.safetensors";
  ASSERT_EQ(fetch("count:" + file("calls").string()).status, 0);
  const std::vector<std::string> calls = lines_of(read("calls"));
  std::set<size_t> points;
  for (size_t i = 0; i < calls.size(); ++i)
    if (calls[i].find("model.safetensors") != std::string::npos || calls[i].find("refs") != std::string::npos ||
        calls[i].starts_with("rename"))
      points.insert({i + 1, i + 2});
  ASSERT_GT(points.size(), 8u);
  const std::string whole = read("curve/model.safetensors"), sum = data::sha256(whole);
  for (const size_t at : points) {
    SCOPED_TRACE(at <= calls.size() ? calls[at - 1] : "the end");
    fs::remove_all(file("hub"));
    fetch("crash:" + std::to_string(at));
    if (exists(folder + "blobs/" + sum)) {
      EXPECT_TRUE(read(folder + "blobs/" + sum) == whole);
    }
    if (exists(folder + "refs/main")) {
      EXPECT_TRUE(exists(model) && read(model) == whole && read(folder + "refs/main") == kCommit);
    }
    ASSERT_EQ(tern("fetch org/curve --cache hub --quiet", online()).status, 0);
    EXPECT_TRUE(read(model) == whole);
  }
}

TEST_F(FetchTest, AFullDisk) {
  Setting setting = online();
  setting.in_child = [before = setting.in_child, folder = fs::canonical(folder_) / "hub",
                      preload = test::preload(TERN_DISK_FAULTS)] {
    before();
    setenv("TERN_FAULT_FOLDER", folder.c_str(), 1);
    setenv("TERN_FAULT", "full:12", 1);
    setenv("LD_PRELOAD", preload.c_str(), 1);
  };
  const Result full = tern("fetch org/curve --cache hub --quiet", setting);
  expect_error(full, 1, {"org/curve: ", "hub", "No space left on device", "HF_HUB_CACHE"});
  succeeds("fetch org/curve --cache hub", online());
}

TEST_F(FetchTest, AFileByItsAddress) {
  const std::string bytes = read("curve/model.safetensors"), sum = data::sha256(bytes);
  const std::string url = hub_.url() + "/large/" + sum;
  const Result result = succeeds({"fetch", url + "#sha256=" + sum}, online({"HF_ENDPOINT=http://127.0.0.1:9"}));
  ASSERT_TRUE(result.out.ends_with("\n"));
  EXPECT_TRUE(result.out.starts_with(file("cache/tern/urls").string())) << result.out;
  EXPECT_TRUE(read_text(result.out.substr(0, result.out.size() - 1)) == bytes);
  EXPECT_TRUE(has(succeeds({"info", url}, online({"HF_ENDPOINT=http://127.0.0.1:9"})).out, "format: safetensors"));
  expect_error(tern({"fetch", url + "#sha256=" + std::string(64, 'a')}, online({"HF_ENDPOINT=http://127.0.0.1:9"})), 1,
               {"its sha256 is " + sum});
}

}  // namespace
}  // namespace tern::program
