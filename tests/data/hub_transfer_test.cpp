// Transfers from a hub that are cut, changed, refused, redirected or cannot be written.

#include <signal.h>
#include <sys/resource.h>

#include "tern/tests/data/hub_fixture.h"

namespace tern::data {
namespace {

TEST_F(HubTest, ACutTransferIsContinued) {
  const int64_t half = static_cast<int64_t>(weights_.size() / 2);
  files_.before =
      changed(files_, "GET", "/large/", 1, [&](const HubRequest&, HubReply& reply) { reply.cut_after = half; });
  fetch();
  expect_weights();
  std::vector<std::string> ranges;
  for (const HubRequest& request : files_.requests())
    if (request.method == "GET") ranges.push_back(request.headers.count("range") ? request.headers.at("range") : "");
  EXPECT_EQ(ranges, (std::vector<std::string>{"", "bytes=" + std::to_string(half) + "-"}));
}

TEST_F(HubTest, ANewFetchContinuesAnInterruptedOne) {
  settings_.attempts = 1;
  files_.before =
      changed(files_, "GET", "/large/", 1, [&](const HubRequest&, HubReply& reply) { reply.cut_after = 1234; });
  EXPECT_TRUE(contains(fetch_error(), {"org/name: model.safetensors", "ended early",
                                       "1234 of " + std::to_string(weights_.size()) + " bytes are kept"}));
  EXPECT_TRUE(read_bytes(blob(weights_sum() + ".incomplete")) == weights_.substr(0, 1234));
  expect_no_weights();
  files_.forget_requests();
  fetch();
  expect_weights();
  EXPECT_EQ(files_.requests().front().headers.at("range"), "bytes=1234-");
  EXPECT_FALSE(fs::exists(blob(weights_sum() + ".incomplete")));
}

/// What an earlier process left is part of the file, or damaged, whole, too long, or all of another file.
TEST_F(HubTest, WhatAnEarlierFetchLeft) {
  std::string damaged = weights_.substr(0, 5000), other(weights_.size(), 'x');
  damaged[100] ^= 1;
  const struct {
    std::string left;
    size_t requests;
  } cases[] = {{"", 1}, {weights_.substr(0, 5000), 1}, {damaged, 2}, {weights_, 0}, {weights_ + "more", 1}, {other, 1}};
  for (const auto& [left, requests] : cases) {
    SCOPED_TRACE(left.size());
    fs::remove_all(root() / "hub");
    write("hub/models--org--name/blobs/" + weights_sum() + ".incomplete", left);
    files_.forget_requests();
    fetch();
    expect_weights();
    EXPECT_EQ(files_.requests().size(), requests);
  }
}

TEST_F(HubTest, AServerWithoutRangesSendsAllAgain) {
  write("hub/models--org--name/blobs/" + weights_sum() + ".incomplete", weights_.substr(0, 7000));
  files_.before = [&](const HubRequest& request, HubReply& reply) {
    HubRequest whole = request;
    whole.headers.erase("range");
    reply = files_.answer(whole);
    return true;
  };
  fetch();
  expect_weights();
}

TEST_F(HubTest, ARangeThatWasNotAskedFor) {
  const std::string size = std::to_string(weights_.size());
  for (const std::string& range : {"bytes 0-99/" + size, std::string("bytes 7000-7100/99"), std::string("nonsense")}) {
    fs::remove_all(root() / "hub");
    write("hub/models--org--name/blobs/" + weights_sum() + ".incomplete", weights_.substr(0, 7000));
    files_.before = changed(files_, "GET", "/large/", 100,
                            [&](const HubRequest&, HubReply& reply) { set_header(reply, "Content-Range", range); });
    EXPECT_TRUE(contains(fetch_error(), {"model.safetensors", "from 7000", range}));
    expect_no_weights();
  }
}

TEST_F(HubTest, WrongSums) {
  files_.before = changed(files_, "GET", "/large/", 100,
                          [](const HubRequest&, HubReply& reply) { reply.body[reply.body.size() / 3] ^= 4; });
  EXPECT_TRUE(contains(fetch_error(), {"org/name: model.safetensors", "its sha256 is", "expected " + weights_sum()}));
  expect_no_weights();
  EXPECT_FALSE(fs::exists(blob(weights_sum() + ".incomplete")));
  files_.before = {};
  fs::remove_all(root() / "hub");
  hub_.before = changed(hub_, "GET", "vocab.txt", 100, [](const HubRequest&, HubReply& reply) { reply.body[1] ^= 4; });
  EXPECT_TRUE(contains(fetch_error(), {"org/name: vocab.txt", "its git sha1 is"}));
  hub_.before = {};
  fetch();
  expect_weights();
}

TEST_F(HubTest, WrongSizes) {
  const std::string size = std::to_string(weights_.size());
  const struct {
    std::function<void(HubReply&)> head, body;
    std::vector<std::string> parts;
  } cases[] = {
      {[](HubReply& r) { set_header(r, "X-Linked-Size", "1000"); }, {}, {"1000 bytes were declared", "sends " + size}},
      {[](HubReply& r) { set_header(r, "X-Linked-Size", "400000"); }, {}, {"400000 bytes were declared"}},
      {[](HubReply& r) { set_header(r, "X-Linked-Size", "99999999999999999999"); }, {}, {"99999999999999999999"}},
      {[](HubReply& r) { set_header(r, "X-Linked-Size", "-5"); }, {}, {"'-5'"}},
      {[](HubReply& r) { set_header(r, "X-Linked-Size", "900000000000000000"); }, {}, {"are needed", "are free"}},
      {{},
       [](HubReply& r) {
         r.without_length = true;
         r.body += "more";
       },
       {"more than the declared " + size}},
      {{},
       [](HubReply& r) {
         r.without_length = true;
         r.body.resize(1000);
       },
       {"ended early", "got 1000 of " + size}},
      {{}, [](HubReply& r) { r.length = 5'000'000'000; }, {size + " bytes were declared", "sends 5000000000"}},
      {{}, [](HubReply& r) { set_header(r, "Content-Encoding", "gzip"); }, {"encoding 'gzip'"}}};
  for (const auto& [head, body, parts] : cases) {
    SCOPED_TRACE(parts[0]);
    fs::remove_all(root() / "hub");
    settings_.attempts = 1;
    hub_.before = {};
    files_.before = {};
    if (head) hub_.before = changed(hub_, "HEAD", "model.safetensors", 100, [&](const auto&, HubReply& r) { head(r); });
    if (body) files_.before = changed(files_, "GET", "/large/", 100, [&](const auto&, HubReply& r) { body(r); });
    const std::string error = fetch_error();
    for (const std::string& part : parts) EXPECT_TRUE(test::has(error, part));
    EXPECT_TRUE(test::has(error, "model.safetensors"));
    expect_no_weights();
  }
}

TEST_F(HubTest, OtherHostsGetNoToken) {
  settings_.token = "hf_secret";
  hub_.repos["org/name"].token = "hf_secret";
  hub_.repos["org/new"] = hub_.repos["org/name"];
  fetch();
  expect_weights();
  for (const HubRequest& request : hub_.requests()) EXPECT_EQ(request.headers.at("authorization"), "Bearer hf_secret");
  EXPECT_EQ(files_.count("GET", "/large/"), 1);
  for (const HubRequest& request : files_.requests()) EXPECT_EQ(request.headers.count("authorization"), 0);
  // A renamed model is at the hub's own host.
  hub_.renamed["org/old"] = "org/new";
  const std::string snapshot = fetch({}, {.model = "org/old"});
  EXPECT_TRUE(read_bytes(fs::path(snapshot) / "model.safetensors") == weights_);
  EXPECT_EQ(snapshot, (root() / "hub/models--org--old/snapshots" / kCommit).string());
  // The list of files does not continue elsewhere.
  files_.forget_requests();
  hub_.before = [&](const HubRequest& request, HubReply& reply) {
    if (request.path.find("/api/") == std::string::npos) return false;
    reply.body = request.path.find("/tree/") == std::string::npos ? "{\"sha\": \"" + kOther + "\"}" : "[]";
    reply.headers = {{"Link", "<" + files_.url() + "/steal>; rel=\"next\""}};
    return true;
  };
  EXPECT_TRUE(contains(fetch_error(), {"continues on another host"}));
  EXPECT_EQ(files_.requests().size(), 0);
}

TEST_F(HubTest, LargeFilesOnTheHubsOwnHost) {
  hub_.large_files_at = "";
  hub_.add_large(weights_);
  fetch();
  expect_weights();
}

TEST_F(HubTest, RedirectsWithoutEnd) {
  hub_.before = [&](const HubRequest& request, HubReply& reply) {
    reply = {.status = 302, .headers = {{"Location", request.path}}};
    return true;
  };
  EXPECT_TRUE(contains(fetch_error(), {"org/name", "redirected more than 5 times"}));
  hub_.before = [&](const HubRequest&, HubReply& reply) {
    reply = {.status = 302, .headers = {{"Location", "file:///etc/passwd"}}};
    return true;
  };
  EXPECT_TRUE(contains(fetch_error(), {"org/name", "file:///etc/passwd"}));
}

TEST_F(HubTest, WhatTheHubRefuses) {
  EXPECT_TRUE(contains(fetch_error({.model = "org/none"}), {"org/none: ", "no such model", "HTTP 401", "HF_TOKEN"}));
  EXPECT_TRUE(contains(fetch_error({.model = "org/name", .revision = "v9"}), {"no revision 'v9'", "HTTP 404"}));
  EXPECT_TRUE(contains(fetch_error({.model = "org/name", .file = "none.bin"}), {"no file 'none.bin'", "HTTP 404"}));
  hub_.repos["org/name"].token = "hf_right";
  EXPECT_TRUE(contains(fetch_error(), {"gives no access", "HTTP 401", "accept the model's terms", "HF_TOKEN"}));
  settings_.token = "hf_wrong";
  const std::string denied = fetch_error();
  EXPECT_TRUE(contains(denied, {"gives no access", "HTTP 403", hub_.url() + "/org/name"}));
  EXPECT_EQ(denied.find("hf_wrong"), denied.npos);
  hub_.repos["org/name"].token = "";

  const auto always = [&](HubReply said) {
    hub_.before = [said](const HubRequest&, HubReply& reply) {
      reply = said;
      return true;
    };
    hub_.forget_requests();
    return fetch_error();
  };
  settings_.token = "";
  EXPECT_TRUE(
      contains(always({.status = 429, .headers = {{"Retry-After", "120"}}}), {"HTTP 429", "in 120 s", "HF_TOKEN"}));
  EXPECT_EQ(hub_.requests().size(), 1);
  EXPECT_TRUE(contains(always({.status = 429, .headers = {{"RateLimit", "\"api\";r=0;t=55"}}}), {"in 55 s"}));
  EXPECT_TRUE(contains(always({.status = 503}), {"fails", "HTTP 503", "later"}));
  EXPECT_EQ(hub_.requests().size(), 3);
  EXPECT_TRUE(contains(always({.status = 418}), {"HTTP 418", "HF_ENDPOINT"}));
  EXPECT_TRUE(contains(always({.body = "<html>"}), {"description of the model"}));
  EXPECT_TRUE(contains(always({.body = R"({"sha": "../../x", "siblings": []})"}), {"commit", "../../x"}));
  EXPECT_TRUE(contains(always({.body = R"({"sha": 5, "siblings": []})"}), {"commit"}));
  EXPECT_TRUE(contains(always({.body = R"({"sha": "abc", "siblings": []})"}), {"no file that Tern reads", "none"}));
  settings_.endpoint = "http://127.0.0.1:9";
  EXPECT_TRUE(contains(fetch_error(), {"org/name: ", "http://127.0.0.1:9 does not answer"}));
}

TEST_F(HubTest, ABusyHubIsAskedAgain) {
  int refusals = 2;
  hub_.before = [&](const HubRequest&, HubReply& reply) {
    reply = {.status = refusals % 2 == 0 ? 503 : 429};
    return refusals-- > 0;
  };
  files_.before =
      changed(files_, "GET", "/large/", 2, [](const HubRequest&, HubReply& reply) { reply = {.status = 500}; });
  fetch();
  expect_weights();
}

TEST_F(HubTest, ACacheThatCannotBeWritten) {
  write("file", "");
  settings_.cache = (root() / "file/hub").string();
  EXPECT_TRUE(contains(fetch_error(), {"cannot be created", "file/hub", "HF_HUB_CACHE"}));
  settings_.cache = (root() / "hub").string();
  // A full disk: the system refuses the bytes from a certain one on.
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, SIG_IGN);
  rlimit low = old;
  low.rlim_cur = 100'000;
  setrlimit(RLIMIT_FSIZE, &low);
  const std::string error = fetch_error();
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, SIG_DFL);
  EXPECT_TRUE(contains(error, {weights_sum() + ".incomplete", "cannot be written: File too large",
                               "100000 bytes are kept", "HF_HUB_CACHE"}));
  expect_no_weights();
  fetch();
  expect_weights();
  // A link in place of the file that is written to.
  fs::remove_all(root() / "hub");
  write("precious", "data");
  fs::create_directories(folder() / "blobs");
  fs::create_symlink(root() / "precious", blob(weights_sum() + ".incomplete"));
  EXPECT_TRUE(contains(fetch_error(), {".incomplete", "cannot be written"}));
  EXPECT_EQ(read_bytes(root() / "precious"), "data");
}

}  // namespace
}  // namespace tern::data
