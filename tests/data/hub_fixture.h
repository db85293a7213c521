#pragma once
// A hub on this machine, a model on it, and an empty cache, for the tests of data/hub.

#include <algorithm>
#include <set>

#include "tern/data/hub/hub.h"
#include "tern/tests/data/hub_server.h"
#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {

namespace fs = std::filesystem;
using test::HubReply;
using test::HubRequest;

inline const std::string kCommit(40, 'a'), kOther(40, 'b');

class HubTest : public FolderTest {
 protected:
  void SetUp() override {
    std::mt19937_64 random = fresh_random();
    weights_ = random_bytes(300'000 + random() % 1000, random);
    test::HubRepo repo{.commit = kCommit,
                       .small = {{"config.json", "{\"model_type\": \"distilbert\"}\n"},
                                 {"vocab.txt", "[PAD]\n[UNK]\n"},
                                 {"README.md", "hello\n"},
                                 {"onnx/notes.txt", "notes"}},
                       .large = {{"model.safetensors", weights_}, {"pytorch_model.bin", "another"}}};
    hub_.repos["org/name"] = repo;
    hub_.large_files_at = files_.url();
    for (const auto& [name, bytes] : repo.large) files_.add_large(bytes);
    settings_ = {.endpoint = hub_.url(),
                 .cache = (root() / "hub").string(),
                 .head_seconds = 20,
                 .stall_seconds = 20,
                 .wait_seconds = 0.001,
                 .log = log_to(lines_)};
  }

  std::string fetch(const HubSelection& selection = {}, const HubName& name = {.model = "org/name"}) const {
    return fetch_model(name, selection, settings_);
  }
  std::string fetch_error(const HubName& name = {.model = "org/name"}) const {
    const std::string error = error_of([&] { fetch({}, name); });
    EXPECT_EQ(error.find('\n'), error.npos) << error;
    return error;
  }
  fs::path folder() const { return root() / "hub/models--org--name"; }
  fs::path blob(const std::string& etag) const { return folder() / "blobs" / etag; }
  std::string weights_sum() const { return sha256(weights_); }
  void expect_weights() const {
    EXPECT_TRUE(read_bytes(folder() / "snapshots" / kCommit / "model.safetensors") == weights_);
  }
  void expect_no_weights() const {
    EXPECT_FALSE(fs::exists(blob(weights_sum())));
    EXPECT_FALSE(fs::exists(folder() / "snapshots" / kCommit / "model.safetensors"));
    EXPECT_FALSE(fs::exists(folder() / "refs/main"));
  }
  std::set<std::string> names_in(const fs::path& path) const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (!entry.is_directory()) names.insert(entry.path().lexically_relative(path).string());
    return names;
  }
  bool logged(const std::string& part) const {
    return std::any_of(lines_.begin(), lines_.end(),
                       [&](const std::string& line) { return line.find(part) != line.npos; });
  }
  /// The reply to the first `times` requests of that method and part of the path is changed.
  static std::function<bool(const HubRequest&, HubReply&)> changed(
      test::HubServer& server, const std::string& method, const std::string& part, int times,
      const std::function<void(const HubRequest&, HubReply&)>& change) {
    return [&server, method, part, times, change](const HubRequest& request, HubReply& reply) mutable {
      if (request.method != method || request.path.find(part) == std::string::npos || times-- <= 0) return false;
      reply = server.answer(request);
      change(request, reply);
      return true;
    };
  }
  static void set_header(HubReply& reply, const std::string& name, const std::string& value) {
    std::erase_if(reply.headers, [&](const auto& header) { return header.first == name; });
    reply.headers.emplace_back(name, value);
  }

  std::string weights_;
  test::HubServer hub_, files_;
  HubSettings settings_;
  mutable std::vector<std::string> lines_;
};

}  // namespace tern::data
