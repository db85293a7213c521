#pragma once
// Measures the peak rates of a machine, for the roofline of a profile.

#include <vector>

#include "tern/core/profiler/report.h"

namespace tern {

/// Measures a large copy and a matrix product in each of the dtypes with Tern's kernels, about a fifth of a second per
/// number. Throws Error when the device cannot be used.
detail::Roofline measure_roofline(Device device, const std::vector<DType>& dtypes);

namespace detail {
/// Operations per second of the product of two square matrices: the best of the sizes from 256 up to one that takes a
/// few milliseconds.
double measure_matrix_rate(Device device, DType dtype);
}  // namespace detail

}  // namespace tern
