#include "tern/data/loaders/stream_loader.h"

#include <limits>

#include "tern/kernels/base/check.h"

namespace tern {

void detail::check_stream_sizes(const char* name, const data::StreamOptions& options) {
  constexpr int kMostWorkers = 4096;
  constexpr int64_t kMostBatches = 1'000'000;
  TERN_CHECK(options.workers >= 0 && options.workers <= kMostWorkers && options.prefetch >= 0 &&
                 options.prefetch <= kMostBatches,
             name, ": workers must be in [0, ", kMostWorkers, "] and prefetch in [0, ", kMostBatches, "], got ",
             options.workers, " and ", options.prefetch);
}

void detail::check_stream_options(const data::StreamLoaderOptions& options, int64_t epoch, int64_t first) {
  TERN_CHECK(options.batch_size >= 1, "stream loader: batch_size must be at least 1, got ", options.batch_size);
  check_stream_sizes("stream loader", {options.workers, options.prefetch});
  TERN_CHECK(options.shuffle_buffer >= 0, "stream loader: shuffle_buffer must be >= 0, got ", options.shuffle_buffer);
  TERN_CHECK(options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks, "stream loader: rank ",
             options.rank, " of ", options.ranks);
  TERN_CHECK(epoch >= 0 && first >= 0, "stream loader: epoch and first batch must not be negative, got ", epoch,
             " and ", first);
  TERN_CHECK(first <= std::numeric_limits<int64_t>::max() / options.batch_size, "stream loader: first batch ", first,
             " is too large");
}

}  // namespace tern
