#include "tern/dist/store/store.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tern/dist/loop/session.h"
#include "tern/tests/dist/support.h"
#include "tern/tests/dist/tcp_stranger.h"
#include "tern/tests/support/seed.h"

namespace tern::dist {
namespace {

using Values = std::vector<std::optional<std::string>>;

/// A store of either kind, one connection per rank.
class AnyStore : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Store> open(int rank) {
    return GetParam() == "tcp" ? job_.connect(rank) : open_file_store(folder_.path(), job_.member(rank));
  }

  const TemporaryFolder folder_;
  const TcpJob job_{8};
};

TEST_P(AnyStore, KeepsValues) {
  const auto a = open(0), b = a->another();
  a->set("key", "value");
  EXPECT_EQ(b->get("key", 0), "value");
  const std::string large(Store::kMaxBytes - 1, 'x');
  for (const auto& [key, value] :
       {std::pair<std::string, std::string>{"key", {"\0 any \n bytes \xff", 15}}, {"", ""}, {"l", large}}) {
    a->set(key, value);
    EXPECT_EQ(b->get(key, 0), value) << key;
  }
  expect_error([&] { a->set("l", large + "xx"); }, {"too large"});
  const std::string longest(Store::kMaxKeyBytes, 'k');
  a->set(longest, "1");
  EXPECT_EQ(b->add(longest, 1), 2);
  expect_error([&] { a->set(longest + "k", ""); }, {"a key of 4097 bytes is too long; it may have 4096"});
  expect_error([&] { a->add(longest + "k", 1); }, {"a key of 4097 bytes"});
  const std::string key = "a/b\\c %41 " + std::string(500, 'k');
  a->set(key, "1");
  a->set(key + "2", "2");
  EXPECT_EQ(b->get(key, 0), "1");
  EXPECT_EQ(b->get(key + "2", 0), "2");
  b->erase(key);
  b->erase("never there");
  EXPECT_EQ(a->wait({key, key + "2"}, 0), (Values{std::nullopt, "2"}));
  EXPECT_TRUE(a->wait({}, 5).empty());
}

TEST_P(AnyStore, WaitsForAllKeysAndNotLonger) {
  const auto a = open(0);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(a->wait({"x"}, 0.2), Values{std::nullopt});
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
  expect_error([&] { a->get("x", 0.01); }, {"no rank has set 'x'"});
  std::thread other([b = a->another()] {
    b->set("x", "1");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    b->set("y", "2");
  });
  EXPECT_EQ(a->wait({"y", "x"}, 30), (Values{"2", "1"}));
  other.join();
}

TEST_P(AnyStore, AddsForManyThreads) {
  const auto first = open(0);
  std::vector<std::thread> threads;
  std::vector<std::vector<int64_t>> sums(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t, store = first->another()] {
      for (int i = 0; i < 50; ++i) sums[static_cast<size_t>(t)].push_back(store->add("count", 3));
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<int64_t> all;
  for (const auto& list : sums) all.insert(all.end(), list.begin(), list.end());
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], 3 * static_cast<int64_t>(i + 1));
  EXPECT_EQ(first->add("count", -600), 0);
}

TEST_P(AnyStore, ExchangesAndComparesBetweenProcesses) {
  const auto own = open(0);
  const std::vector<int> ranks = {0, 1, 2, 3};
  const auto meet = [&](Store& store, int rank) {
    EXPECT_EQ(store.exchange("e", ranks, rank, std::to_string(rank * rank), 30),
              (std::vector<std::string>{"0", "1", "4", "9"}));
    store.compare("same", ranks, rank, "equal", 30);
    EXPECT_EQ(error_of([&] { store.compare("shape", ranks, rank, rank >= 2 ? "[4]" : "[3]", 30); }),
              "shape: rank 2 has [4], but rank 0 has [3]");
  };
  std::vector<pid_t> children;
  for (int rank = 1; rank < 4; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    try {
      const auto store = open(rank);
      meet(*store, rank);
      store->finish();
      _exit(HasFailure() ? 1 : 0);
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", error.what());
      _exit(2);
    }
  }
  meet(*own, 0);
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(own->failed_ranks().empty());
}

TEST_P(AnyStore, RanksThatDoNotComeAreNamed) {
  const auto store = open(2);
  store->set("start/5", "");
  const std::vector<int> many = {0, 2, 5, 7}, two = {2, 3};
  EXPECT_EQ(error_of([&] { store->exchange("start", many, 2, "", 0.1); }),
            "start: ranks 0 and 7 have not arrived within 0.1 s");
  EXPECT_EQ(error_of([&] { store->exchange("more", two, 2, "", 0.1); }), "more: rank 3 has not arrived within 0.1 s");
}

