#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "tern/core/tensor.h"

namespace tern {
namespace {

constexpr int64_t kSummarizeAbove = 1000;
constexpr int64_t kEdge = 3;

/// How all numbers of one tensor are printed, so that columns line up.
class NumberFormat {
 public:
  NumberFormat(const std::vector<double>& values, DType dtype) : dtype_(dtype) {
    double largest = 0, smallest = INFINITY;
    bool whole = true;
    for (double v : values) {
      if (!std::isfinite(v)) continue;
      largest = std::max(largest, std::abs(v));
      if (v != 0) smallest = std::min(smallest, std::abs(v));
      whole = whole && v == std::floor(v);
    }
    whole_ = whole;
    scientific_ = largest >= 1e8 || (!whole && (largest >= 1e5 || (smallest < 1e-4 && largest > 0)));
    for (double v : values) width_ = std::max(width_, raw(v).size());
  }

  std::string operator()(double value) const {
    std::string text = raw(value);
    return std::string(width_ - std::min(width_, text.size()), ' ') + text;
  }

 private:
  std::string raw(double value) const {
    char buffer[64];
    if (dtype_ == DType::kBool) return value != 0 ? "true" : "false";
    if (!is_floating(dtype_))
      std::snprintf(buffer, sizeof buffer, "%.0f", value);
    else if (std::isnan(value))
      return "nan";
    else if (std::isinf(value))
      return value > 0 ? "inf" : "-inf";
    else if (scientific_)
      std::snprintf(buffer, sizeof buffer, "%.4e", value);
    else
      std::snprintf(buffer, sizeof buffer, whole_ ? "%.0f." : "%.4f", value);
    return buffer;
  }

  DType dtype_;
  bool whole_ = false, scientific_ = false;
  size_t width_ = 0;
};

/// The positions of dimension d that are printed; -1 stands for the dots.
std::vector<int64_t> shown(int64_t size, bool summarize) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < size; ++i) {
    if (summarize && size > 2 * kEdge && i == kEdge) {
      positions.push_back(-1);
      i = size - kEdge;
    }
    positions.push_back(i);
  }
  return positions;
}

void collect(const Tensor& x, bool summarize, std::vector<double>& values) {
  if (x.dim() == 0) {
    values.push_back(x.item<double>());
    return;
  }
  for (int64_t i : shown(x.size(0), summarize))
    if (i >= 0) collect(x[i], summarize, values);
}

void print(std::ostream& out, const Shape& shape, int d, bool summarize, const NumberFormat& format,
           std::vector<double>::const_iterator& value, int indent) {
  if (d == shape.dims()) {
    out << format(*value++);
    return;
  }
  out << '[';
  bool first = true;
  for (int64_t i : shown(shape[d], summarize)) {
    const bool last_dimension = d + 1 == shape.dims();
    if (!first) {
      out << ',';
      if (last_dimension)
        out << ' ';
      else
        out << std::string(static_cast<size_t>(shape.dims() - d - 1), '\n')
            << std::string(static_cast<size_t>(indent + 1), ' ');
    }
    first = false;
    if (i < 0)
      out << "...";
    else
      print(out, shape, d + 1, summarize, format, value, indent + 1);
  }
  out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "tensor(undefined)";
  const bool summarize = tensor.numel() > kSummarizeAbove;
  std::vector<double> values;
  if (tensor.numel() > 0) collect(tensor.detach().to(cpu), summarize, values);
  const NumberFormat format(values, tensor.dtype());
  out << "tensor(";
  if (tensor.numel() == 0) {
    out << "[], shape=" << tensor.shape();
  } else {
    auto value = values.cbegin();
    print(out, tensor.shape(), 0, summarize, format, value, 7);
  }
  if (tensor.dtype() != DType::kFloat32) out << ", dtype=" << tensor.dtype();
  if (!tensor.device().is_cpu()) out << ", device=" << tensor.device();
  if (tensor.requires_grad()) out << ", requires_grad=true";
  return out << ')';
}

}  // namespace tern
