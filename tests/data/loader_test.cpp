// The stream of prefetched batches, the generic loader, and digits.

#include "tern/data/loaders/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>

#include "tern/data/datasets/digits.h"
#include "tern/data/loaders/prefetch.h"
#include "tern/data/plan/shuffle.h"
#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using Ints = std::vector<int64_t>;

/// Takes a different time for each batch, so that workers finish out of order.
int64_t slow_square(int64_t step) {
  RandomStream random(fresh_seed(), Draw::kSplit, static_cast<uint64_t>(step));
  std::this_thread::sleep_for(std::chrono::microseconds(random.below(500)));
  return step * step;
}

TEST(BatchStream, KeepsOrderForAnyNumberOfWorkers) {
  for (const int workers : {0, 1, 2, 7})
    for (const int64_t prefetch : {0, 1, 3}) {
      BatchStream<int64_t> stream(5, 60, slow_square, {.workers = workers, .prefetch = prefetch});
      EXPECT_EQ(stream.size(), 55);
      int64_t step = 5;
      for (const int64_t square : stream) {
        EXPECT_EQ(square, step * step);
        ++step;
      }
      EXPECT_EQ(step, 60);
      EXPECT_FALSE(stream.next());
    }
}

TEST(BatchStream, IsBounded) {
  std::atomic<int64_t> made = 0;
  BatchStream<int64_t> stream(0, 1000, [&](int64_t step) { return ++made, step; }, {.workers = 3, .prefetch = 4});
  for (int64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(*stream.next(), step);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_LE(made, step + 1 + 4);
  }
}

TEST(BatchStream, NothingIsMadeAheadWithoutWorkers) {
  int64_t made = 0;
  BatchStream<int64_t> stream(0, 10, [&](int64_t step) { return ++made, step; }, {.workers = 0});
  EXPECT_EQ(made, 0);
  stream.next();
  EXPECT_EQ(made, 1);
}

TEST(BatchStream, ExceptionsArriveAtTheirBatch) {
  for (const int workers : {0, 1, 4}) {
    const auto make = [](int64_t step) {
      if (step % 7 == 6) throw std::runtime_error("step " + std::to_string(step));
      return step;
    };
    BatchStream<int64_t> stream(0, 20, make, {.workers = workers});
    for (int64_t step = 0; step < 20; ++step) {
      try {
        EXPECT_EQ(*stream.next(), step);
        EXPECT_NE(step % 7, 6);
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), "step " + std::to_string(step));
        EXPECT_EQ(step % 7, 6);
      }
    }
    EXPECT_FALSE(stream.next());
  }
}

TEST(BatchStream, CanBeLeftAtAnyTime) {
  for (int taken = 0; taken < 6; ++taken) {
    std::atomic<int> working = 0;
    const auto make = [&](int64_t step) {
      ++working;
      slow_square(step);
      --working;
      return step;
    };
    {
      BatchStream<int64_t> stream(0, 1000, make, {.workers = 3});
      for (int i = 0; i < taken; ++i) stream.next();
      BatchStream<int64_t> moved = std::move(stream);
      EXPECT_EQ(*moved.next(), taken);
    }
    EXPECT_EQ(working, 0);
  }
}

TEST(BatchStream, MovedFrom) {
  for (const int workers : {0, 2}) {
    BatchStream<int64_t> stream(0, 5, slow_square, {.workers = workers});
    auto at = stream.begin();
    EXPECT_EQ(*at, 0);
    BatchStream<int64_t> other = std::move(stream);
    EXPECT_TRUE(fails([&] { stream.next(); }, {"moved from"}));
    EXPECT_TRUE(fails([&] { ++at; }, {"moved from"}));
    EXPECT_TRUE(fails([&] { stream.begin(); }, {"moved from"}));
    EXPECT_TRUE(fails([&] { *at; }, {"no batch"}));
    EXPECT_EQ(*other.next(), 1);
    stream = std::move(other);
    EXPECT_EQ(*stream.next(), 4);
    auto end = stream.begin();
    while (end != stream.end()) ++end;
    EXPECT_TRUE(fails([&] { *end; }, {"no batch"}));
    EXPECT_FALSE(stream.next());
  }
}

