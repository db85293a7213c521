// The profiler: times by a clock that the test sets, counts of known shapes, threads, and a well-formed trace.

#include "tern/core/profiler/profiler.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/checkpoint.h"
#include "tern/core/ops/roofline.h"
#include "tern/core/profiler/device_profiler.h"
#include "tern/tests/core/core_test.h"

namespace tern {
namespace {

using Json = nlohmann::json;

std::atomic<int64_t> now_ns{0};
int64_t test_clock() { return now_ns.load(); }
void pass(int64_t nanoseconds) { now_ns += nanoseconds; }

ProfilerOptions with_test_clock() {
  now_ns = 1000;
  return {.clock = test_clock};
}

/// The trace as a reader sees it; the file is removed.
Json trace_of(const ProfileReport& report) {
  const std::string path = (std::filesystem::temp_directory_path() / "tern-profiler-test-trace.json").string() +
                           std::to_string(reinterpret_cast<uintptr_t>(&report));
  report.write_trace(path);
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::filesystem::remove(path);
  return Json::parse(text.str());
}

/// Every event has the fields of the format, and the events of each thread nest. Returns the number of "X" events.
int check_trace(const Json& trace) {
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, int64_t>>> spans;  // nanoseconds
  int count = 0;
  const auto nanoseconds = [](const Json& number) { return std::llround(number.get<double>() * 1000); };
  for (const Json& event : trace.at("traceEvents")) {
    EXPECT_TRUE(event.at("name").is_string() && event.at("pid").is_number_integer()) << event;
    const std::string phase = event.at("ph");
    if (phase == "M") {
      EXPECT_TRUE(event.at("args").at("name").is_string()) << event;
      continue;
    }
    EXPECT_GE(event.at("ts").get<double>(), 0) << event;
    if (phase == "C") {
      EXPECT_TRUE(event.at("args").at("bytes").is_number()) << event;
      continue;
    }
    EXPECT_EQ(phase, "X") << event;
    EXPECT_GE(event.at("dur").get<double>(), 0) << event;
    const int64_t begin = nanoseconds(event.at("ts"));
    spans[{event.at("pid"), event.at("tid")}].emplace_back(begin, begin + nanoseconds(event.at("dur")));
    ++count;
  }
  for (auto& [thread, list] : spans) {
    std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<int64_t> open;
    for (const auto& [begin, end] : list) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      EXPECT_TRUE(open.empty() || end <= open.back()) << "overlaps at " << begin;
      open.push_back(end);
    }
  }
  return count;
}

const Json* event_named(const Json& trace, const std::string& name) {
  for (const Json& event : trace.at("traceEvents"))
    if (event.at("name") == name) return &event;
  return nullptr;
}

TEST(Profiler, SelfAndTotalTimes) {
  Profiler profiler(with_test_clock());
  for (int i = 0; i < 2; ++i) {
    const ProfileRange outer("outer");
    pass(100);
    {
      const ProfileRange inner("inner", RangeKind::kOp);
      pass(30);
      const ProfileRange innermost("innermost", RangeKind::kBackward);
      pass(7);
    }
    {
      const ProfileRange inner("inner", RangeKind::kOp);
      pass(3);
    }
    pass(10);
  }
  pass(50);
  const ProfileReport report = profiler.stop();
  EXPECT_DOUBLE_EQ(report.seconds(), 350e-9);
  EXPECT_EQ(report.rows().size(), 3u);
  const ProfileRow outer = report.row("outer"), inner = report.row("inner"), last = report.row("innermost backward");
  EXPECT_EQ(outer.calls, 2);
  EXPECT_NEAR(outer.total_seconds, 300e-9, 1e-15);
  EXPECT_NEAR(outer.self_seconds, 220e-9, 1e-15);
  EXPECT_EQ(inner.calls, 4);
  EXPECT_NEAR(inner.total_seconds, 80e-9, 1e-15);
  EXPECT_NEAR(inner.self_seconds, 66e-9, 1e-15);
  EXPECT_EQ(last.calls, 2);
  EXPECT_NEAR(last.total_seconds, 14e-9, 1e-15);
  EXPECT_NEAR(inner.device_self_seconds, inner.self_seconds, 0);  // the CPU is the device
  EXPECT_EQ(report.rows()[0].name, "outer");                      // most self time first
  const Json trace = trace_of(report);
  EXPECT_EQ(check_trace(trace), 8);
  const Json* event = event_named(trace, "innermost backward");
  ASSERT_TRUE(event);
  EXPECT_EQ(event->at("cat"), "backward");
  EXPECT_DOUBLE_EQ(event->at("ts").get<double>(), 0.130);
  EXPECT_DOUBLE_EQ(event->at("dur").get<double>(), 0.007);
}

TEST(Profiler, ARangeInsideItselfCountsOnce) {
  Profiler profiler(with_test_clock());
  {
    const ProfileRange outer("again");
    pass(10);
    const ProfileRange between("between");
    pass(5);
    const ProfileRange inner("again");
    pass(1);
  }
  const ProfileReport report = profiler.stop();
  EXPECT_EQ(report.row("again").calls, 2);
  EXPECT_NEAR(report.row("again").total_seconds, 16e-9, 1e-15);
  EXPECT_NEAR(report.row("again").self_seconds, 11e-9, 1e-15);
  EXPECT_NEAR(report.row("between").self_seconds, 5e-9, 1e-15);
}

TEST(Profiler, ExceptionsCloseRanges) {
  Profiler profiler(with_test_clock());
  try {
    const ProfileRange outer("outer");
    pass(1);
    const ProfileRange inner("inner");
    pass(2);
    fail("on purpose");
  } catch (const Error&) {
  }
  {
    const ProfileRange after("after");
    pass(4);
  }
  const ProfileReport report = profiler.stop();
  EXPECT_NEAR(report.row("outer").total_seconds, 3e-9, 1e-15);
  EXPECT_NEAR(report.row("outer").self_seconds, 1e-9, 1e-15);
  EXPECT_NEAR(report.row("inner").total_seconds, 2e-9, 1e-15);
  EXPECT_NEAR(report.row("after").total_seconds, 4e-9, 1e-15);
  const Json trace = trace_of(report);
  EXPECT_EQ(check_trace(trace), 3);
  // "after" is not inside anything.
  EXPECT_DOUBLE_EQ(event_named(trace, "after")->at("ts").get<double>(), 0.003);
}

TEST(Profiler, RecordsNothingWhenOff) {
  EXPECT_FALSE(profiling());
  const ProfileRange before("before");
  EXPECT_FALSE(before.recording());
  {
    Profiler profiler(with_test_clock());
    EXPECT_TRUE(profiling());
    const ProfileReport report = profiler.stop();
    EXPECT_TRUE(report.rows().empty());
    EXPECT_FALSE(profiling());
    const ProfileRange after("after");
    EXPECT_FALSE(after.recording());
    EXPECT_EQ(check_trace(trace_of(report)), 0);
    test::expect_error([&] { profiler.stop(); }, {"stop() was already called"});
  }
  profile_flops(1, float32);  // no profiler runs
  profile_bytes(1);
  { Profiler dropped(with_test_clock()); }  // ends without stop()
  EXPECT_FALSE(profiling());
}

/// Ranges that are open at start or stop belong to no session, and do not disturb the next one.
TEST(Profiler, SessionsDoNotMix) {
  auto first = std::make_unique<Profiler>(with_test_clock());
  auto left_open = std::make_unique<ProfileRange>("left open");
  {
    const ProfileRange inside("inside");
    pass(1);
  }
  const ProfileReport one = first->stop();
  EXPECT_EQ(one.row("left open").calls, 0);
  EXPECT_EQ(one.row("inside").calls, 1);
  Profiler second(with_test_clock());
  const ProfileRange around("around");
  left_open.reset();
  {
    const ProfileRange range("range");
    pass(3);
  }
  const ProfileReport two = second.stop();
  ASSERT_EQ(two.rows().size(), 1u);
  EXPECT_NEAR(two.row("range").self_seconds, 3e-9, 1e-15);
}

TEST(Profiler, OnlyOneAtATime) {
  Profiler profiler(with_test_clock());
  test::expect_error([] { Profiler second; }, {"another one is running", "stop it first"});
  test::expect_error([] { Profiler second({.max_ranges = -1}); }, {"max_ranges", "-1"});
  EXPECT_TRUE(profiling());  // the first goes on
  profiler.stop();
  Profiler next(with_test_clock());
}

TEST(Profiler, ThreadsHaveSeparateRanges) {
  Profiler profiler;
  constexpr int kThreads = 4, kRanges = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < kRanges; ++i) {
        const ProfileRange outer("outer");
        const ProfileRange inner(std::string("module ") + std::to_string(i % 3));
        profile_flops(2, float32);
      }
    });
  {
    const ProfileRange waiting("waiting");
    for (std::thread& thread : threads) thread.join();
  }
  const ProfileReport report = profiler.stop();
  EXPECT_EQ(report.row("outer").calls, kThreads * kRanges);
  EXPECT_EQ(report.row("waiting").calls, 1);
  double flops = 0;
  for (const ProfileRow& row : report.rows())
    if (row.name.starts_with("module ")) flops += row.flops;
  EXPECT_EQ(flops, 2 * kThreads * kRanges);
  EXPECT_EQ(check_trace(trace_of(report)), 2 * kThreads * kRanges + 1);
}

