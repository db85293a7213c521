// The profiler: times by a clock that the test sets, threads, and a well-formed trace.

#include "tern/core/profiler/profiler.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/core/ops/roofline.h"
#include "tern/core/profiler/device_profiler.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::test {
namespace {

using Json = nlohmann::json;

std::atomic<int64_t> now_ns{0};
int64_t test_clock() { return now_ns.load(); }
void pass(int64_t nanoseconds) { now_ns += nanoseconds; }

ProfilerOptions with_test_clock() {
  now_ns = 1000;
  return {.clock = test_clock};
}

ProfileReport profiled(const std::function<void()>& fn, const ProfilerOptions& options = {}) {
  Profiler profiler(options);
  fn();
  return profiler.stop();
}
/// By the test's clock.
ProfileReport timed(const std::function<void()>& fn) { return profiled(fn, with_test_clock()); }

/// The trace as a reader sees it.
Json trace_of(const ProfileReport& report) {
  const TemporaryFolder folder;
  report.write_trace(folder / "trace.json");
  return Json::parse(std::ifstream(folder / "trace.json"));
}

/// Every event has the fields of the format, and the events of each thread nest. Returns the number of "X" events.
int check_trace(const Json& trace) {
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, int64_t>>> spans;  // nanoseconds
  int count = 0;
  const auto nanoseconds = [](const Json& number) { return std::llround(number.get<double>() * 1000); };
  for (const Json& event : trace.at("traceEvents")) {
    SCOPED_TRACE(event);
    EXPECT_TRUE(event.at("name").is_string() && event.at("pid").is_number_integer());
    const std::string phase = event.at("ph");
    EXPECT_TRUE(phase != "M" || event.at("args").at("name").is_string());
    EXPECT_TRUE(phase == "M" || event.at("ts").get<double>() >= 0);
    EXPECT_TRUE(phase != "C" || event.at("args").at("bytes").is_number());
    if (phase == "M" || phase == "C") continue;
    EXPECT_EQ(phase, "X");
    EXPECT_GE(event.at("dur").get<double>(), 0);
    const int64_t begin = nanoseconds(event.at("ts"));
    spans[{event.at("pid"), event.at("tid")}].emplace_back(begin, begin + nanoseconds(event.at("dur")));
    ++count;
  }
  for (auto& [thread, list] : spans) {
    std::ranges::sort(list, {}, [](const auto& span) { return std::pair(span.first, -span.second); });
    std::vector<int64_t> open;
    for (const auto& [begin, end] : list) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      EXPECT_TRUE(open.empty() || end <= open.back()) << "overlaps at " << begin;
      open.push_back(end);
    }
  }
  return count;
}

Json event_named(const Json& trace, const std::string& name) {
  for (const Json& event : trace.at("traceEvents"))
    if (event.at("name") == name) return event;
  fail("the trace has no event '", name, "'");
}

void pass_in(const char* name, int64_t nanoseconds, RangeKind kind = RangeKind::kPhase) {
  const ProfileRange range(name, kind);
  pass(nanoseconds);
}

void expect_times(const ProfileReport& report, const char* name, int64_t calls, double total_nanoseconds,
                  double self_nanoseconds) {
  SCOPED_TRACE(name);
  const ProfileRow row = report.row(name);
  EXPECT_EQ(row.calls, calls);
  EXPECT_NEAR(row.total_seconds, total_nanoseconds * 1e-9, 1e-15);
  EXPECT_NEAR(row.self_seconds, self_nanoseconds * 1e-9, 1e-15);
}

TEST(Profiler, SelfAndTotalTimes) {
  const ProfileReport report = timed([] {
    for (int i = 0; i < 2; ++i) {
      const ProfileRange outer("outer");
      pass(100);
      {
        const ProfileRange inner("inner", RangeKind::kOp);
        pass(30);
        pass_in("innermost", 7, RangeKind::kBackward);
      }
      pass_in("inner", 3, RangeKind::kOp);
      pass(10);
    }
    pass(50);
  });
  EXPECT_DOUBLE_EQ(report.seconds(), 350e-9);
  EXPECT_EQ(report.rows().size(), 3u);
  expect_times(report, "outer", 2, 300, 220);
  expect_times(report, "inner", 4, 80, 66);
  expect_times(report, "innermost backward", 2, 14, 14);
  EXPECT_EQ(report.row("inner").device_self_seconds, report.row("inner").self_seconds);  // the CPU is the device
  EXPECT_EQ(report.rows()[0].name, "outer");                                             // most self time first
  const Json trace = trace_of(report);
  EXPECT_EQ(check_trace(trace), 8);
  const Json event = event_named(trace, "innermost backward");
  EXPECT_EQ(event.at("cat"), "backward");
  EXPECT_DOUBLE_EQ(event.at("ts").get<double>(), 0.130);
  EXPECT_DOUBLE_EQ(event.at("dur").get<double>(), 0.007);
}

