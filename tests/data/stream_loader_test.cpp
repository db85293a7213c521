// Batches of samples that a source yields one after another.

#include "tern/data/loaders/stream_loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tern/core/profiler/profiler.h"
#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using Ints = std::vector<int64_t>;

/// epoch * 1000, epoch * 1000 + 1, ...: `count` numbers; fails before number `bad`.
auto numbers(int64_t count, int64_t bad = -1) {
  return [=](int64_t epoch) {
    return [=, i = int64_t{0}]() mutable -> std::optional<int64_t> {
      TERN_CHECK(i != bad, "lines.txt:", i + 1, ": no number");
      return i < count ? std::optional(epoch * 1000 + i++) : std::nullopt;
    };
  };
}

template <class Loader>
std::vector<Ints> batches_of(const Loader& loader, int64_t epoch, int64_t first = 0) {
  std::vector<Ints> batches;
  for (const Tensor& batch : loader.epoch(epoch, first)) batches.push_back(batch.template to_vector<int64_t>());
  return batches;
}

Ints joined(const std::vector<Ints>& batches) {
  Ints all;
  for (const Ints& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

TEST(StreamLoader, SameBatchesForAnyNumberOfWorkersAndAfterResuming) {
  for (const int64_t buffer : {0, 1, 7, 500})
    for (const bool drop_last : {false, true}) {
      StreamLoaderOptions options{.batch_size = 4, .drop_last = drop_last, .shuffle_buffer = buffer, .workers = 0};
      options.seed = fresh_seed();
      const std::vector<Ints> expected = batches_of(StreamLoader(numbers(103), options), 2);
      ASSERT_EQ(expected.size(), drop_last ? 25u : 26u);
      Ints order = joined(expected);
      for (size_t place = 0; place < order.size(); ++place)  // no sample can come before the buffer holds it
        EXPECT_LT(order[place] - 2000, static_cast<int64_t>(place) + std::max<int64_t>(buffer, 1));
      EXPECT_EQ(std::is_sorted(order.begin(), order.end()), buffer <= 1);
      if (buffer > 1) {
        Ints other = joined(batches_of(StreamLoader(numbers(103), options), 3));
        for (int64_t& number : other) number -= 1000;
        EXPECT_NE(other, order);
      }
      std::sort(order.begin(), order.end());
      EXPECT_EQ(std::adjacent_find(order.begin(), order.end()), order.end());
      EXPECT_EQ(order.size(), drop_last ? 100u : 103u);
      for (const int workers : {1, 4}) {
        options.workers = workers;
        const StreamLoader loader(numbers(103), options);
        EXPECT_EQ(batches_of(loader, 2), expected);
        EXPECT_EQ(batches_of(loader, 2, 9), std::vector<Ints>(expected.begin() + 9, expected.end()));
        EXPECT_TRUE(batches_of(loader, 2, 30).empty());
      }
    }
}

TEST(StreamLoader, RanksShareTheStreamAsDistributedSamplerDoes) {
  for (const int64_t count : {0, 2, 9, 10, 12})
    for (const bool drop_last : {false, true})
      for (int64_t rank = 0; rank < 4; ++rank) {
        Ints padded;
        const int64_t total = drop_last ? count / 4 * 4 : (count + 3) / 4 * 4;
        for (int64_t i = 0; i < total; ++i) padded.push_back(i % count);
        Ints expected;
        for (int64_t i = rank; i < total; i += 4) expected.push_back(padded[static_cast<size_t>(i)]);
        const StreamLoader loader(numbers(count), {.drop_last = drop_last, .rank = rank, .ranks = 4});
        EXPECT_EQ(joined(batches_of(loader, 0)), expected) << count << " " << drop_last << " " << rank;
      }
}

TEST(StreamLoader, CollateGetsTheKeys) {
  const StreamLoader loader(numbers(10),
                            [](const std::vector<int64_t>& samples, std::span<const ItemKey> keys) {
                              Ints rows;
                              for (size_t i = 0; i < samples.size(); ++i) {
                                EXPECT_EQ(samples[i], keys[i].epoch * 1000 + keys[i].row);
                                EXPECT_EQ(keys[i].seed, 5u);
                                rows.push_back(keys[i].row);
                              }
                              TERN_CHECK(rows[0] < 9, "no");
                              return rows;
                            },
                            {.batch_size = 3, .seed = 5});
  auto stream = loader.epoch(4);
  EXPECT_EQ(stream.size(), stream.kUnknownSize);
  for (int64_t first = 0; first < 9; first += 3) EXPECT_EQ(*stream.next(), (Ints{first, first + 1, first + 2}));
  EXPECT_TRUE(fails([&] { stream.next(); }, {"collating samples 9 of epoch 4: no"}));
  EXPECT_FALSE(stream.next());
}

TEST(StreamLoader, AnErrorOfTheSourceEndsTheEpoch) {
  for (const int workers : {0, 1, 3}) {
    const StreamLoader loader(numbers(20, 7), {.batch_size = 3, .workers = workers});
    auto stream = loader.epoch(0);
    EXPECT_TRUE(stream.next() && stream.next());
    EXPECT_EQ(error_of([&] { stream.next(); }), "sample 7 of the stream: lines.txt:8: no number");
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(stream.next());
  }
  const auto with = [](const StreamLoaderOptions& options) { return [=] { StreamLoader(numbers(1), options); }; };
  EXPECT_TRUE(fails(with({.batch_size = 0}), {"batch_size", "got 0"}));
  EXPECT_TRUE(fails(with({.shuffle_buffer = -1}), {"shuffle_buffer", "-1"}));
  EXPECT_TRUE(fails(with({.rank = 2, .ranks = 2}), {"rank 2 of 2"}));
  EXPECT_TRUE(fails([] { StreamLoader(numbers(1)).epoch(-1); }, {"-1 and 0"}));
  EXPECT_TRUE(fails([] { StreamLoader(numbers(1), {.batch_size = 4}).epoch(0, INT64_MAX); }, {"too large"}));
}

TEST(DataWaits, AreWhatTheConsumerWaited) {
  for (const bool slow : {false, true}) {
    std::atomic<int64_t> made = 0, wanted = 0;
    const auto make = [&](int64_t step) {
      // Slow: a batch is made only after the consumer asked for it.
      while (slow && wanted <= step) std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return ++made, step;
    };
    BatchStream<int64_t> stream(0, 20, make, {.workers = 1, .prefetch = 4});
    Profiler profiler;
    for (int64_t step = 0; step < 20; ++step) {
      while (!slow && made < std::min<int64_t>(step + 4, 20)) std::this_thread::yield();
      // The last of them is counted before it is stored.
      if (!slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++wanted;
      EXPECT_EQ(*stream.next(), step);
    }
    const ProfileReport report = profiler.stop();
    const DataWaits waits = data_waits(report);
    EXPECT_EQ(waits.batches, 20);
    EXPECT_LE(waits.share, 1);
    if (slow) {
      EXPECT_GT(waits.waits, 0);  // all 20, unless this thread is interrupted
      EXPECT_LT(waits.mean_ready, 1);
    } else {
      EXPECT_GT(waits.mean_ready, 2);
    }
    EXPECT_EQ(report.row(kTakeRanges[0]).calls, waits.waits);
  }
}

TEST(DataWaits, AreSummedFromTheRanges) {
  EXPECT_EQ(DataWaits().str(), "");
  for (const int64_t wait_ns : {24000000, 26000000}) {
    detail::ProfileThread thread{.id = 1, .name = "main", .records = {}};
    int64_t now = 0;
    for (const size_t depth : {0, 3, 1, 0, 2, 3, 3, 3}) {
      const int64_t end = now + (depth == 0 ? wait_ns : 1000);
      thread.records.push_back({.name = kTakeRanges[depth], .begin_ns = now, .end_ns = end, .kind = RangeKind::kPhase});
      now = end + 1000;
    }
    const DataWaits waits = data_waits(ProfileReport({thread}, {}, false, {}, 0, 1000000000, 0));
    const double seconds = 2e-9 * static_cast<double>(wait_ns);
    EXPECT_EQ(waits.batches, 8);
    EXPECT_EQ(waits.waits, 2);
    EXPECT_NEAR(waits.seconds, seconds, 1e-12);
    EXPECT_NEAR(waits.share, seconds, 1e-12);
    EXPECT_DOUBLE_EQ(waits.mean_ready, 15 / 8.0);
    const bool hint = wait_ns > 25000000;
    EXPECT_TRUE(contains(waits.str(), {hint ? "waited 0.052 s for data (5.2 %" : "waited 0.048 s for data (4.8 %",
                                       "for 2 of 8 batches; 1.9 batches"}));
    EXPECT_EQ(waits.str().find("more workers") != std::string::npos, hint);
  }
}

}  // namespace
}  // namespace tern::data
