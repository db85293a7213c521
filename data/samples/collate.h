#pragma once
// Samples to a batch.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/plan/item_key.h"
#include "tern/kernels/base/check.h"

namespace tern::data {

/// Names the samples of a batch, and the part of them that is collated, in messages.
struct SampleNames {
  std::span<const ItemKey> keys = {};  // empty: samples are named by their places
  const char* source = "the data set";
  std::string part = {};  // "tensor 0"; empty: the whole sample

  std::string name(size_t place) const;
  /// `inner` of this part.
  SampleNames within(const std::string& inner) const;
};

}  // namespace tern::data

namespace tern::detail {

/// Tensors of equal shape and dtype on the CPU, along a new first dimension. Throws Error that names the sample.
Tensor stack_samples(const std::vector<Tensor>& samples, const data::SampleNames& names);
/// Throws Error unless sample `place` has as many parts as the first.
void check_parts(size_t place, size_t parts, size_t first_parts, const data::SampleNames& names);
void check_not_empty(size_t samples);
/// The dtype of a batch of numbers: float32 of float, float64 of double, bool of bool, int64 of other integers.
template <class T>
inline constexpr DType number_dtype = std::is_same_v<T, bool>    ? DType::kBool
                                      : std::is_integral_v<T>    ? DType::kInt64
                                      : std::is_same_v<T, float> ? DType::kFloat32
                                                                 : DType::kFloat64;

template <class Sample>
auto collate_samples(std::vector<Sample> samples, const data::SampleNames& names);

/// One part of each sample.
template <class Sample, class Get>
auto part_of(std::vector<Sample>& samples, const Get& get) {
  std::vector<std::remove_cvref_t<decltype(get(samples[0]))>> parts;
  parts.reserve(samples.size());
  for (Sample& sample : samples) parts.push_back(std::move(get(sample)));
  return parts;
}

template <class T>
Tensor stack_numbers(const std::vector<T>& samples) {
  constexpr bool kKept = std::is_same_v<T, bool> || std::is_same_v<T, float>;
  using Stored = std::conditional_t<kKept, T, std::conditional_t<std::is_integral_v<T>, int64_t, double>>;
  const Tensor out = empty({static_cast<int64_t>(samples.size())}, {.dtype = number_dtype<T>});
  for (size_t i = 0; i < samples.size(); ++i) {
    if constexpr (std::is_same_v<T, uint64_t>)
      TERN_CHECK(samples[i] <= INT64_MAX, "loader: the number ", samples[i], " is too large for int64");
    out.data<Stored>()[i] = static_cast<Stored>(samples[i]);
  }
  return out;
}

template <class Sample>
std::vector<Tensor> stack_each(std::vector<Sample> samples, const data::SampleNames& names) {
  check_not_empty(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) check_parts(i, samples[i].size(), samples[0].size(), names);
  std::vector<Tensor> batch;
  for (size_t part = 0; part < samples[0].size(); ++part)
    batch.push_back(stack_samples(part_of(samples, [part](Sample& sample) -> Tensor& { return sample[part]; }),
                                  names.within("tensor " + std::to_string(part))));
  return batch;
}

template <class Sample, size_t... kParts>
auto collate_tuple(std::vector<Sample> samples, const data::SampleNames& names, std::index_sequence<kParts...>) {
  return std::tuple(collate_samples(part_of(
                                        samples, [](Sample & sample) -> auto& { return std::get<kParts>(sample); }),
                                    names.within("element " + std::to_string(kParts)))...);
}

template <class Value>
auto collate_map(std::vector<std::map<std::string, Value>> samples, const data::SampleNames& names) {
  using Map = std::map<std::string, Value>;
  check_not_empty(samples.size());
  std::map<std::string, decltype(collate_samples(std::vector<Value>(), names))> batch;
  for (const auto& [key, value] : Map(samples[0])) {
    for (size_t i = 0; i < samples.size(); ++i) {
      check_parts(i, samples[i].size(), samples[0].size(), names);
      TERN_CHECK(samples[i].contains(key), "loader: ", names.name(i), " has no \"", key, "\", which ", names.name(0),
                 " has");
    }
    batch.emplace(key, collate_samples(part_of(samples, [&key = key](Map& sample) -> Value& { return sample.at(key); }),
                                       names.within("\"" + key + "\"")));
  }
  return batch;
}

template <class T>
inline constexpr bool is_string_map = false;
template <class Value>
inline constexpr bool is_string_map<std::map<std::string, Value>> = true;

template <class Sample>
auto collate_samples(std::vector<Sample> samples, const data::SampleNames& names) {
  if constexpr (std::is_same_v<Sample, Tensor>)
    return stack_samples(samples, names);
  else if constexpr (std::is_arithmetic_v<Sample>)
    return stack_numbers(samples);
  else if constexpr (std::is_same_v<Sample, std::vector<Tensor>>)
    return stack_each(std::move(samples), names);
  else if constexpr (requires { std::tuple_size<Sample>::value; })
    return collate_tuple(std::move(samples), names, std::make_index_sequence<std::tuple_size_v<Sample>>());
  else if constexpr (is_string_map<Sample>)
    return collate_map(std::move(samples), names);
  else
    return samples;
}

}  // namespace tern::detail

namespace tern::data {

/// The samples as a batch, as PyTorch's default_collate makes it:
///   Tensor                                stacked along a new first dimension: one shape and dtype, on the CPU
///   a number                              a tensor [n]: float32, float64, int64 or bool
///   std::vector<Tensor>                   std::vector<Tensor>, each stacked; every sample has as many
///   std::pair, std::tuple                 std::tuple of the collated elements
///   std::map<std::string, T>              a map of the collated values; every sample has the same keys
///   anything else (strings, structs)      std::vector of the samples; or pass the loader a function
/// Throws Error that names the sample, its part and both shapes.
template <class Sample>
auto collate(std::vector<Sample> samples, const SampleNames& names = {}) {
  return detail::collate_samples(std::move(samples), names);
}

template <class Sample>
using Collated = decltype(collate(std::vector<Sample>()));

}  // namespace tern::data
