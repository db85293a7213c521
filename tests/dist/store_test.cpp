#include "tern/dist/store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "tern/dist/session.h"
#include "tern/tests/dist/tcp_stranger.h"
#include "tern/tests/errors.h"
#include "tern/tests/support/seed.h"

namespace tern::dist {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kLoopback = {"127.0.0.1"};

using test::error_of;
void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

/// A store of either kind, one connection per rank.
class AnyStore : public testing::TestWithParam<std::string> {
 protected:
  AnyStore() {
    std::string name = (fs::temp_directory_path() / "tern-store-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    if (is_tcp()) server_ = std::make_unique<TcpStoreServer>(kLoopback, 0, Member{0, 8, "job"});
  }
  ~AnyStore() override { fs::remove_all(folder_); }
  bool is_tcp() const { return GetParam() == "tcp"; }
  std::unique_ptr<Store> open(int rank) {
    const Member member{rank, 8, "job"};
    if (is_tcp()) return connect_tcp_store({"127.0.0.1"}, server_->port(), member, 10);
    return open_file_store(folder_.string(), member);
  }

  fs::path folder_;
  std::unique_ptr<TcpStoreServer> server_;
};

TEST_P(AnyStore, KeepsValues) {
  const auto a = open(0), b = a->another();
  a->set("key", "value");
  EXPECT_EQ(b->get("key", 0), "value");
  b->set("key", std::string("\0 any \n bytes \xff", 15));
  EXPECT_EQ(a->get("key", 0), std::string("\0 any \n bytes \xff", 15));
  a->set("", "");
  EXPECT_EQ(a->get("", 0), "");
  const std::string large(Store::kMaxBytes - 1, 'x');
  a->set("l", large);
  EXPECT_EQ(b->get("l", 0), large);
  expect_in("too large", error_of([&] { a->set("l", large + "xx"); }));
  const std::string longest(Store::kMaxKeyBytes, 'k');
  a->set(longest, "1");
  EXPECT_EQ(b->add(longest, 1), 2);
  expect_in("a key of 4097 bytes is too long; it may have 4096", error_of([&] { a->set(longest + "k", ""); }));
  expect_in("a key of 4097 bytes", error_of([&] { a->add(longest + "k", 1); }));
  const std::string key = "a/b\\c %41 " + std::string(500, 'k');
  a->set(key, "1");
  a->set(key + "2", "2");
  EXPECT_EQ(b->get(key, 0), "1");
  EXPECT_EQ(b->get(key + "2", 0), "2");
  b->erase(key);
  b->erase("never there");
  EXPECT_EQ(a->wait({key, key + "2"}, 0), (std::vector<std::optional<std::string>>{std::nullopt, "2"}));
  EXPECT_TRUE(a->wait({}, 5).empty());
}

TEST_P(AnyStore, WaitsForAllKeysAndNotLonger) {
  const auto a = open(0);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(a->wait({"x"}, 0.2), std::vector<std::optional<std::string>>{std::nullopt});
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
  expect_in("no rank has set 'x'", error_of([&] { a->get("x", 0.01); }));
  std::thread other([b = a->another()] {
    b->set("x", "1");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    b->set("y", "2");
  });
  EXPECT_EQ(a->wait({"y", "x"}, 30), (std::vector<std::optional<std::string>>{"2", "1"}));
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
      const auto all = store->exchange("e", {0, 1, 2, 3}, rank, std::to_string(rank * rank), 30);
      const bool right = all == std::vector<std::string>{"0", "1", "4", "9"};
      store->compare("same", {0, 1, 2, 3}, rank, "equal", 30);
      const std::string error = error_of([&] {
        store->compare("shape", {0, 1, 2, 3}, rank, rank >= 2 ? "[4]" : "[3]", 30);
      });
      const bool named = error == "shape: rank 2 has [4], but rank 0 has [3]";
      store->finish();
      _exit(right && named ? 0 : 1);
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", error.what());
      _exit(2);
    }
  }
  EXPECT_EQ(own->exchange("e", {0, 1, 2, 3}, 0, "0", 30), (std::vector<std::string>{"0", "1", "4", "9"}));
  own->compare("same", {0, 1, 2, 3}, 0, "equal", 30);
  EXPECT_EQ(error_of([&] {
              own->compare("shape", {0, 1, 2, 3}, 0, "[3]", 30);
            }),
            "shape: rank 2 has [4], but rank 0 has [3]");
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
  EXPECT_EQ(error_of([&] {
              store->exchange("start", {0, 2, 5, 7}, 2, "", 0.1);
            }),
            "start: ranks 0 and 7 have not arrived within 0.1 s");
  EXPECT_EQ(error_of([&] {
              store->exchange("more", {2, 3}, 2, "", 0.1);
            }),
            "more: rank 3 has not arrived within 0.1 s");
}

