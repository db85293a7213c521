#pragma once
// Batches of samples that a source yields one after another, without a known number: lines of a file, a generator.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tern/data/loaders/batch_stream.h"
#include "tern/data/loaders/loader.h"
#include "tern/data/plan/shuffle.h"
#include "tern/data/samples/collate.h"
#include "tern/data/samples/dataset.h"

namespace tern::data {

/// The next sample; nothing at the end. Called by one thread at a time.
template <class Sample>
using SampleSource = std::function<std::optional<Sample>()>;

struct StreamLoaderOptions {
  int64_t batch_size = 1;
  bool drop_last = false;      // skip a last batch that is not full, and samples that do not fill all ranks
  int64_t shuffle_buffer = 0;  // samples among which the next one is drawn; 0 or 1: the order of the source
  uint64_t seed = 0;
  int64_t rank = 0, ranks = 1;  // every ranks-th sample, from rank on; all ranks get the same number (by repetition of
                                // the first samples, or drop_last)
  int workers = 2;
  int64_t prefetch = 0;  // batches made ahead; 0: two per worker
};

}  // namespace tern::data

namespace tern::detail {

void check_stream_options(const data::StreamLoaderOptions& options, int64_t epoch, int64_t first);

/// Samples with their keys, in the order of the loader.
template <class Sample>
class SampleStream {
 public:
  SampleStream(data::SampleSource<Sample> source, const data::StreamLoaderOptions& options, int64_t epoch)
      : source_(std::move(source)),
        options_(options),
        epoch_(epoch),
        random_(options.seed, data::Draw::kStreamOrder, static_cast<uint64_t>(epoch)) {}

  struct Item {
    Sample sample;
    data::ItemKey key;
  };
  std::optional<Item> next() {
    if (options_.shuffle_buffer <= 1) return own();
    while (static_cast<int64_t>(buffer_.size()) < options_.shuffle_buffer) {
      std::optional<Item> item = own();
      if (!item) break;
      buffer_.push_back(*std::move(item));
    }
    if (buffer_.empty()) return std::nullopt;
    std::swap(buffer_[random_.below(buffer_.size())], buffer_.back());
    std::optional<Item> item = std::move(buffer_.back());
    buffer_.pop_back();
    return item;
  }

 private:
  std::optional<Item> read() {
    if (ended_) return std::nullopt;
    const int64_t row = count_;
    std::optional<Sample> sample;
    try {
      sample = source_();
    } catch (...) {
      rethrow_with("sample " + std::to_string(row) + " of the stream: ");
    }
    ended_ = !sample;
    if (ended_) return std::nullopt;
    ++count_;
    return Item{*std::move(sample), {options_.seed, epoch_, row}};
  }
  /// The rank's sample of the next `ranks` ones.
  std::optional<Item> own() {
    std::optional<Item> mine;
    for (int64_t rank = 0; rank < options_.ranks; ++rank) {
      std::optional<Item> item = read();
      if (!item && (rank == 0 || options_.drop_last)) return std::nullopt;
      if (!item) {  // the other ranks' samples are not looked up: there may be any number of ranks
        if (rank <= options_.rank) mine = first_[static_cast<size_t>(missing_ + options_.rank - rank) % first_.size()];
        missing_ += options_.ranks - rank;
        return mine;
      }
      if (options_.ranks > 1 && !options_.drop_last && item->key.row < options_.ranks && !ended_)
        first_.push_back(*item);
      if (rank == options_.rank) mine = std::move(item);
    }
    return mine;
  }

  data::SampleSource<Sample> source_;
  data::StreamLoaderOptions options_;
  int64_t epoch_;
  data::RandomStream random_;
  int64_t count_ = 0, missing_ = 0;  // samples read; repeated at the end
  bool ended_ = false;
  std::vector<Item> buffer_, first_;
};

}  // namespace tern::detail

namespace tern::data {

/// Batches of a stream of samples: the source is read by one thread at a time and in order, collate runs on all
/// workers. open(epoch) begins an epoch; it must yield the same samples whenever it is called. Batches depend on these
/// and on the options, not on the workers. An Error of the source ends the epoch and names the sample's number.
///
///   StreamLoader loader([](int64_t epoch) { return [lines = open_lines()]() mutable { return lines.next(); }; },
///                       {.batch_size = 8, .shuffle_buffer = 1000});
template <class Sample, class Batch = Collated<Sample>>
class StreamLoader {
 public:
  using Open = std::function<SampleSource<Sample>(int64_t epoch)>;

  explicit StreamLoader(Open open, const StreamLoaderOptions& options = {})
      : StreamLoader(
            std::move(open),
            [](std::vector<Sample> samples, std::span<const ItemKey> keys) {
              return collate(std::move(samples), {.keys = keys, .source = "the stream"});
            },
            options) {}
  /// `collate` as in Loader; what is slow (decoding) and random (augmentation, by item_random(keys[i])) belongs there.
  StreamLoader(Open open, CollateFunction<Sample, Batch> collate, const StreamLoaderOptions& options = {})
      : open_(std::move(open)),
        collate_(std::make_shared<const CollateFunction<Sample, Batch>>(std::move(collate))),
        options_(options) {
    detail::check_stream_options(options, 0, 0);
  }

  /// The batches of an epoch from the given one on. To resume, the samples before it are read again and dropped, which
  /// gives exactly the batches of the whole epoch.
  BatchStream<Batch> epoch(int64_t epoch, int64_t first = 0) const {
    detail::check_stream_options(options_, epoch, first);
    auto jobs = [collate = collate_, open = open_, options = options_, epoch, skip = first * options_.batch_size,
                 samples = std::shared_ptr<detail::SampleStream<Sample>>()]() mutable -> std::function<Batch()> {
      if (!samples) samples = std::make_shared<detail::SampleStream<Sample>>(open(epoch), options, epoch);
      for (; skip > 0; --skip)
        if (!samples->next()) return {};
      Items items;
      while (static_cast<int64_t>(items.keys.size()) < options.batch_size) {
        auto item = samples->next();
        if (!item) break;
        items.samples.push_back(std::move(item->sample));
        items.keys.push_back(item->key);
      }
      if (items.keys.empty() || (options.drop_last && static_cast<int64_t>(items.keys.size()) < options.batch_size))
        return {};
      return [collate, items = std::make_shared<Items>(std::move(items))] { return collated(*collate, *items); };
    };
    return BatchStream<Batch>(std::move(jobs), {.workers = options_.workers, .prefetch = options_.prefetch});
  }

 private:
  struct Items {
    std::vector<Sample> samples;
    std::vector<ItemKey> keys;
  };
  static Batch collated(const CollateFunction<Sample, Batch>& collate, Items& items) {
    try {
      return collate(std::move(items.samples), items.keys);
    } catch (...) {
      detail::rethrow_with(detail::collating(items.keys));
    }
  }

  Open open_;
  std::shared_ptr<const CollateFunction<Sample, Batch>> collate_;
  StreamLoaderOptions options_;
};

}  // namespace tern::data

namespace tern::detail {
template <class F>
using StreamSample = typename std::invoke_result_t<std::invoke_result_t<F, int64_t>>::value_type;
}  // namespace tern::detail

namespace tern::data {

template <class F>
StreamLoader(F, const StreamLoaderOptions& = {}) -> StreamLoader<detail::StreamSample<F>>;
template <class F, detail::Collates<detail::StreamSample<F>> G>
StreamLoader(F, G, const StreamLoaderOptions& = {})
    -> StreamLoader<detail::StreamSample<F>, detail::Result<G, detail::StreamSample<F>>>;

}  // namespace tern::data