/// A thread may still open and close ranges while the profiler stops.
TEST(Profiler, StopsWhileThreadsWork) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!done) {
        const ProfileRange outer("outer");
        const ProfileRange inner("inner", RangeKind::kOp);
        profile_bytes(1);
      }
    });
  for (int i = 0; i < 20; ++i) {
    Profiler profiler({.max_ranges = 5000});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const ProfileReport report = profiler.stop();
    EXPECT_GE(report.row("outer").self_seconds, 0);
    EXPECT_LE(report.row("inner").calls, 5000);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(Profiler, MemoryIsBounded) {
  ProfilerOptions options = with_test_clock();
  options.max_ranges = 10;
  Profiler profiler(options);
  for (int i = 0; i < 25; ++i) {
    const ProfileRange range("range");
    pass(1);
  }
  const ProfileReport report = profiler.stop();
  EXPECT_EQ(report.row("range").calls, 10);
  EXPECT_EQ(report.dropped(), 15);
  EXPECT_NE(report.table().find("15 further ranges were not recorded"), std::string::npos) << report.table();
  EXPECT_EQ(trace_of(report).at("otherData").at("dropped_ranges"), 15);
}

// Counts, of known shapes.

ProfileReport profiled(const std::function<void()>& fn) {
  Profiler profiler;
  fn();
  return profiler.stop();
}

void expect_counts(const ProfileReport& report, const std::string& name, int64_t calls, double bytes, double flops) {
  const ProfileRow row = report.row(name);
  EXPECT_EQ(row.calls, calls) << name;
  EXPECT_EQ(row.bytes, bytes) << name;
  EXPECT_EQ(row.flops, flops) << name;
}

TEST(ProfilerCounts, Linear) {
  Generator generator = test::fresh_generator();
  const int64_t rows = 5, in = 7, out = 3;
  Tensor x = randn({rows, in}, generator), weight = randn({out, in}, generator), bias = randn({out}, generator);
  x.set_requires_grad(true);
  weight.set_requires_grad(true);
  bias.set_requires_grad(true);
  const ProfileReport report = profiled([&] { linear(x, weight, bias).backward(ones({rows, out})); });
  expect_counts(report, "linear", 1, 4.0 * (rows * in + out * in + out + rows * out), 2.0 * rows * in * out);
  // dy, x and weight are read; dx, dweight and dbias written.
  expect_counts(report, "linear backward", 1, 4.0 * (rows * out + 2 * (rows * in + out * in) + out),
                4.0 * rows * in * out);
}

TEST(ProfilerCounts, RowChain) {
  const int64_t rows = 6, in = 5, hidden = 9, out = 4;
  const ProfileReport report = profiled([&] {
    RowChain chain(ones({rows, in}));
    chain.linear(ones({hidden, in}), ones({hidden}), Activation::kGelu);
    chain.linear(ones({out, hidden}));
    chain.result();
  });
  expect_counts(report, "row_chain", 1, 4.0 * (rows * in + hidden * in + hidden + out * hidden + rows * out),
                2.0 * rows * hidden * (in + out));  // the hidden rows are not in memory
}

TEST(ProfilerCounts, MatmulAndItsBackwardMadeOfOps) {
  Generator generator = test::fresh_generator();
  const int64_t b = 2, m = 3, k = 5, n = 4;
  Tensor x = randn({b, m, k}, generator, {.dtype = float64, .requires_grad = true});
  Tensor y = randn({b, k, n}, generator, {.dtype = float64, .requires_grad = true});
  const ProfileReport report = profiled([&] { matmul(x, y).backward(ones({b, m, n}, {.dtype = float64})); });
  const double product = 8.0 * (b * m * k + b * k * n + b * m * n);
  expect_counts(report, "matmul", 3, 3 * product, 3 * 2.0 * b * m * n * k);
  EXPECT_EQ(report.row("matmul backward").calls, 1);
  EXPECT_EQ(report.row("matmul backward").bytes, 0);  // its products count theirs
  EXPECT_EQ(report.row("matmul backward").flops, 0);
}

TEST(ProfilerCounts, Attention) {
  Generator generator = test::fresh_generator();
  const int64_t heads = 2, size = 8;
  const std::vector<int64_t> lengths = {3, 0, 5};
  Tensor qkv = randn({8, 3, heads, size}, generator);
  qkv.set_requires_grad(true);
  const auto run = [&](const AttentionOptions& options) {
    return profiled([&] { sum(self_attention(qkv, packed_layout(lengths), options)).backward(); });
  };
  const double pairs = 3 * 3 + 5 * 5;
  const ProfileReport full = run({});
  EXPECT_EQ(full.row("attention").flops, 4 * pairs * heads * size);
  EXPECT_EQ(full.row("attention").bytes, 4.0 * (qkv.numel() + qkv.numel() / 3));
  EXPECT_EQ(full.row("attention backward").flops, 10 * pairs * heads * size);
  EXPECT_EQ(run({.causal = true}).row("attention").flops, 4.0 * (6 + 15) * heads * size);
  // Each query sees itself and one neighbour on each side.
  EXPECT_EQ(run({.window = 1}).row("attention").flops, 4.0 * (7 + 13) * heads * size);
}

TEST(ProfilerCounts, PointwiseBroadcastsAndViews) {
  Generator generator = test::fresh_generator();
  const Tensor x = randn({6, 10}, generator), row = randn({10}, generator);
  const ProfileReport report = profiled([&] {
    add(x, row);
    add(x, x);
    add(x, row.expand({6, 10}));
    x.reshape({60}).slice(0, 3, 9);
    x.to(bfloat16);
    Tensor y = x.clone();
    y.add_(x);
  });
  // add(x, row); add(x, x): x once; the expanded row is still ten numbers; in place: both are read, one written.
  expect_counts(report, "add", 4, 4.0 * (60 + 10 + 60) + 4.0 * (60 + 60) + 4.0 * (60 + 10 + 60) + 4.0 * 180, 0);
  EXPECT_EQ(report.row("reshape").bytes, 0);
  EXPECT_EQ(report.row("reshape").calls, 1);
  EXPECT_EQ(report.row("slice").bytes, 0);
  EXPECT_EQ(report.row("to").bytes, 60 * 4 + 60 * 2);
}

TEST(ProfilerCounts, EmbeddingReadsOnlyItsRows) {
  Generator generator = test::fresh_generator();
  Tensor weight = randn({1000, 8}, generator);
  weight.set_requires_grad(true);
  const Tensor ids = from_vector(std::vector<int64_t>{1, 5, 5}, {3});
  const ProfileReport report = profiled([&] { embedding(weight, ids).backward(ones({3, 8})); });
  expect_counts(report, "embedding", 1, 2 * 3 * 8 * 4 + 3 * 8, 0);
  expect_counts(report, "embedding backward", 1, 3 * 8 * 4 + 3 * 8 + 1000 * 8 * 4, 0);  // dy, ids, dweight
}

TEST(ProfilerCounts, RecomputationIsASeparateRange) {
  Generator generator = test::fresh_generator();
  Tensor x = randn({4, 4}, generator);
  x.set_requires_grad(true);
  const auto fn = [](const Tensor& in) { return gelu(gelu(in)); };
  const ProfileReport report = profiled([&] { sum(checkpoint(fn, x)).backward(); });
  EXPECT_EQ(report.row("recomputation").calls, 1);
  EXPECT_EQ(report.row("gelu").calls, 4);
  EXPECT_EQ(report.row("gelu backward").calls, 2);
}

TEST(ProfilerCounts, RooflineShare) {
  ProfilerOptions options = with_test_clock();
  options.roofline.bytes_per_second = 1e9;
  options.roofline.flops_per_second = {{float32, 1e12}};
  Profiler profiler(options);
  const auto range = [](const char* name, double bytes, double flops, DType dtype) {
    const ProfileRange opened(name, RangeKind::kOp);
    profile_bytes(bytes);
    profile_flops(flops, dtype);
    pass(1000);
  };
  range("by bytes", 250, 1, float32);
  range("by flops", 10, 500e3, float32);
  range("unknown rate", 0, 500e3, float64);
  const ProfileReport report = profiler.stop();
  EXPECT_NEAR(report.row("by bytes").roofline_share(), 0.25, 1e-12);
  EXPECT_NEAR(report.row("by flops").roofline_share(), 0.5, 1e-12);
  EXPECT_TRUE(std::isnan(report.row("unknown rate").roofline_share()));
  const std::string table = report.table();
  EXPECT_NE(table.find("50.0 %"), std::string::npos) << table;
  EXPECT_NE(table.find("1000.0 GFLOP/s float32"), std::string::npos) << table;
  EXPECT_NE(table.find("on the CPU the device's time is the CPU's"), std::string::npos) << table;
}

TEST(ProfilerCounts, MeasuredRatesArePositive) {
  const detail::Roofline roofline = measure_roofline(cpu, {float32, bfloat16});
  EXPECT_GT(roofline.bytes_per_second, 1e7);
  EXPECT_GT(roofline.flops_per_second.at(float32), 1e7);
  EXPECT_GT(roofline.flops_per_second.at(bfloat16), 1e6);
  EXPECT_LT(roofline.bytes_per_second, 1e14);
}

// The trace.

TEST(ProfilerTrace, NamesAreEscaped) {
  const std::string bad = "quote \" backslash \\ newline \n tab \t bell \a é \xff end " + std::string(5000, 'x');
  Profiler profiler(with_test_clock());
  {
    const ProfileRange range(bad);
    pass(1);
  }
  { const ProfileRange empty(std::string{}); }
  const ProfileReport report = profiler.stop();
  const Json trace = trace_of(report);
  EXPECT_EQ(check_trace(trace), 2);
  EXPECT_TRUE(event_named(trace, "root module"));
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("name") == "root module") continue;
    const std::string name = event.at("name");
    EXPECT_TRUE(name.starts_with("quote \" backslash \\ newline \n tab \t bell \a é "));
    EXPECT_TRUE(name.ends_with(std::string(5000, 'x')));
  }
  EXPECT_LT(report.table().size(), 3000u);  // long names are cut in the table
}