INSTANTIATE_TEST_SUITE_P(Stores, AnyStore, testing::Values("tcp", "file"), [](const auto& info) { return info.param; });

// --- TCP only ---

TEST(TcpStore, SurvivesStrangers) {
  const TcpStoreServer server(kLoopback, 0, {0, 2, "job"});
  const auto store = connect_tcp_store({"localhost"}, server.port(), {0, 2, "job"}, 10);
  std::mt19937_64 random = fresh_random();
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 200; ++i) {
    auto raw = std::make_unique<RawConnection>(server.port());
    std::string bytes;
    const size_t length = random() % 3000;
    for (size_t j = 0; j < length; ++j) bytes += static_cast<char>(random());
    if (i % 4 == 1) bytes = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (i % 4 == 2) bytes.insert(0, framed(hello_of({1, 2, "job"})).substr(0, 20));
    if (i % 4 == 3) bytes.insert(0, std::string("\xff\xff\xff\xff", 4));
    raw->say(bytes);
    if (i % 2 == 0) silent.push_back(std::move(raw));
  }
  store->set("still", "here");
  EXPECT_EQ(store->get("still", 10), "here");
  EXPECT_TRUE(store->failed_ranks().empty());
}

TEST(TcpStore, AMemberThatSpeaksNonsenseIsDropped) {
  const TcpStoreServer server(kLoopback, 0, {0, 2, "j"});
  const auto store = connect_tcp_store({"127.0.0.1"}, server.port(), {0, 2, "j"}, 10);
  std::mt19937_64 random = fresh_random();
  for (int i = 0; i < 300; ++i) {
    RawConnection member(server.port());
    EXPECT_EQ(member.join({1, 2, "j"}), "\1");
    std::string message;
    const size_t length = random() % 60;
    message += static_cast<char>(random() % 8);
    for (size_t j = 0; j < length; ++j) message += static_cast<char>(random() % 3 == 0 ? random() : 0);
    member.say(framed(message));
  }
  store->set("still", "here");
  EXPECT_EQ(store->get("still", 10), "here");
}

TEST(TcpStore, APortInUse) {
  const TcpStoreServer server(kLoopback, 0, {0, 2, "job"});
  const std::string error = error_of([&] { TcpStoreServer(kLoopback, server.port(), {0, 2, "other"}); });
  expect_in("port " + std::to_string(server.port()) + " is in use", error);
  expect_in("MASTER_PORT", error);
}

TEST(TcpStore, NoServerListens) {
  int port = 0;
  {
    const TcpStoreServer server(kLoopback, 0, {0, 2, "job"});
    port = server.port();
  }
  const std::string error = error_of([&] { connect_tcp_store({"127.0.0.1"}, port, {1, 2, "job"}, 0.3); });
  expect_in("127.0.0.1 port " + std::to_string(port), error);
  expect_in("could not be reached within 0.3 s", error);
  expect_in("MASTER_ADDR", error);
  expect_in("no.such.host.invalid", error_of([] { connect_tcp_store({"no.such.host.invalid"}, 1, {1, 2, "j"}, 0.1); }));
  expect_in("[1, 65535]", error_of([] { connect_tcp_store({"localhost"}, 0, {1, 2, "j"}, 0.1); }));
}

TEST(TcpStore, TheMasterMayComeLater) {
  int port = 0;
  {
    const TcpStoreServer server(kLoopback, 0, {0, 2, "job"});
    port = server.port();
  }
  std::unique_ptr<TcpStoreServer> server;
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    server = std::make_unique<TcpStoreServer>(kLoopback, port, Member{0, 2, "job"});
  });
  const auto store = connect_tcp_store({"127.0.0.1"}, port, {1, 2, "job"}, 30);
  late.join();
  store->set("a", "b");
}

TEST(TcpStore, TheWrongMaster) {
  const TcpStoreServer server(kLoopback, 0, {0, 2, "job"});
  const auto refusal = [&](const Member& member) {
    return error_of([&] { connect_tcp_store({"127.0.0.1"}, server.port(), member, 5); });
  };
  expect_in("another job", refusal({1, 2, "job of others"}));
  expect_in("a job of 2 ranks, and rank 1 says that there are 3", refusal({1, 3, "job"}));
  expect_in("rank 2 is not in [0, 2)", refusal({2, 2, "job"}));

  // A server of another kind: it answers with a page, or not at all.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  std::thread page([&] {
    const int client = accept(listener, nullptr, nullptr);
    const std::string text = "HTTP/1.1 400 Bad Request\r\n\r\n";
    EXPECT_EQ(write(client, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(client);
  });
  const std::string error = error_of([&] {
    connect_tcp_store({"127.0.0.1"}, ntohs(address.sin_port), {1, 2, "job"}, 5);
  });
  expect_in("is not a store of Tern", error);
  page.join();
  close(listener);
}

