#include "tern/data/loaders/data_waits.h"

#include <cstdio>

namespace tern::data {

namespace {
constexpr double kShareToReport = 0.05;
}

DataWaits data_waits(const ProfileReport& report) {
  DataWaits waits;
  double ready = 0;
  for (size_t depth = 0; depth < kTakeRanges.size(); ++depth) {
    const ProfileRow row = report.row(kTakeRanges[depth]);
    waits.batches += row.calls;
    ready += static_cast<double>(depth) * static_cast<double>(row.calls);
    if (depth > 0) continue;
    waits.waits = row.calls;
    waits.seconds = row.total_seconds;
  }
  if (waits.batches > 0) waits.mean_ready = ready / static_cast<double>(waits.batches);
  if (report.seconds() > 0) waits.share = waits.seconds / report.seconds();
  return waits;
}

std::string DataWaits::str() const {
  if (batches == 0) return "";
  char line[200];
  std::snprintf(line, sizeof line,
                "waited %.3f s for data (%.1f %% of the time), for %lld of %lld batches; %.1f batches were ready on "
                "average",
                seconds, 100 * share, static_cast<long long>(waits), static_cast<long long>(batches), mean_ready);
  return std::string(line) + (share < kShareToReport ? ""
                                                     : ": more workers, a larger prefetch, or a cache of decoded "
                                                       "images (docs/data.md) would help");
}

}  // namespace tern::data