TEST(ProfilerTrace, ARealStepIsWellFormed) {
  Generator generator = test::fresh_generator();
  Tensor x = randn({20, 16}, generator), weight = randn({16, 16}, generator);
  weight.set_requires_grad(true);
  const ProfileReport report = profiled([&] {
    for (int i = 0; i < 3; ++i) {
      const ProfileRange step("step");
      weight.set_grad({});
      sum(linear(gelu(linear(x, weight)), weight)).backward();
    }
  });
  EXPECT_GT(check_trace(trace_of(report)), 20);
  const Json trace = trace_of(report);
  int counters = 0, names = 0;
  for (const Json& event : trace.at("traceEvents")) {
    counters += event.at("ph") == "C";
    names += event.at("ph") == "M";
  }
  EXPECT_GT(counters, 3);
  EXPECT_EQ(names, 2);  // the process and one thread
  double self = 0;
  for (const ProfileRow& row : report.rows()) self += row.self_seconds;
  EXPECT_NEAR(self, report.row("step").total_seconds, 1e-9);
}

TEST(ProfilerTrace, PathThatCannotBeWritten) {
  Profiler profiler(with_test_clock());
  const ProfileReport report = profiler.stop();
  test::expect_error([&] { report.write_trace("/no/such/folder/trace.json"); },
                     {"/no/such/folder/trace.json", "cannot be written", "No such file"});
}

