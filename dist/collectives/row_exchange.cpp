#include "tern/dist/collectives/row_exchange.h"

#include <algorithm>
#include <cstring>

#include "tern/kernels/parallel.h"

namespace tern::dist {
namespace {

bool any_bit(const char* bytes, int64_t count) {
  uint64_t bits = 0, word = 0;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    std::memcpy(&word, bytes + i, 8);
    bits |= word;
  }
  for (; i < count; ++i) bits |= static_cast<unsigned char>(bytes[i]);
  return bits != 0;
}

/// Rows per task: about 64 KiB.
int64_t rows_at_a_time(int64_t row_bytes) { return std::max<int64_t>(1, 65536 / std::max<int64_t>(1, row_bytes)); }

int64_t row_bytes_of(const Tensor& x) { return x.size(1) * size_of(x.dtype()); }

/// Calls move(packed[i], all[rows[i]], bytes of a row) for every i.
template <class Move>
void for_each_row(const Tensor& packed, const std::vector<int64_t>& rows, const Tensor& all, Move move) {
  const int64_t bytes = row_bytes_of(all);
  char* const packed_rows = static_cast<char*>(packed.raw_data());
  char* const all_rows = static_cast<char*>(all.raw_data());
  kernels::parallel_for(static_cast<int64_t>(rows.size()), rows_at_a_time(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      move(packed_rows + i * bytes, all_rows + rows[static_cast<size_t>(i)] * bytes, static_cast<size_t>(bytes));
  });
}

}  // namespace

Tensor touched_rows(const Tensor& gradient) {
  Tensor touched = empty({gradient.size(0)}, {.dtype = DType::kBool});
  const int64_t bytes = row_bytes_of(gradient);
  const char* from = static_cast<const char*>(gradient.raw_data());
  char* to = static_cast<char*>(touched.raw_data());
  kernels::parallel_for(gradient.size(0), rows_at_a_time(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) to[row] = any_bit(from + row * bytes, bytes);
  });
  return touched;
}

std::optional<std::vector<int64_t>> rows_to_exchange(const Tensor& touched) {
  const char* const marks = static_cast<const char*>(touched.raw_data());
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < touched.size(0); ++row)
    if (marks[row]) rows.push_back(row);
  if (2 * static_cast<int64_t>(rows.size()) > touched.size(0)) return std::nullopt;
  return rows;
}

Tensor take_rows(const Tensor& from, const std::vector<int64_t>& rows) {
  const Tensor packed = empty({static_cast<int64_t>(rows.size()), from.size(1)}, {.dtype = from.dtype()});
  for_each_row(packed, rows, from,
               [](char* packed_row, char* row, size_t bytes) { std::memcpy(packed_row, row, bytes); });
  return packed;
}

void put_rows(const Tensor& packed, const std::vector<int64_t>& rows, const Tensor& to) {
  for_each_row(packed, rows, to,
               [](char* packed_row, char* row, size_t bytes) { std::memcpy(row, packed_row, bytes); });
}

}  // namespace tern::dist
