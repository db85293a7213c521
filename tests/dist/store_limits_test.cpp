// Limits of a store's server: connections that it rejects, and memory that members can use.

#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <new>
#include <thread>

#include "tern/dist/store/addresses.h"
#include "tern/dist/store/tcp_service.h"
#include "tern/tests/dist/support.h"
#include "tern/tests/dist/tcp_stranger.h"

namespace {
std::atomic<size_t> smallest_refused = 0;  // allocations of at least this size fail; 0: none
thread_local bool may_allocate = false;    // allocations of this thread never fail
}  // namespace

// Not inlined: otherwise the compiler sees malloc() and free() instead of a matching pair.
[[gnu::noinline]] void* operator new(size_t bytes) {
  const size_t refused = smallest_refused.load(std::memory_order_relaxed);
  void* memory = refused > 0 && bytes >= refused && !may_allocate ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tern::dist {
namespace {

using namespace std::chrono_literals;
using tcp::Clock;

const std::string kMegabyte(Store::kMaxBytes - 1, 'x');

// --- listening addresses and admission ---

TEST(Addresses, AreNoMoreThanNeeded) {
  const std::vector<std::string> own = local_addresses();
  EXPECT_EQ(listening_addresses("10.1.2.3", true), kLoopback);
  EXPECT_EQ(listening_addresses("", true), kLoopback);
  EXPECT_EQ(listening_addresses("127.0.0.1", false), kLoopback);
  EXPECT_EQ(listening_addresses("127.0.0.2", false), std::vector<std::string>{"127.0.0.2"});
  EXPECT_TRUE(are_loopback(listening_addresses("localhost", false)));
  EXPECT_FALSE(listening_addresses("localhost", false).empty());
  for (const std::string& address : own) EXPECT_EQ(listening_addresses(address, false), std::vector{address});
  // A translated address, an unknown name, and no name: all addresses.
  std::vector<std::string> all = own;
  all.push_back("127.0.0.1");
  EXPECT_EQ(listening_addresses("192.0.2.1", false), all);
  EXPECT_EQ(listening_addresses("no.such.host.invalid", false), all);
  EXPECT_EQ(listening_addresses("", false), all);
  for (const std::string& address : all) EXPECT_NE(address, "0.0.0.0");
}

TEST(TcpStore, ListensAtTheGivenAddresses) {
  const TcpStoreServer server(kLoopback, 0, {0, 2, "job"});
  EXPECT_EQ(server.addresses(), kLoopback);
  int sockets = 0;
  for (const Listening& listening : listening_sockets()) {
    if (listening.port != server.port()) continue;
    ++sockets;
    EXPECT_EQ(listening.address, "127.0.0.1");
  }
  EXPECT_EQ(sockets, 1);
  for (const std::string& address : local_addresses()) {
    if (address.find(':') != std::string::npos) continue;
    EXPECT_FALSE(RawConnection(server.port(), address).connected()) << address;
  }
}

TEST(TcpStore, ListensAtSeveralAddressesWithOnePort) {
  const TcpStoreServer server({"127.0.0.1", "192.0.2.1", "127.0.0.2"}, 0, {0, 2, "job"});  // the second is foreign
  EXPECT_EQ(server.addresses(), (std::vector<std::string>{"127.0.0.1", "127.0.0.2"}));
  for (const std::string& address : server.addresses())
    connect_tcp_store({address}, server.port(), {1, 2, "job"}, 10)->set("a", "b");
  expect_error([] { TcpStoreServer({"192.0.2.1"}, 0, {0, 2, "job"}); }, {"192.0.2.1"});
}

TEST(TcpStore, WithoutTheSecretNoProcessJoins) {
  const std::string secret = random_secret(), other = random_secret();
  ASSERT_EQ(secret.size(), 32u);
  ASSERT_NE(secret, other);
  const TcpJob job(2, secret);
  job.connect(1)->set("a", "b");
  for (const std::string& wrong : {other, std::string(), secret.substr(1), secret + "0"}) {
    expect_error([&] { job.connect({1, 2, "job", wrong}); }, {"its secret is another", "TERN_DIST_SECRET"}, {secret});
    // A client that ignores whether the server knows the secret.
    const RawConnection raw(job.port());
    expect_contains(raw.join({1, 2, "job", wrong}), {"its secret is another"});
    EXPECT_EQ(raw.hear(), "");
  }
}

TEST(TcpStore, AProofServesOneConnection) {
  const TcpJob job(2, random_secret());
  const Member member = job.member(1);
  const std::string hello = hello_of(member);
  std::string heard_proof;
  for (int i = 0; i < 2; ++i) {
    const RawConnection connection(job.port());
    connection.say(framed(hello));
    const std::string answer = connection.hear();
    EXPECT_EQ(answer.find(member.secret), std::string::npos);
    if (i == 0) heard_proof = proof_for(member, hello, answer);
    EXPECT_EQ(heard_proof.find(member.secret), std::string::npos);
    connection.say(framed(heard_proof));
    if (i == 0)
      EXPECT_EQ(connection.hear(), "\1");
    else
      expect_contains(connection.hear(), {"its secret is another"});
  }
}

// --- limits on requests of members ---

TEST(TcpStore, ARequestForTooMuchIsRefused) {
  const TcpJob job(2);
  const auto store = job.connect(1);
  store->set("k", kMegabyte);
  expect_error([&] { store->wait(std::vector<std::string>(65'536, "k"), 0); }, {"65536 keys", "ask for fewer keys"});
  expect_error([&] { store->wait(std::vector<std::string>(65'537, "k"), 0); }, {"65537 keys"});
  EXPECT_EQ(store->wait(std::vector<std::string>(64, "k"), 0).back(), kMegabyte);
  expect_error([&] { store->wait(std::vector<std::string>(65, "k"), 0); }, {"ask for fewer"});
  EXPECT_EQ(store->get("k", 0), kMegabyte);
}

TEST(TcpStore, WhatIsStoredIsBounded) {
  const TcpJob job(2);
  const auto store = job.connect(1);
  const std::string value(Store::kMaxBytes - 256, 'x');
  std::string error = "no error";
  int stored = 0;
  for (; stored < 300 && error == "no error"; ++stored)
    error = error_of([&] { store->set(std::to_string(stored), value); });
  EXPECT_EQ(stored, 257);  // the last one was refused
  expect_contains(error, {"the store is full"});
  store->set("0", value);  // the same value again needs no more memory
  store->erase("0");
  EXPECT_EQ(store->add("1", 1), 1);  // replaces a large value with a small one
  store->set("0", value);
  store->set("another", value);
  expect_error([&] { store->set("more", value); }, {"the store is full"});
  EXPECT_EQ(error_of([&] { store->set("small", "1"); }), "no error");
}

/// Members of a service without sockets.
class ServiceTest : public testing::Test {
 protected:
  tcp::Connection& join(int rank) {
    tcp::Connection& c = service_.open(now_);
    const Member member{rank, 8, "job"};
    const std::string hello = hello_of(member);
    service_.receive(c, framed(hello), now_);
    service_.receive(c, framed(proof_for(member, hello, take(c))), now_);
    return c;
  }
  tcp::Connection& admitted(int rank) {
    tcp::Connection& c = join(rank);
    EXPECT_EQ(take(c), "\1");
    return c;
  }
  std::vector<tcp::Connection*> six_members() {
    std::vector<tcp::Connection*> members;
    for (int rank = 1; rank < 7; ++rank) members.push_back(&admitted(rank));
    return members;
  }
  static size_t unsent(const std::vector<tcp::Connection*>& members) {
    size_t bytes = 0;
    for (const tcp::Connection* c : members) bytes += c->out().size();
    return bytes;
  }
  /// The pending output, as one message.
  std::string take(tcp::Connection& c) {
    const std::string out(c.out());
    service_.sent(c, out.size(), now_);
    return out.size() < 4 ? "" : out.substr(4);
  }
  std::string ask(tcp::Connection& c, const tcp::Writer& request) {
    service_.receive(c, request.framed(), now_);
    return take(c);
  }
  static tcp::Writer set(const std::string& key, const std::string& value) {
    return tcp::Writer().number(tcp::Request::kSet).string(key).string(value);
  }
  static tcp::Writer wait(uint32_t count, const std::string& key, int64_t milliseconds = 0) {
    tcp::Writer writer;
    writer.number(tcp::Request::kWait).number(milliseconds).number(count);
    for (uint32_t i = 0; i < count; ++i) writer.string(key);
    return writer;
  }
  size_t open_connections() {
    size_t count = 0;
    for (const tcp::Connection& c : service_.connections()) count += !c.closing();
    return count;
  }

  /// Smaller than the defaults, in similar proportions: 60 values fit in an answer, four answers may be pending.
  static constexpr tcp::Limits kLimits{.answer = 64'000, .unsent = 256'000, .stored = 256'000, .keys = 1000};
  const std::string thousand_ = std::string(1000, 'x');
  tcp::Service service_{{0, 8, "job"}, kLimits};
  Clock::time_point now_ = Clock::now();
};

TEST_F(ServiceTest, KeysAreCounted) {
  tcp::Connection& c = admitted(1);
  for (size_t i = 0; i < kLimits.keys; ++i) ASSERT_EQ(ask(c, set(std::to_string(i), "")), "\1");
  expect_contains(ask(c, set("more", "")), {"the store is full: it has 1000 keys"});
  expect_contains(ask(c, tcp::Writer().number(tcp::Request::kAdd).string("more").number(int64_t{1})),
                  {"the store is full"});
  EXPECT_EQ(ask(c, set("7", "again")), "\1");
  EXPECT_EQ(ask(c, tcp::Writer().number(tcp::Request::kErase).string("7")), "\1");
  EXPECT_EQ(ask(c, set("more", "")), "\1");
  expect_contains(ask(c, set(std::string(4097, 'k'), "")), {"a key of 4097 bytes"});
}

TEST_F(ServiceTest, OneAnswerWaitsToBeSent) {
  tcp::Connection& c = admitted(1);
  EXPECT_EQ(ask(c, set("k", thousand_)), "\1");
  for (int i = 0; i < 50; ++i) {  // without reading the answers
    if (c.may_send_request()) service_.receive(c, wait(1, "k").framed() + wait(2, "k").framed(), now_);
    service_.advance(now_);
    EXPECT_LT(c.out().size(), 2 * thousand_.size());
  }
  EXPECT_GT(take(c).size(), thousand_.size());
  EXPECT_GT(c.out().size(), 2 * thousand_.size());  // the second request's answer
  // A member that reads nothing at all is closed.
  now_ += 61s;
  service_.advance(now_);
  EXPECT_TRUE(c.closing());
}

TEST_F(ServiceTest, AnswersWaitUntilThereIsRoom) {
  const std::vector<tcp::Connection*> members = six_members();
  EXPECT_EQ(ask(*members[0], set("k", thousand_)), "\1");
  for (tcp::Connection* c : members) service_.receive(*c, wait(60, "k").framed(), now_);
  EXPECT_LE(unsent(members), kLimits.unsent);
  EXPECT_GT(unsent(members), kLimits.unsent / 2);
  size_t served = 0;
  for (int round = 0; round < 2; ++round) {
    for (tcp::Connection* c : members) served += take(*c).size() > 60 * thousand_.size();
    service_.advance(now_);
    EXPECT_LE(unsent(members), kLimits.unsent);
    EXPECT_GT(service_.next_deadline(now_ + 1h), now_);  // a member that waits for room does not keep the loop busy
  }
  for (tcp::Connection* c : members) EXPECT_FALSE(c->closing());
  EXPECT_EQ(served, members.size());
}

/// In an answer each missing key takes one byte.
TEST_F(ServiceTest, AnswersWithoutValuesCount) {
  const std::vector<tcp::Connection*> members = six_members();
  expect_contains(ask(*members[0], wait(65'000, "absent")), {"a request for 65000 keys, whose answer has 65005 bytes"});
  for (tcp::Connection* c : members) service_.receive(*c, wait(60'000, "absent").framed(), now_);
  EXPECT_EQ(unsent(members), 4u * 60'005);
}

TEST_F(ServiceTest, ARankHasSoManyConnections) {
  for (int i = 0; i < tcp::kMaxConnectionsOfRank; ++i) admitted(1);
  expect_contains(take(join(1)), {"rank 1 has 32 connections already"});
  admitted(2);
}

TEST_F(ServiceTest, StrangersGiveWayTheSilentFirst) {
  const std::string hello = hello_of({1, 8, "job"});
  tcp::Connection& speaking = service_.open(now_);
  service_.receive(speaking, framed(hello), now_);
  tcp::Connection& first = service_.open(now_);
  for (size_t i = 0; i + 2 < tcp::kMaxStrangers; ++i) service_.open(now_);
  EXPECT_EQ(open_connections(), tcp::kMaxStrangers);
  EXPECT_FALSE(first.closing());
  tcp::Connection& next = service_.open(now_);
  EXPECT_TRUE(first.closing());
  for (int i = 0; i < 8192; ++i) service_.open(now_);
  EXPECT_EQ(open_connections(), tcp::kMaxStrangers);
  EXPECT_TRUE(next.closing());
  ASSERT_FALSE(speaking.closing());
  service_.receive(speaking, framed(proof_for({1, 8, "job"}, hello, take(speaking))), now_);
  EXPECT_TRUE(speaking.is_member());
  // A member stays connected; the others have 5 s.
  now_ += 5001ms;
  service_.advance(now_);
  EXPECT_EQ(open_connections(), 1u);
  EXPECT_FALSE(speaking.closing());
}

TEST_F(ServiceTest, AFailureIsReportedToAll) {
  tcp::Connection &waiting = admitted(1), &idle = admitted(2);
  service_.receive(waiting, wait(1, "never", 1000'000).framed(), now_);
  service_.fail("std::bad_alloc");
  for (tcp::Connection* c : {&waiting, &idle}) {
    expect_contains(take(*c), {"std::bad_alloc"});
    EXPECT_EQ(ask(*c, set("a", "b")), "");  // the client gets no more answers
  }
  expect_contains(take(join(3)), {"std::bad_alloc"});
}

// --- strangers and failures, with sockets ---

TEST(TcpStore, SilentConnectionsDoNotKeepRanksOut) {
  const TcpJob job(4);
  const auto early = job.connect(0);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const size_t count = std::min<size_t>(8192, (limit.rlim_max - 500) / 2);  // both ends are in this process
  std::vector<std::unique_ptr<RawConnection>> silent;
  while (silent.size() < count) silent.push_back(std::make_unique<RawConnection>(job.port()));
  const auto start = Clock::now();
  const auto late = job.connect(1, 60);
  EXPECT_LT(Clock::now() - start, 30s);
  late->set("late", "1");
  EXPECT_EQ(early->get("late", 10), "1");
  EXPECT_TRUE(early->failed_ranks().empty());
}

/// A server in a separate process with few free descriptors.
[[noreturn]] void serve_without_descriptors(int port_pipe, int end_pipe) {
  {
    const TcpStoreServer server(kLoopback, 0, {0, 2, "job"});
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(dup(0)) + 8;
    setrlimit(RLIMIT_NOFILE, &limit);
    const int port = server.port();
    char end = 0;
    if (write(port_pipe, &port, sizeof port) != sizeof port || read(end_pipe, &end, 1) != 1) _exit(3);
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  _exit(used.ru_utime.tv_sec + used.ru_stime.tv_sec > 0 ? 1 : 0);
}

TEST(TcpStore, WithoutDescriptorsStrangersGiveWayAndNothingSpins) {
  int port_pipe[2], end_pipe[2], port = 0;
  ASSERT_EQ(pipe(port_pipe), 0);
  ASSERT_EQ(pipe(end_pipe), 0);
  const pid_t child = fork();
  if (child == 0) serve_without_descriptors(port_pipe[1], end_pipe[0]);
  ASSERT_EQ(read(port_pipe[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  {
    std::vector<std::unique_ptr<RawConnection>> silent;
    for (int i = 0; i < 40; ++i) silent.push_back(std::make_unique<RawConnection>(port));
    const auto store = connect_tcp_store(kLoopback, port, {1, 2, "job"}, 60);
    store->set("a", "b");
    // Only members now, more than there are descriptors: connected ones are served, the others wait.
    std::vector<std::unique_ptr<Store>> more;
    for (int i = 0; i < 5; ++i) more.push_back(store->another());
    for (int i = 0; i < 40; ++i) silent.push_back(std::make_unique<RawConnection>(port));
    std::this_thread::sleep_for(2s);
    EXPECT_EQ(store->get("a", 10), "b");
  }
  ASSERT_EQ(write(end_pipe[1], "e", 1), 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the server took more than a second of the processor's time, or failed";
  for (const int fd : {port_pipe[0], port_pipe[1], end_pipe[0], end_pipe[1]}) close(fd);
}

TEST(TcpStore, MemoryThatIsMissingIsAnErrorOfAllRanks) {
  may_allocate = true;
  const TcpJob job(3);
  const auto store = job.connect(0), other = job.connect(1);
  std::string waiting_error;
  std::thread waiting([&] {
    may_allocate = true;
    waiting_error = error_of([&] { other->wait({"never"}, 100); });
  });
  smallest_refused = 300'000;
  expect_error([&] { store->set("a", kMegabyte); }, {"has failed: std::bad_alloc"});
  waiting.join();
  smallest_refused = 0;
  expect_contains(waiting_error, {"has failed: std::bad_alloc"});
  expect_error([&] { store->set("a", ""); }, {"has failed: std::bad_alloc"});
  expect_error([&] { job.connect(2); }, {"has failed: std::bad_alloc"});
}

}  // namespace
}  // namespace tern::dist