INSTANTIATE_TEST_SUITE_P(Stores, AnyStore, testing::Values("tcp", "file"), [](const auto& info) { return info.param; });

// --- TCP only ---

TEST(TcpStore, SurvivesStrangers) {
  const TcpJob job(2);
  const auto store = connect_tcp_store({"localhost"}, job.port(), job.member(0), 10);
  std::mt19937_64 random = fresh_random();
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 200; ++i) {
    auto raw = std::make_unique<RawConnection>(job.port());
    std::string bytes(random() % 3000, ' ');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 4 == 1) bytes = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (i % 4 == 2) bytes.insert(0, framed(hello_of(job.member(1))).substr(0, 20));
    if (i % 4 == 3) bytes.insert(0, std::string("\xff\xff\xff\xff", 4));
    raw->say(bytes);
    if (i % 2 == 0) silent.push_back(std::move(raw));
  }
  store->set("still", "here");
  EXPECT_EQ(store->get("still", 10), "here");
  EXPECT_TRUE(store->failed_ranks().empty());
}

TEST(TcpStore, AMemberThatSpeaksNonsenseIsDropped) {
  const TcpJob job(2);
  const auto store = job.connect(0);
  std::mt19937_64 random = fresh_random();
  for (int i = 0; i < 300; ++i) {
    RawConnection member(job.port());
    EXPECT_EQ(member.join(job.member(1)), "\1");
    std::string message(1 + random() % 60, ' ');
    for (char& c : message) c = static_cast<char>(random() % 3 == 0 ? random() : 0);
    message[0] = static_cast<char>(random() % 8);
    member.say(framed(message));
  }
  store->set("still", "here");
  EXPECT_EQ(store->get("still", 10), "here");
}

TEST(TcpStore, APortInUse) {
  const TcpJob job(2);
  expect_error(
      [&] {
        TcpStoreServer(kLoopback, job.port(), {0, 2, "other"});
      },
      {"port " + std::to_string(job.port()) + " is in use", "MASTER_PORT"});
}

TEST(TcpStore, NoServerListens) {
  const int port = TcpJob(2).port();
  expect_error(
      [&] {
        connect_tcp_store(kLoopback, port, {1, 2, "job"}, 0.3);
      },
      {"127.0.0.1 port " + std::to_string(port), "could not be reached within 0.3 s", "MASTER_ADDR"});
  expect_error([] { connect_tcp_store({"no.such.host.invalid"}, 1, {1, 2, "j"}, 0.1); }, {"no.such.host.invalid"});
  expect_error([] { connect_tcp_store({"localhost"}, 0, {1, 2, "j"}, 0.1); }, {"[1, 65535]"});
}

TEST(TcpStore, TheMasterMayComeLater) {
  const int port = TcpJob(2).port();
  std::unique_ptr<TcpStoreServer> server;
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    server = std::make_unique<TcpStoreServer>(kLoopback, port, Member{0, 2, "job"});
  });
  const auto store = connect_tcp_store(kLoopback, port, {1, 2, "job"}, 30);
  late.join();
  store->set("a", "b");
}

TEST(TcpStore, TheWrongMaster) {
  const TcpJob job(2);
  const auto refusal = [&](const Member& member) { return error_of([&] { job.connect(member); }); };
  expect_contains(refusal({1, 2, "job of others"}), {"another job"});
  expect_contains(refusal({1, 3, "job"}), {"a job of 2 ranks, and rank 1 says that there are 3"});
  expect_contains(refusal({2, 2, "job"}), {"rank 2 is not in [0, 2)"});

  // A server of another kind: it answers with a page, or not at all.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  std::jthread page([&] {
    const int client = accept(listener, nullptr, nullptr);
    const std::string text = "HTTP/1.1 400 Bad Request\r\n\r\n";
    EXPECT_EQ(write(client, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(client);
  });
  const int port = ntohs(address.sin_port);
  expect_error([&] { connect_tcp_store(kLoopback, port, {1, 2, "job"}, 5); }, {"is not a store of Tern"});
  close(listener);
}