TEST(Profiler, ARangeInsideItselfCountsOnce) {
  const ProfileReport report = timed([] {
    const ProfileRange outer("again");
    pass(10);
    const ProfileRange between("between");
    pass(5);
    pass_in("again", 1);
  });
  expect_times(report, "again", 2, 16, 11);
  expect_times(report, "between", 1, 6, 5);
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
  pass_in("after", 4);
  const ProfileReport report = profiler.stop();
  expect_times(report, "outer", 1, 3, 1);
  expect_times(report, "inner", 1, 2, 2);
  expect_times(report, "after", 1, 4, 4);
  const Json trace = trace_of(report);
  EXPECT_EQ(check_trace(trace), 3);
  // "after" is not inside anything.
  EXPECT_DOUBLE_EQ(event_named(trace, "after").at("ts").get<double>(), 0.003);
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
    expect_error([&] { profiler.stop(); }, {"stop() was already called"});
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
  pass_in("inside", 1);
  const ProfileReport one = first->stop();
  EXPECT_EQ(one.row("left open").calls, 0);
  EXPECT_EQ(one.row("inside").calls, 1);
  Profiler second(with_test_clock());
  const ProfileRange around("around");
  left_open.reset();
  pass_in("range", 3);
  const ProfileReport two = second.stop();
  ASSERT_EQ(two.rows().size(), 1u);
  expect_times(two, "range", 1, 3, 3);
}

TEST(Profiler, OnlyOneAtATime) {
  Profiler profiler(with_test_clock());
  expect_error([] { Profiler second; }, {"another one is running", "stop it first"});
  expect_error([] { Profiler second({.max_ranges = -1}); }, {"max_ranges", "-1"});
  EXPECT_TRUE(profiling());  // the first goes on
  profiler.stop();
  Profiler next(with_test_clock());
}

TEST(Profiler, ThreadsHaveSeparateRanges) {
  Profiler profiler;
  constexpr int kThreads = 4, kRanges = 500;
  {
    const ProfileRange waiting("waiting");
    in_threads(kThreads, [](size_t) {
      for (int i = 0; i < kRanges; ++i) {
        const ProfileRange outer("outer");
        const ProfileRange inner("module " + std::to_string(i % 3));
        profile_flops(2, float32);
      }
    });
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
  std::jthread worker([&] {
    in_threads(2, [&](size_t) {
      while (!done) {
        const ProfileRange outer("outer");
        const ProfileRange inner("inner", RangeKind::kOp);
        profile_bytes(1);
      }
    });
  });
  for (int i = 0; i < 20; ++i) {
    Profiler profiler({.max_ranges = 5000});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const ProfileReport report = profiler.stop();
    EXPECT_GE(report.row("outer").self_seconds, 0);
    EXPECT_LE(report.row("inner").calls, 5000);
  }
  done = true;
}

TEST(Profiler, MemoryIsBounded) {
  const ProfileReport report = profiled(
      [] {
        for (int i = 0; i < 25; ++i) pass_in("range", 1);
      },
      {.max_ranges = 10});
  EXPECT_EQ(report.row("range").calls, 10);
  EXPECT_EQ(report.dropped(), 15);
  EXPECT_TRUE(has(report.table(), "15 further ranges were not recorded"));
  EXPECT_EQ(trace_of(report).at("otherData").at("dropped_ranges"), 15);
}

TEST(Profiler, RooflineShare) {
  ProfilerOptions options = with_test_clock();
  options.roofline.bytes_per_second = 1e9;
  options.roofline.flops_per_second = {{float32, 1e12}};
  const auto range = [](const char* name, double bytes, double flops, DType dtype) {
    const ProfileRange opened(name, RangeKind::kOp);
    profile_bytes(bytes);
    profile_flops(flops, dtype);
    pass(1000);
  };
  const auto ranges = [&] {
    range("by bytes", 250, 1, float32);
    range("by flops", 10, 500e3, float32);
    range("unknown rate", 0, 500e3, float64);
  };
  const ProfileReport report = profiled(ranges, options);
  EXPECT_NEAR(report.row("by bytes").roofline_share(), 0.25, 1e-12);
  EXPECT_NEAR(report.row("by flops").roofline_share(), 0.5, 1e-12);
  EXPECT_TRUE(std::isnan(report.row("unknown rate").roofline_share()));
  expect_contains(report.table(), {"50.0 %", "1000.0 GFLOP/s float32", "on the CPU the device's time is the CPU's"});
}

TEST(Profiler, MeasuredRatesArePositive) {
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
  EXPECT_NO_THROW(event_named(trace, "root module"));
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("name") == "root module") continue;
    const std::string name = event.at("name");
    EXPECT_TRUE(name.starts_with("quote \" backslash \\ newline \n tab \t bell \a é "));
    EXPECT_TRUE(name.ends_with(std::string(5000, 'x')));
  }
  EXPECT_LT(report.table().size(), 3000u);  // long names are cut in the table
}