TEST(BatchStream, EmptyAndInvalid) {
  BatchStream<int64_t> stream(3, 3, slow_square, {});
  for (const int64_t unexpected : stream) ADD_FAILURE() << unexpected;
  EXPECT_TRUE(fails([] { BatchStream<int64_t>(0, 1, slow_square, {.workers = -1}); }, {"workers", "-1"}));
}

using Sample = std::vector<Tensor>;

/// n samples that a function makes.
template <class S = Sample>
struct Made final : Dataset<S> {
  Made(int64_t n, std::function<S(const ItemKey&)> make) : n_(n), make_(std::move(make)) {}
  int64_t size() const override { return n_; }
  S get(const ItemKey& key) const override { return make_(key); }
  int64_t n_;
  std::function<S(const ItemKey&)> make_;
};

/// Sample i is {i, i * i} and fails at `bad`.
Made<> squares(int64_t n, int64_t bad = -1) {
  return Made<>(n, [bad](const ItemKey& key) -> Sample {
    const int64_t index = key.row;
    TERN_CHECK(index != bad, "sample ", index, " is bad");
    const float i = static_cast<float>(index);
    return {from_vector(std::vector<float>{i, i * i}, {2}), from_vector(Ints{index}, {})};
  });
}

std::vector<Ints> epoch_indices(const Loader<>& loader, int64_t epoch, const BatchStripe& stripe = {}) {
  std::vector<Ints> batches;
  for (const auto& batch : loader.epoch(epoch, stripe)) {
    const Ints indices = batch[1].to_vector<int64_t>();
    const int64_t n = static_cast<int64_t>(indices.size());
    EXPECT_EQ(batch.size(), 2u);
    EXPECT_EQ(batch[0].shape(), (Shape{n, 2}));
    EXPECT_EQ(batch[1].shape(), Shape{n});
    const std::vector<float> values = batch[0].to_vector<float>();
    for (size_t i = 0; i < indices.size(); ++i) {
      EXPECT_EQ(values[2 * i], static_cast<float>(indices[i]));
      EXPECT_EQ(values[2 * i + 1], static_cast<float>(indices[i] * indices[i]));
    }
    batches.push_back(indices);
  }
  return batches;
}

TEST(Loader, SameBatchesForAnyNumberOfWorkers) {
  const Loader reference(squares(103), {.batch_size = 10, .shuffle = true, .workers = 0, .seed = fresh_seed()});
  const std::vector<Ints> expected = epoch_indices(reference, 1);
  ASSERT_EQ(expected.size(), 11u);
  EXPECT_EQ(reference.steps(), 11);
  EXPECT_EQ(expected.back().size(), 3u);
  std::set<int64_t> seen;
  for (const Ints& batch : expected) seen.insert(batch.begin(), batch.end());
  EXPECT_EQ(seen.size(), 103u);
  for (const int workers : {1, 2, 5}) {
    const Loader loader(squares(103), {.batch_size = 10, .shuffle = true, .workers = workers, .seed = fresh_seed()});
    EXPECT_EQ(epoch_indices(loader, 1), expected);
    EXPECT_NE(epoch_indices(loader, 0), expected);
  }
  EXPECT_NE(epoch_indices(Loader(squares(103), {.batch_size = 10, .shuffle = true, .seed = fresh_seed() + 1}), 1),
            expected);
}

