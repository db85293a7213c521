#include "tern/models/vit/positions.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tern/data/transforms/resize.h"

namespace tern::models {
namespace {

/// Interpolation weights of one dimension: [to, from], row-major.
std::vector<double> line_interpolation(int64_t from, int64_t to) {
  std::vector<double> weights(static_cast<size_t>(from * to), 0);
  for (int64_t i = 0; i < to; ++i) {
    const double at = (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5;
    const int64_t left = static_cast<int64_t>(std::floor(at));
    for (int64_t j = left - 1; j <= left + 2; ++j)
      weights[static_cast<size_t>(i * from + std::clamp<int64_t>(j, 0, from - 1))] +=
          data::cubic(at - static_cast<double>(j), -0.75);
  }
  return weights;
}

}  // namespace

Tensor grid_interpolation(int64_t from, int64_t to_height, int64_t to_width) {
  const std::vector<double> rows = line_interpolation(from, to_height), columns = line_interpolation(from, to_width);
  std::vector<double> matrix;
  matrix.reserve(static_cast<size_t>(to_height * to_width * from * from));
  for (int64_t y = 0; y < to_height; ++y)
    for (int64_t x = 0; x < to_width; ++x)
      for (int64_t j = 0; j < from; ++j)
        for (int64_t i = 0; i < from; ++i)
          matrix.push_back(rows[static_cast<size_t>(y * from + j)] * columns[static_cast<size_t>(x * from + i)]);
  return from_vector(matrix, {to_height * to_width, from * from});
}

}  // namespace tern::models