TEST(ProfilerTrace, ARealStepIsWellFormed) {
  const Tensor x = ones({20, 16});
  Tensor weight = ones({16, 16}, {.requires_grad = true});
  const ProfileReport report = profiled([&] {
    for (int i = 0; i < 3; ++i) {
      const ProfileRange step("step");
      weight.set_grad({});
      sum(linear(gelu(linear(x, weight)), weight)).backward();
    }
  });
  const Json trace = trace_of(report);
  EXPECT_GT(check_trace(trace), 20);
  std::map<std::string, int> events;
  for (const Json& event : trace.at("traceEvents")) ++events[event.at("ph").get<std::string>()];
  EXPECT_GT(events["C"], 3);
  EXPECT_EQ(events["M"], 2);  // names of the process and one thread
  double self = 0;
  for (const ProfileRow& row : report.rows()) self += row.self_seconds;
  EXPECT_NEAR(self, report.row("step").total_seconds, 1e-9);
}

TEST(ProfilerTrace, PathThatCannotBeWritten) {
  const ProfileReport report = Profiler().stop();
  expect_error([&] { report.write_trace("/no/such/folder/trace.json"); },
               {"/no/such/folder/trace.json", "cannot be written", "No such file"});
}

// A device's times, by marks of a pretended queue that runs behind the host.

TEST(ProfilerDevice, MarksGiveDeviceTimes) {
  double device_now = 0;
  int waits = 0;
  const auto seconds_between = [](void* from, void* to) {
    return *static_cast<double*>(to) - *static_cast<double*>(from);
  };
  const DeviceMarks marks{.source = "test marks",
                          .record = [&] { return std::make_shared<double>(device_now); },
                          .synchronize = [&] { ++waits; },
                          .seconds_between = seconds_between};
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
  for (const auto& [name, seconds] : {std::pair("third", 8e-6), {"fourth", 1e-6}}) {  // the fourth: beyond max_pairs
    const ProfileRange range(name, RangeKind::kOp);
    device_now += seconds;
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
  EXPECT_TRUE(has(report.table(), "device times from test marks"));
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
  const auto ranges = [] {
    const ProfileRange outer("outer", RangeKind::kOp);
    const ProfileRange inner("inner", RangeKind::kOp);
  };
  ProfilerOptions options = with_test_clock();
  options.device_profiler = std::make_shared<KernelTimes>();
  const ProfileReport report = profiled(ranges, options);
  EXPECT_NEAR(report.row("inner").device_self_seconds, 400e-9, 1e-15);
  EXPECT_NEAR(report.row("outer").device_self_seconds, 50e-9, 1e-15);
  EXPECT_NEAR(report.row("outer").device_seconds, 450e-9, 1e-15);
  const Json trace = trace_of(report);
  EXPECT_EQ(check_trace(trace), 2 + 4);
  EXPECT_DOUBLE_EQ(event_named(trace, "gemm").at("ts").get<double>(), 1.0);
}

/// The profiler changes no number.
TEST(Profiler, ChangesNoBit) {
  const auto run = [] {
    Generator generator = fresh_generator();
    const Tensor x = randn({9, 16}, generator), weight = randn({16, 16}, generator, {.requires_grad = true});
    sum(dropout(linear(x, weight), {.p = 0.3, .generator = &generator})).backward();
    return weight.grad();
  };
  const Tensor plain = run();
  Tensor seen;
  profiled([&] { seen = run(); });
  expect_equal(seen, plain);
}

}  // namespace
}  // namespace tern::test
