// Which signals count as one request to save and end, and which as another.

#include "tern/models/cli/end_requests.h"

#include <gtest/gtest.h>

namespace tern::cli {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(EndRequests, OneRequestMayBeManySignals) {
  EndRequests requests;
  EXPECT_EQ(requests.first(), 0);
  const int64_t start = EndRequests::now();
  requests.note(SIGTERM, start);
  for (const int64_t later : {int64_t{0}, int64_t{1}, kSecond / 2, kSecond}) {
    requests.note(SIGTERM, start + later);
    requests.note(SIGINT, start + later);
    EXPECT_EQ(requests.first(), SIGTERM);
    EXPECT_EQ(requests.again(), 0) << later;
  }
  requests.note(SIGINT, start + kSecond + 1);
  EXPECT_EQ(requests.again(), SIGINT);
  requests.note(SIGTERM, start + 5 * kSecond);
  EXPECT_EQ(requests.again(), SIGINT);
  EXPECT_EQ(requests.first(), SIGTERM);
}

TEST(EndRequests, SIGUSR1NeverEndsAtOnce) {
  EndRequests requests;
  for (int i = 0; i < 10; ++i) requests.note(SIGUSR1, i * 3 * kSecond);
  requests.note(SIGTERM, 40 * kSecond);  // the first request to end
  for (int i = 0; i < 10; ++i) requests.note(SIGUSR1, (50 + i) * kSecond);
  EXPECT_EQ(requests.first(), SIGUSR1);
  EXPECT_EQ(requests.again(), 0);
  requests.note(SIGTERM, 42 * kSecond);
  EXPECT_EQ(requests.again(), SIGTERM);
}

}  // namespace
}  // namespace tern::cli