// A device's times, by marks of a pretended queue that runs behind the host.

struct Mark {
  double seconds;
};

TEST(ProfilerDevice, MarksGiveDeviceTimes) {
  double device_now = 0;
  int waits = 0;
  DeviceMarks marks{
      .source = "test marks",
      .record = [&] { return std::make_shared<Mark>(Mark{device_now}); },
      .synchronize = [&] { ++waits; },
      .seconds_between = [](void* from,
                            void* to) { return static_cast<Mark*>(to)->seconds - static_cast<Mark*>(from)->seconds; }};
  ProfilerOptions options = with_test_clock();
  options.device_profiler = make_mark_profiler(marks, 3);
  options.roofline.bytes_per_second = 1e9;
  Profiler profiler(options);
  const int waits_at_start = waits;
  {
    const ProfileRange outer("outer");
    pass(10);
    device_now += 1e-6;
    {
      const ProfileRange inner("inner", RangeKind::kOp);
      profile_bytes(2000);
      pass(5);
      device_now += 4e-6;
    }
    device_now += 2e-6;
  }
  {
    const ProfileRange third("third", RangeKind::kOp);
    device_now += 8e-6;
  }
  {
    const ProfileRange fourth("fourth", RangeKind::kOp);  // beyond max_pairs
    device_now += 1e-6;
  }
  EXPECT_EQ(waits, waits_at_start);  // never inside a step
  const ProfileReport report = profiler.stop();
  EXPECT_NEAR(report.row("outer").device_seconds, 7e-6, 1e-12);
  EXPECT_NEAR(report.row("outer").device_self_seconds, 3e-6, 1e-12);
  EXPECT_NEAR(report.row("outer").total_seconds, 15e-9, 1e-15);
  EXPECT_NEAR(report.row("inner").device_self_seconds, 4e-6, 1e-12);
  EXPECT_NEAR(report.row("inner").roofline_share(), 0.5, 1e-9);  // of the device's time
  EXPECT_NEAR(report.row("third").device_seconds, 8e-6, 1e-12);
  EXPECT_EQ(report.row("fourth").device_seconds, 0);
  const Json trace = trace_of(report);
  EXPECT_EQ(check_trace(trace), 4 + 3);
  EXPECT_NE(report.table().find("device times from test marks"), std::string::npos);
}

