#include "tern/data/datasets/digits.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>

#include "tern/data/datasets/split.h"
#include "tern/data/files/gzip.h"
#include "tern/kernels/base/check.h"

namespace tern::embedded {
std::string_view digits_csv_gz();
}

namespace tern::data {
namespace {

constexpr int64_t kPixels = 64;
constexpr float kMaxIntensity = 16;
constexpr int64_t kMaxBytes = 1 << 20;

struct Digits {
  std::vector<float> pixels;    // [n, 64]
  std::vector<int32_t> labels;  // [n]
};

Digits parse_digits() {
  const std::string text = gunzip(embedded::digits_csv_gz(), "digits", kMaxBytes);
  Digits digits;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    for (int64_t column = 0; column <= kPixels; ++column) {
      int value = 0;
      const auto [stop, error] = std::from_chars(at, end, value);
      const char separator = column < kPixels ? ',' : '\n';
      TERN_CHECK(error == std::errc() && stop != end && *stop == separator, "digits: the embedded file is damaged");
      at = stop + 1;
      if (column < kPixels)
        digits.pixels.push_back(static_cast<float>(value) / kMaxIntensity);
      else
        digits.labels.push_back(value);
    }
  }
  return digits;
}

}  // namespace

TensorDataset digits(const std::string& part) {
  TERN_CHECK(part == "train" || part == "test" || part == "all", "digits: the part must be train, test or all, got \"",
             part, "\"");
  const Digits all = parse_digits();
  std::vector<int32_t> rows(all.labels.size());
  std::iota(rows.begin(), rows.end(), 0);
  if (part != "all") {
    auto [test, train] = hold_out(rows, all.labels, static_cast<int64_t>(rows.size() / 5), 0, 0);
    rows = part == "test" ? test : train;
  }
  const int64_t n = static_cast<int64_t>(rows.size());
  const Tensor pixels = empty({n, kPixels});
  const Tensor labels = empty({n}, {.dtype = DType::kInt64});
  for (int64_t i = 0; i < n; ++i) {
    std::copy_n(all.pixels.begin() + rows[i] * kPixels, kPixels, pixels.data<float>() + i * kPixels);
    labels.data<int64_t>()[i] = all.labels[rows[i]];
  }
  return TensorDataset({pixels, labels});
}

}  // namespace tern::data