TEST(TcpStore, AKilledRankIsReported) {
  const TcpJob job(3);
  const auto store = job.connect(0);
  for (const int rank : {1, 2}) {
    const pid_t child = fork();
    if (child == 0) {
      const auto own = job.connect(rank);
      own->set("came/" + std::to_string(rank), "");
      if (rank == 1) own->finish();
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }
  std::vector<int> gone;
  for (int i = 0; i < 500 && gone.empty(); ++i) {
    gone = store->failed_ranks();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(gone, std::vector<int>{2});
  EXPECT_TRUE(store->wait({"came/1", "came/2"}, 1)[1].has_value());
}

TEST(TcpStore, ARankThatConnectsAgainIsThere) {
  const TcpJob job(2);
  const auto store = job.connect(0);
  job.connect(1).reset();
  while (store->failed_ranks().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto again = job.connect(1);
  EXPECT_TRUE(store->failed_ranks().empty());
}

TEST(TcpStore, ARankThatEndsBeforeAllHaveJoinedIsReported) {
  const TcpJob job(3);
  job.connect(2).reset();
  EXPECT_EQ(error_of([&] { Session(job.connect(0), job.member(0), {}, "", 60); }),
            "rank 2 has ended before the job was done; see its output for the reason");
}

TEST(TcpStore, WhatARankBroughtBeforeItFailedCounts) {
  const TcpJob job(2);
  const auto store = job.connect(0), other = job.connect(1);
  const auto failed = [&]() -> std::string {
    other->set("last/1", "b");
    return "rank 1 has failed";
  };
  const std::vector<int> both = {0, 1};
  EXPECT_EQ(store->exchange("last", both, 0, "a", 60, failed), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(error_of([&] { store->exchange("next", both, 0, "a", 60, failed); }), "rank 1 has failed");
}

TEST(TcpStore, AServerThatGoesIsAnError) {
  auto job = std::make_unique<TcpJob>(2);
  const auto store = job->connect(1);
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    job.reset();
  });
  expect_error([&] { store->wait({"x"}, 60); }, {"rank 0, at 127.0.0.1 port"});
  ends.join();
  expect_error([&] { store->set("x", ""); }, {"does not answer"});
}

TEST(TcpStore, ASecondProcessOfARankIsRefused) {
  const TcpJob job(2);
  const RawConnection first(job.port());  // a process with another random id
  EXPECT_EQ(first.join(job.member(1)), "\1");
  expect_error([&] { job.connect(1); }, {"rank 1 is connected already: two processes claim to be rank 1"});
}

TEST(FileStore, ASecondProcessOfARankIsRefused) {
  const TemporaryFolder scratch;
  const std::string folder = scratch.path();
  const auto store = open_file_store(folder, {1, 2, "job"});
  expect_error([&] { open_file_store(folder, {1, 2, "job"}); }, {"has rank 1 already"});
  open_file_store(folder, {0, 2, "job"});
  open_file_store(folder, {1, 2, "another job"})->set("key", "1");
  EXPECT_FALSE(store->wait({"key"}, 0)[0]);
}

TEST(FileStore, AFolderThatCannotBeMade) {
  expect_error([] { open_file_store("/proc/none", {0, 2, "job"}); }, {"/proc/none"});
}

/// In check mode every call and message is compared through the store; a long run must not fill it.
TEST(Session, CheckModeKeepsNoFinishedCalls) {
  const TemporaryFolder scratch;
  const std::string folder = scratch.path();
  const auto entries = [&] { return std::distance(std::filesystem::recursive_directory_iterator(folder), {}); };
  std::ptrdiff_t after_one = 0, after_many = 0;
  const auto rank = [&](int self) {
    const Member member{self, 2, "job"};
    Session session(open_file_store(folder, member), member, {.timeout_seconds = 60, .check = true}, "", 60);
    const int other = 1 - self;
    Call send{.operation = Operation::kSend, .input = zeros({2}), .peer = other};
    Call receive{.operation = Operation::kReceive, .output = zeros({2}), .peer = other};
    Call barrier{.operation = Operation::kBarrier};
    for (int64_t i = 1; i <= 40; ++i) {
      send.number = receive.number = barrier.number = i;
      session.compare("world", {0, 1}, self == 0 ? send : receive, other);
      session.compare("world", {0, 1}, self == 0 ? receive : send, other);
      session.compare("world", {0, 1}, barrier, 0);
      if (i != 1 && i != 40) continue;
      session.exchange("first look " + std::to_string(i), {0, 1}, "");
      if (self == 0) (i == 1 ? after_one : after_many) = entries();
      session.exchange("second look " + std::to_string(i), {0, 1}, "");
    }
    session.finish();
  };
  std::thread one([&] { rank(1); });
  rank(0);
  one.join();
  EXPECT_GT(after_one, 6);
  EXPECT_LE(after_many, after_one + 8);  // values of the "look" exchanges
}

TEST(RankList, IsAPhrase) {
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({1, 3}), "ranks 1 and 3");
  EXPECT_EQ(rank_list({1, 3, 4}), "ranks 1, 3 and 4");
}

}  // namespace
}  // namespace tern::dist