/// Kernels with names, as CUPTI reports them: each belongs to the innermost range that launched it.
class KernelTimes final : public DeviceProfiler {
 public:
  void start(int64_t (*)()) override {}
  void open(uint64_t range) override { ranges_.push_back(range); }
  void close(uint64_t) override {}
  detail::DeviceTimeline finish() override {
    return {.spans = {{"gemm", ranges_.at(1), 2000, 2300, 0},
                      {"reduce", ranges_.at(1), 2300, 2400, 0},
                      {"copy", ranges_.at(0), 2400, 2450, 0},
                      {"stray", 0, 2450, 2460, 0}},
            .inclusive = false,
            .source = "kernels",
            .tracks = {"stream 7"}};
  }

 private:
  std::vector<uint64_t> ranges_;
};

TEST(ProfilerDevice, KernelsBelongToTheirRange) {
  ProfilerOptions options = with_test_clock();
  options.device_profiler = std::make_shared<KernelTimes>();
  Profiler profiler(options);
  {
    const ProfileRange outer("outer", RangeKind::kOp);
    const ProfileRange inner("inner", RangeKind::kOp);
  }
  const ProfileReport report = profiler.stop();
  EXPECT_NEAR(report.row("inner").device_self_seconds, 400e-9, 1e-15);
  EXPECT_NEAR(report.row("outer").device_self_seconds, 50e-9, 1e-15);
  EXPECT_NEAR(report.row("outer").device_seconds, 450e-9, 1e-15);
  const Json trace = trace_of(report);
  EXPECT_EQ(check_trace(trace), 2 + 4);
  ASSERT_TRUE(event_named(trace, "gemm"));
  EXPECT_DOUBLE_EQ(event_named(trace, "gemm")->at("ts").get<double>(), 1.0);
}

/// The profiler changes no number.
TEST(Profiler, ChangesNoBit) {
  const auto run = [] {
    Generator generator = test::fresh_generator();
    Tensor x = randn({9, 16}, generator), weight = randn({16, 16}, generator);
    weight.set_requires_grad(true);
    sum(dropout(linear(x, weight), {.p = 0.3, .generator = &generator})).backward();
    return weight.grad();
  };
  const Tensor plain = run();
  Tensor seen;
  profiled([&] { seen = run(); });
  test::expect_equal(seen, plain);
}

}  // namespace
}  // namespace tern
