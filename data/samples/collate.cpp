#include "tern/data/samples/collate.h"

#include <cstring>

namespace tern::data {

std::string SampleNames::name(size_t place) const {
  const std::string whole = keys.empty() ? tern::detail::concatenate("sample ", place, " of the batch")
                                         : tern::detail::concatenate("sample ", keys[place].row, " of ", source,
                                                                     " (place ", place, " of its batch)");
  return part.empty() ? whole : part + " of " + whole;
}

SampleNames SampleNames::within(const std::string& inner) const {
  return {keys, source, part.empty() ? inner : inner + " of " + part};
}

}  // namespace tern::data

namespace tern::detail {

void check_not_empty(size_t samples) { TERN_CHECK(samples > 0, "loader: an empty batch"); }

void check_parts(size_t place, size_t parts, size_t first_parts, const data::SampleNames& names) {
  TERN_CHECK(parts == first_parts, "loader: ", names.name(place), " has ", parts, " parts, ", names.name(0), " has ",
             first_parts);
}

Tensor stack_samples(const std::vector<Tensor>& samples, const data::SampleNames& names) {
  check_not_empty(samples.size());
  for (size_t i = 0; i < samples.size(); ++i)
    TERN_CHECK(samples[i].defined(), "loader: ", names.name(i), " is undefined");
  const Tensor& first = samples[0];
  std::vector<int64_t> sizes = first.shape().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(samples.size()));
  Tensor out = empty(Shape(sizes), {.dtype = first.dtype()});
  char* to = static_cast<char*>(out.raw_data());
  for (size_t i = 0; i < samples.size(); ++i) {
    TERN_CHECK(
        samples[i].shape() == first.shape() && samples[i].dtype() == first.dtype() && samples[i].device().is_cpu(),
        "loader: ", names.name(i), " is ", samples[i].describe(), "; a batch needs CPU tensors like ", names.name(0),
        ": ", first.describe(), " (or a function that collates them)");
    const Tensor sample = samples[i].contiguous();
    if (first.nbytes() > 0) std::memcpy(to, sample.raw_data(), static_cast<size_t>(first.nbytes()));
    to += first.nbytes();
  }
  return out;
}

}  // namespace tern::detail
