// Sessions of several ranks in one process, one thread each: their exchanges, and failures found by the watch threads.

#include "tern/dist/loop/session.h"

#include <functional>
#include <latch>
#include <thread>

#include "tern/tests/dist/support.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::dist {
namespace {

constexpr int kRanks = 3;
constexpr double kSeconds = 60 * test::kPatience;

/// Runs body(rank, session) for all ranks at once; returns the error text of each, or "no error".
std::vector<std::string> in_sessions(const std::function<void(int, Session&)>& body,
                                     const std::function<std::string(int)>& facts = {}) {
  const TcpJob job(kRanks);
  std::vector<std::string> errors(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      errors[static_cast<size_t>(rank)] = error_of([&] {
        Session session(job.connect(rank, kSeconds), job.member(rank), {.timeout_seconds = kSeconds},
                        facts ? facts(rank) : "same", kSeconds);
        body(rank, session);
      });
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(Session, RanksExchangeAndEndTogether) {
  const std::vector<std::string> errors = in_sessions([](int rank, Session& session) {
    for (int64_t call = 1; call <= 50; ++call) {
      session.note("world", call, "barrier " + std::to_string(call));
      EXPECT_EQ(session.exchange("key/" + std::to_string(call), {0, 1, 2}, std::to_string(rank * call)),
                (std::vector<std::string>{"0", std::to_string(call), std::to_string(2 * call)}));
      EXPECT_EQ(session.failure(), "");
    }
    session.finish();
  });
  EXPECT_EQ(errors, std::vector<std::string>(kRanks, "no error"));
}

TEST(Session, ARankThatEndsIsFoundByTheOthers) {
  // The rank that finds the failure first may not end before the other has found it: two ranks would have ended then.
  std::latch both_found(kRanks - 1);
  const std::vector<std::string> errors = in_sessions([&](int rank, Session& session) {
    session.exchange("all are here", {0, 1, 2}, "");
    if (rank == 1) return;  // without finish()
    for (int64_t call = 1; !session.has_failed(); ++call) session.note("world", call, "a call");
    both_found.arrive_and_wait();
    EXPECT_EQ(session.failure(), "rank 1 has ended before the job was done; see its output for the reason");
    session.exchange("the next", {0, 1, 2}, "");
  });
  EXPECT_EQ(errors[1], "no error");
  for (const size_t rank : {size_t{0}, size_t{2}})
    expect_contains(errors[rank], {"rank 1 has ended before the job was done"});
}

TEST(Session, TheFirstFailureStays) {
  std::latch all_failed(kRanks);  // ranks that end early are failures for the others
  in_sessions([&](int, Session& session) {
    session.set_failure("the first");
    all_failed.arrive_and_wait();
    session.set_failure("the second");
    EXPECT_EQ(session.failure(), "the first");
  });
}

TEST(Session, WhereARankStands) {
  in_sessions([](int rank, Session& session) {
    session.note("world", 1, "all_reduce");
    if (rank != 2) session.note("world", 2, "barrier");
    session.exchange("noted", {0, 1, 2}, "");
    if (rank == 0) {
      // The watch threads of both other ranks publish calls twice a second, in any order.
      std::string text;
      const auto is_complete = [&] {
        return text.starts_with("group world, call 2, barrier: rank 2 has not arrived within ") &&
               text.ends_with("; rank 2 made call 1 last, all_reduce");
      };
      for (int i = 0; i < 100 * test::kPatience && !is_complete(); ++i)
        text = session.describe_missing("world", {0, 1, 2}, 2, "barrier");
      EXPECT_TRUE(is_complete()) << text;
    }
    session.finish();
  });
}

TEST(Session, FactsThatDifferAreNamed) {
  const auto facts = [](int rank) { return rank == 1 ? "model tiny" : "model base"; };
  const auto errors = in_sessions([](int, Session&) { ADD_FAILURE() << "the ranks disagree"; }, facts);
  for (const std::string& error : errors) expect_contains(error, {"rank 1 has model tiny, but rank 0 has model base"});
}

}  // namespace
}  // namespace tern::dist
