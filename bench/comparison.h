#pragma once
// Comparison of a benchmark program with the same rows of another build (docs/benchmarks.md).
//
// A stored time says little about another moment of the machine, so nothing is compared with one. In each round three
// processes are started: this program, the baseline, and this program once more, the control. They measure a row in
// turns, one sample each, in an order that changes. A round gives a ratio of times for the baseline and one for the
// control; all rounds give an interval for the median of each (bench/statistics.h).

#include "tern/bench/options.h"
#include "tern/bench/report.h"

namespace tern::bench {

/// Prints a table, and in the last line how many rows are slower, faster, the same or without a verdict. Returns the
/// exit status that help_text() describes. Throws Error when `options.baseline` is no program of this kind, or runs
/// with other settings.
int compare_with_baseline(const Options& options, const std::vector<Row>& rows, JsonLines& lines);

}  // namespace tern::bench
