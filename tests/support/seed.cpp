#include "tern/tests/support/seed.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace tern {
namespace {

std::optional<uint64_t> given;

uint64_t seed_of_environment() {
  const char* text = std::getenv("TERN_TEST_SEED");
  if (!text) return std::random_device{}();
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno) {
    std::fprintf(stderr, "TERN_TEST_SEED: expected a whole number below 2^64, got '%s'\n", text);
    std::exit(2);
  }
  return value;
}

}  // namespace

void set_test_seed(uint64_t seed) { given = seed; }

uint64_t fresh_seed() {
  static const uint64_t seed = given ? *given : seed_of_environment();
  return seed;
}

}  // namespace tern