TEST(Loader, OrderDropLastAndResume) {
  EXPECT_EQ(epoch_indices(Loader(squares(5), {.batch_size = 2}), 0), (std::vector<Ints>{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(epoch_indices(Loader(squares(5), {.batch_size = 2, .drop_last = true}), 0),
            (std::vector<Ints>{{0, 1}, {2, 3}}));
  EXPECT_EQ(epoch_indices(Loader(squares(0), {.batch_size = 2}), 0), std::vector<Ints>{});
  const Loader loader(squares(50), {.batch_size = 7, .shuffle = true});
  const std::vector<Ints> whole = epoch_indices(loader, 2);
  EXPECT_EQ(epoch_indices(loader, 2, {.first = 3}), std::vector<Ints>(whole.begin() + 3, whole.end()));
}

TEST(Loader, EveryNthBatchForOneOfNProcesses) {
  const Loader loader(squares(50), {.batch_size = 7, .shuffle = true});
  const std::vector<Ints> whole = epoch_indices(loader, 2);  // 8 batches
  for (int64_t rank = 0; rank < 3; ++rank) {
    std::vector<Ints> expected;
    for (size_t i = static_cast<size_t>(rank); i < whole.size(); i += 3) expected.push_back(whole[i]);
    EXPECT_EQ(epoch_indices(loader, 2, {.first = rank, .stride = 3}), expected);
    if (rank == 2) expected.push_back(whole[0]);  // continues at the epoch's first batch
    EXPECT_EQ(epoch_indices(loader, 2, {.first = rank, .stride = 3, .count = 3}), expected);
  }
}

TEST(Loader, Errors) {
  EXPECT_TRUE(fails([] { Loader(squares(3), {.batch_size = 0}); }, {"batch_size", "got 0"}));
  EXPECT_TRUE(fails([] { Loader(squares(3), {.workers = -2}); }, {"workers", "-2"}));
  EXPECT_TRUE(fails([] { Loader(std::shared_ptr<Dataset<>>()); }, {"no data set"}));
  EXPECT_TRUE(fails([] { Loader(squares(3)).epoch(-1); }, {"epoch", "-1"}));
  EXPECT_TRUE(fails([] { Loader(squares(3)).epoch(0, {.first = 4}); }, {"batch 4 of 3"}));
  for (const int workers : {0, 2}) {
    int64_t batches = 0;
    const std::string error = error_of([&] {  // the stream outlives its loader
      for (const auto& batch : Loader(squares(10, 5), {.batch_size = 2, .workers = workers}).epoch(0))
        batches += !batch.empty();
    });
    EXPECT_EQ(error, "sample 5 of the data set: sample 5 is bad");
    EXPECT_EQ(batches, 2);
  }
  const Made<> ragged(2, [](const ItemKey& key) -> Sample { return {zeros({key.row + 1})}; });
  EXPECT_TRUE(fails([&] { Loader(ragged, {.batch_size = 2}).epoch(0).next(); }, {"sample 1", "[2]", "[1]"}));
}

/// Sample `bad` differs from the others in one of four ways. All batches are full: one sample alone differs from none.
Made<> one_odd(int64_t bad, int kind) {
  return Made<>(96, [=](const ItemKey& key) -> Sample {
    if (key.row != bad) return {zeros({2, 2}), zeros({})};
    if (kind == 0) return {zeros({2, 3}), zeros({})};
    if (kind == 1) return {zeros({2, 2}), Tensor()};
    if (kind == 2) return {zeros({2, 2})};
    return {zeros({2, 2}).t().slice(0, 0, 2).expand({2, 2}).t(), zeros({}, {.dtype = int64})};
  });
}

TEST(Loader, ASampleUnlikeTheOthersIsNamedByItsRow) {
  const int64_t bad = static_cast<int64_t>(fresh_seed() % 96);
  for (int kind = 0; kind < 4; ++kind)
    for (const int workers : {0, 2}) {
      SCOPED_TRACE(kind);
      const LoaderOptions options{.batch_size = 8, .shuffle = true, .workers = workers, .seed = fresh_seed()};
      const Loader loader(one_odd(bad, kind), options);
      const std::string error = error_of([&] {
        for (const auto& batch : loader.epoch(0)) EXPECT_EQ(batch.size(), 2u);
      });
      // Names the sample or, if it is the first of its batch, a sample compared with it.
      const std::string name = "sample " + std::to_string(bad);
      EXPECT_TRUE(error.find(name + " ") != error.npos || error.find(name + ":") != error.npos) << error;
      EXPECT_TRUE(contains(error, {"of the data set", "of its batch"}));
    }
}

/// A struct of tensors and values, with a default collate of none of them.
struct Word {
  std::vector<int32_t> letters;
  uint64_t draw = 0;
};
struct Words {
  Tensor letters, lengths;
  std::vector<uint64_t> draws;
  std::vector<Tensor*> tensors() { return {&letters, &lengths}; }
};

Words pad(const std::vector<Word>& samples) {
  int64_t longest = 0;
  for (const Word& word : samples) longest = std::max(longest, static_cast<int64_t>(word.letters.size()));
  const int64_t n = static_cast<int64_t>(samples.size());
  Words batch{zeros({n, longest}, {.dtype = int32}), zeros({n}, {.dtype = int64}), {}};
  for (int64_t i = 0; i < n; ++i) {
    const Word& word = samples[static_cast<size_t>(i)];
    std::copy(word.letters.begin(), word.letters.end(), batch.letters.data<int32_t>() + i * longest);
    batch.lengths.data<int64_t>()[i] = static_cast<int64_t>(word.letters.size());
    batch.draws.push_back(word.draw);
  }
  return batch;
}

TEST(Loader, SamplesOfAStructByAFunctionOfTheUser) {
  const Made<Word> set(41, [](const ItemKey& key) {
    return Word{std::vector<int32_t>(static_cast<size_t>(key.row % 5 + 1), static_cast<int32_t>(key.row)),
                item_random(key).next()};
  });
  const std::vector<int32_t> twice = {3, 7, 3, 3, 9};
  for (const bool sampled : {false, true}) {
    LoaderOptions options{.batch_size = 8, .shuffle = !sampled, .seed = fresh_seed()};
    if (sampled) options.sampler = {5, [&](int64_t) { return twice; }};
    std::vector<uint64_t> expected;
    for (const int workers : {0, 1, 4}) {
      options.workers = workers;
      const Loader loader(
          set, [](const std::vector<Word>& samples, auto) { return pad(samples); }, options);
      static_assert(std::is_same_v<decltype(loader), const Loader<Word, Words>>);
      std::vector<uint64_t> draws;
      for (int64_t epoch = 0; epoch < 2; ++epoch)
        for (const Words& batch : DeviceBatches(loader.epoch(epoch), cpu)) {
          draws.insert(draws.end(), batch.draws.begin(), batch.draws.end());
          for (int64_t i = 0; i < batch.lengths.size(0); ++i) {
            const Tensor letters = batch.letters.select(0, i);
            const int64_t length = batch.lengths.select(0, i).item<int64_t>();
            const int32_t row = letters.select(0, 0).item<int32_t>();
            EXPECT_EQ(length, row % 5 + 1);
            for (int64_t j = 0; j < letters.size(0); ++j)
              EXPECT_EQ(letters.select(0, j).item<int32_t>(), j < length ? row : 0);
          }
        }
      EXPECT_EQ(draws.size(), sampled ? 10u : 82u);
      // Every sample has its own numbers: in each epoch, and for each of the times that a sampler takes it.
      EXPECT_EQ(std::set<uint64_t>(draws.begin(), draws.end()).size(), draws.size());
      if (workers == 0) expected = draws;
      EXPECT_EQ(draws, expected);
    }
  }
}

TEST(Collate, SamplesOfTensorsNumbersTextsAndMaps) {
  using Mixed = std::tuple<Tensor, int32_t, std::pair<float, bool>, std::string, std::map<std::string, double>>;
  std::vector<Mixed> samples;
  for (int i = 0; i < 3; ++i)
    samples.emplace_back(arange(i, i + 4, 1, {.dtype = float32}).reshape({2, 2}).t(), -i, std::pair(i + 0.5f, i == 1),
                         std::string(static_cast<size_t>(i), 'x'), std::map<std::string, double>{{"a", i}, {"b", 0.1}});
  const auto [tensors, ints, pairs, texts, maps] = collate(samples);
  EXPECT_EQ(tensors.shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(tensors.to_vector<float>(), (std::vector<float>{0, 2, 1, 3, 1, 3, 2, 4, 2, 4, 3, 5}));
  EXPECT_EQ(ints.to_vector<int64_t>(), (Ints{0, -1, -2}));
  EXPECT_EQ(std::get<0>(pairs).to_vector<float>(), (std::vector<float>{0.5, 1.5, 2.5}));
  EXPECT_EQ(std::get<1>(pairs).to(int64).to_vector<int64_t>(), (Ints{0, 1, 0}));
  EXPECT_EQ(texts, (std::vector<std::string>{"", "x", "xx"}));
  EXPECT_EQ(maps.at("a").to_vector<double>(), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(maps.at("b").to_vector<double>(), (std::vector<double>{0.1, 0.1, 0.1}));

  std::get<4>(samples[2]) = {{"a", 1}, {"c", 2}};
  EXPECT_TRUE(fails([&] { collate(samples); }, {"element 4 of sample 2 of the batch", "no \"b\""}));
  using Named = std::map<std::string, std::vector<Tensor>>;
  const std::vector<Named> ragged = {{{"image", {zeros({2}), zeros({3, 2})}}},
                                     {{"image", {zeros({2}), zeros({3, 4})}}}};
  EXPECT_TRUE(fails([&] { collate(ragged); }, {"tensor 1 of \"image\" of sample 1 of", "[3, 4]", "[3, 2]"}));
  EXPECT_TRUE(fails([] { collate(std::vector<uint64_t>{1, UINT64_MAX}); }, {"18446744073709551615", "int64"}));
  EXPECT_TRUE(fails([] { collate(std::vector<Tensor>()); }, {"an empty batch"}));
}

struct ReaderError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(Loader, ErrorsNameTheSample) {
  const Made<float> set(20, [](const ItemKey& key) -> float {
    if (key.row == 13) throw ReaderError("scores.csv:14: no number");
    return static_cast<float>(key.row);
  });
  const Loader failing(set,
                       [](const std::vector<float>& samples, auto) {
                         TERN_CHECK(samples[0] != 4, "no");
                         return 0;
                       },
                       {.batch_size = 4});
  for (const int workers : {0, 3}) {
    try {
      for (const Tensor& batch : DeviceBatches(Loader(set, {.batch_size = 4, .workers = workers}).epoch(0), cpu))
        EXPECT_LT(batch.select(0, 0).item<float>(), 12);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "sample 13 of the data set: scores.csv:14: no number");
      EXPECT_THROW(std::rethrow_if_nested(error), ReaderError);
    }
  }
  EXPECT_TRUE(fails([&] { failing.batch(0, 1); }, {"collating samples 4, 5, 6, 7 of epoch 0: no"}));
  const auto with = [&](const LoaderOptions& options) { return [=] { Loader(squares(5), options).epoch(1); }; };
  EXPECT_TRUE(fails(with({.shuffle = true, .sampler = sequential_sampler(5)}), {"sampler or shuffle"}));
  EXPECT_TRUE(fails(with({.sampler = sequential_sampler(6)}), {"row 5 of 5"}));
  EXPECT_TRUE(fails(with({.sampler = {2, [](int64_t) { return rows_below(3); }}}), {"has 2 rows, but 3 in epoch 1"}));
  EXPECT_TRUE(fails(with({.lengths = {1, 2}}), {"5 samples, but 2 lengths"}));
}

TEST(Loader, BatchesOfSimilarLengths) {
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 400; ++i) lengths.push_back(i % 100);
  for (const bool sampled : {false, true}) {
    LoaderOptions options{.batch_size = 8, .shuffle = !sampled, .seed = fresh_seed(), .lengths = lengths};
    if (sampled) options.sampler = random_sampler(400, fresh_seed());
    const std::vector<Ints> batches = epoch_indices(Loader(squares(400), options), 1);
    EXPECT_EQ(batches.size(), 50u);
    std::set<int64_t> seen;
    for (const Ints& batch : batches) {
      seen.insert(batch.begin(), batch.end());
      EXPECT_LE(batch[0] % 100 - batch[7] % 100, 2);
    }
    EXPECT_EQ(seen.size(), 400u);
    EXPECT_FALSE(std::is_sorted(batches.begin(), batches.end(), std::greater<>()));
  }
}

TEST(Loader, MovedFrom) {
  Loader loader(squares(5), {.batch_size = 2, .workers = 0});
  const Loader other = std::move(loader);
  EXPECT_EQ(loader.size(), 5);
  EXPECT_EQ(loader.steps(), other.steps());
  EXPECT_TRUE(loader.epoch(0).next());
  TensorDataset set({zeros({3, 2})});
  const TensorDataset kept = std::move(set);
  EXPECT_EQ(set.size(), 0);
  EXPECT_TRUE(fails([&] { set.get({}); }, {"sample 0 of 0"}));
  EXPECT_EQ(kept.size(), 3);
}

TEST(TensorDataset, RowsAndErrors) {
  const TensorDataset set(
      {from_vector(Ints{1, 2, 3, 4, 5, 6}, {3, 2}), from_vector(std::vector<float>{7, 8, 9}, {3}), zeros({3, 0})});
  EXPECT_EQ(set.size(), 3);
  EXPECT_EQ(set.get({.row = 2})[0].to_vector<int64_t>(), (Ints{5, 6}));
  const std::vector<Tensor> batch = set.get_batch(std::vector<ItemKey>{{.row = 2}, {.row = 0}, {.row = 2}});
  EXPECT_EQ(batch[0].to_vector<int64_t>(), (Ints{5, 6, 1, 2, 5, 6}));
  EXPECT_EQ(batch[1].to_vector<float>(), (std::vector<float>{9, 7, 9}));
  EXPECT_EQ(batch[2].shape(), (Shape{3, 0}));
  EXPECT_TRUE(fails([&] { set.get_batch(std::vector<ItemKey>{{.row = 3}}); }, {"3 of 3"}));
  EXPECT_TRUE(fails([&] { set.get({.row = -1}); }, {"-1 of 3"}));
  EXPECT_TRUE(fails([] { TensorDataset({}); }, {"no tensors"}));
  EXPECT_TRUE(fails([] { TensorDataset({zeros({2}), zeros({3})}); }, {"first dimensions differ"}));
  EXPECT_TRUE(fails([] { TensorDataset({zeros({})}); }, {"first dimension"}));
}

Ints class_counts(const TensorDataset& set) {
  Ints counts(10, 0);
  for (const int64_t label : set.tensors()[1].to_vector<int64_t>()) ++counts[static_cast<size_t>(label)];
  return counts;
}

TEST(Digits, AreWhatWasPublished) {
  const TensorDataset all = digits();
  ASSERT_EQ(all.size(), 1797);
  const std::vector<float> pixels = all.tensors()[0].to_vector<float>();
  EXPECT_EQ(all.tensors()[0].shape(), (Shape{1797, 64}));
  EXPECT_EQ(all.tensors()[0].dtype(), DType::kFloat32);
  EXPECT_EQ(all.tensors()[1].dtype(), DType::kInt64);
  EXPECT_EQ(std::vector<float>(pixels.begin(), pixels.begin() + 6),
            (std::vector<float>{0, 0, 5 / 16.f, 13 / 16.f, 9 / 16.f, 1 / 16.f}));
  EXPECT_EQ(*std::min_element(pixels.begin(), pixels.end()), 0.f);
  EXPECT_EQ(*std::max_element(pixels.begin(), pixels.end()), 1.f);
  // The class counts of the UCI description (optdigits.names, test part).
  EXPECT_EQ(class_counts(all), (Ints{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
  EXPECT_TRUE(fails([] { digits("val"); }, {"train, test or all", "\"val\""}));
}

TEST(Digits, PartsAreAFixedStratifiedSplit) {
  std::multiset<std::vector<float>> rows, expected;
  const auto add_rows = [](const TensorDataset& set, std::multiset<std::vector<float>>& to) {
    for (int64_t row = 0; row < set.size(); ++row) to.insert(set.get({.row = row})[0].to_vector<float>());
  };
  for (const auto& [part, size] : {std::pair("train", 1438), std::pair("test", 359)}) {
    const TensorDataset set = digits(part);
    EXPECT_EQ(set.size(), size);
    for (const int64_t count : class_counts(set)) EXPECT_NEAR(static_cast<double>(count), size / 10.0, 0.04 * size / 2);
    add_rows(set, rows);
  }
  add_rows(digits("all"), expected);
  EXPECT_EQ(rows, expected);
}

}  // namespace
}  // namespace tern::data