TEST(TcpStore, AKilledRankIsReported) {
  const TcpStoreServer server(kLoopback, 0, {0, 3, "job"});
  const auto store = connect_tcp_store({"127.0.0.1"}, server.port(), {0, 3, "job"}, 10);
  for (const int rank : {1, 2}) {
    const pid_t child = fork();
    if (child == 0) {
      const auto own = connect_tcp_store({"127.0.0.1"}, server.port(), {rank, 3, "job"}, 10);
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
  const TcpStoreServer server(kLoopback, 0, {0, 2, "job"});
  const auto store = connect_tcp_store({"127.0.0.1"}, server.port(), {0, 2, "job"}, 10);
  const auto come = [&] { return connect_tcp_store({"127.0.0.1"}, server.port(), {1, 2, "job"}, 10); };
  come().reset();
  while (store->failed_ranks().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto again = come();
  EXPECT_TRUE(store->failed_ranks().empty());
}

TEST(TcpStore, ARankThatEndsBeforeAllHaveJoinedIsReported) {
  const TcpStoreServer server(kLoopback, 0, {0, 3, "job"});
  const auto connect = [&](int rank) { return connect_tcp_store({"127.0.0.1"}, server.port(), {rank, 3, "job"}, 10); };
  connect(2).reset();
  EXPECT_EQ(error_of([&] {
              Session(connect(0), {0, 3, "job"}, {}, "", 60);
            }),
            "rank 2 has ended before the job was done; see its output for the reason");
}

TEST(TcpStore, WhatARankBroughtBeforeItFailedCounts) {
  const TcpStoreServer server(kLoopback, 0, {0, 2, "job"});
  const auto store = connect_tcp_store({"127.0.0.1"}, server.port(), {0, 2, "job"}, 10);
  const auto other = connect_tcp_store({"127.0.0.1"}, server.port(), {1, 2, "job"}, 10);
  EXPECT_EQ(store->exchange("last", {0, 1}, 0, "a", 60,
                            [&]() -> std::string {
                              other->set("last/1", "b");
                              return "rank 1 has failed";
                            }),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(error_of([&] {
              store->exchange("next", {0, 1}, 0, "a", 60, [] { return "rank 1 has failed"; });
            }),
            "rank 1 has failed");
}

TEST(TcpStore, AServerThatGoesIsAnError) {
  auto server = std::make_unique<TcpStoreServer>(kLoopback, 0, Member{0, 2, "job"});
  const auto store = connect_tcp_store({"127.0.0.1"}, server->port(), {1, 2, "job"}, 10);
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    server.reset();
  });
  expect_in("rank 0, at 127.0.0.1 port", error_of([&] { store->wait({"x"}, 60); }));
  ends.join();
  expect_in("does not answer", error_of([&] { store->set("x", ""); }));
}

TEST(TcpStore, ASecondProcessOfARankIsRefused) {
  const TcpStoreServer server(kLoopback, 0, {0, 2, "j"});
  const RawConnection first(server.port());  // a process with another random id
  EXPECT_EQ(first.join({1, 2, "j"}), "\1");
  expect_in("rank 1 is connected already: two processes claim to be rank 1", error_of([&] {
              connect_tcp_store({"127.0.0.1"}, server.port(), {1, 2, "j"}, 5);
            }));
}

TEST(FileStore, ASecondProcessOfARankIsRefused) {
  std::string folder = (fs::temp_directory_path() / "tern-store-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto store = open_file_store(folder, {1, 2, "job"});
  expect_in("has rank 1 already", error_of([&] { open_file_store(folder, {1, 2, "job"}); }));
  open_file_store(folder, {0, 2, "job"});
  open_file_store(folder, {1, 2, "another job"})->set("key", "1");
  EXPECT_FALSE(store->wait({"key"}, 0)[0]);
  fs::remove_all(folder);
}

TEST(FileStore, AFolderThatCannotBeMade) {
  expect_in("/proc/none", error_of([] { open_file_store("/proc/none", {0, 2, "job"}); }));
}

/// In check mode every call and message is compared through the store; a long run must not fill it.
TEST(Session, CheckModeKeepsNoFinishedCalls) {
  std::string folder = (fs::temp_directory_path() / "tern-store-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto entries = [&] {
    return std::distance(fs::recursive_directory_iterator(folder), fs::recursive_directory_iterator());
  };
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
  fs::remove_all(folder);
}

TEST(RankList, IsAPhrase) {
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({1, 3}), "ranks 1 and 3");
  EXPECT_EQ(rank_list({1, 3, 4}), "ranks 1, 3 and 4");
}

}  // namespace
}  // namespace tern::dist
