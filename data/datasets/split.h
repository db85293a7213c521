#pragma once
// Splits rows into train, validation and test.

#include <cstdint>
#include <string>
#include <vector>

#include "tern/data/datasets/labelled_set.h"

namespace tern::data {

/// Row numbers, each ascending. No row is in two parts; only validation and test may be empty.
struct Split {
  std::vector<int32_t> train, validation, test;
};

/// `spec` is one of
///   ""                  the official split if the set has one, otherwise 80/10/10
///   "official"          the official parts. Without a validation part, a tenth of the training part is held out for
///                       it, stratified, by seed
///   "train-test"        the official parts, none for validation: all that is not of the test part is trained on
///   "80/10/10"          train / validation / test of all rows, by seed: percent (integers whose sum is 100) or
///                       fractions with a decimal point (0.8/0.1/0.1)
///   "35000/5000/10000"  the same in rows; their sum may be less than the size of the set
///   "all"               all rows are training rows
/// `fold` is "" or "i/k", 1 <= i <= k (then spec must be ""): the rows are dealt, stratified, into k parts that depend
/// on seed and k only; part i is the test part, a tenth of the rest is held out for validation. Stratified: each
/// class's share is kept up to one row. Throws Error that lists the accepted forms.
Split make_split(const LabelledSet& set, const std::string& spec, const std::string& fold, uint64_t seed);

/// Whether make_split() understands the text as `spec`, as `fold`: it may still not fit the set.
bool is_split(const std::string& text);
bool is_fold(const std::string& text);

/// `count` of the rows, stratified by label, go to the first result, the others to the second; both ascending.
std::pair<std::vector<int32_t>, std::vector<int32_t>> hold_out(const std::vector<int32_t>& rows,
                                                               const std::vector<int32_t>& labels, int64_t count,
                                                               uint64_t seed, uint64_t index);

}  // namespace tern::data
