// The cache of tern fetch with huggingface_hub itself, in a process of Python (python/check_hub.py) that uses the same
// server and the same cache.

#include <iostream>
#include <random>

#include "tern/tests/data/hub_server.h"
#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

TEST(HubWithPython, OneCache) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizer: Python is built without one";
  const test::TemporaryFolder folder;
  test::HubServer hub, files;
  std::string weights(3'000'000, ' ');
  std::mt19937 random(1);  // any bytes will do
  for (char& c : weights) c = static_cast<char>(random());
  const test::HubRepo repo{
      .commit = std::string(40, 'a'),
      .small = {{"config.json", "{}\n"}, {"vocab.txt", "a\n"}, {"README.md", "read\n"}, {"docs/a b.txt", "text"}},
      .large = {{"model.safetensors", weights}},
      .refs = {{"main", ""}, {"v1", ""}, {"refs/pr/1", ""}}};
  hub.repos["org/name"] = hub.repos["org/private"] = hub.repos["org/slow"] = repo;
  hub.repos["org/private"].token = "hf_secret";
  weights[0] ^= 1;
  hub.repos["org/slow"].large["model.safetensors"] = weights;
  const std::string slow = data::sha256(weights);
  hub.large_files_at = files.url();
  for (const auto& [name, model] : hub.repos) files.add_large(model.large.at("model.safetensors"));
  files.before = [&](const test::HubRequest& request, test::HubReply& reply) {
    if (request.path.find(slow) == std::string::npos) return false;
    reply = files.answer(request);
    reply.cut_after = 10;
    return true;
  };
  hub.before = [&](const test::HubRequest& request, test::HubReply& reply) {
    reply.body = std::to_string(files.count("GET", "/large/"));
    return request.path == "/test/large";
  };

  const char* const python = std::getenv("TERN_PYTHON");
  const std::string command = "'" + std::string(python ? python : "python3") + "' '" + test::source_dir() +
                              "/tests/program/python/check_hub.py' '" + hub.url() + "' '" + folder.path().string() +
                              "' '" + kProgram + "' 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string said;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) said += static_cast<char>(c);
  const int status = pclose(pipe);
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127))
    GTEST_SKIP() << "python: TERN_PYTHON names no Python with huggingface_hub";
  EXPECT_EQ(status, 0) << command << "\n" << said;
  std::cout << said;
}

}  // namespace
}  // namespace tern::program
