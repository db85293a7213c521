#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "tern/core/tensor.h"

namespace tern {
namespace {

constexpr int64_t kSummarizeAbove = 1000;
constexpr int64_t kEdge = 3;

/// The format of all floating-point numbers of one tensor.
class NumberFormat {
 public:
  explicit NumberFormat(const std::vector<double>& values) {
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
  }

  std::string operator()(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, scientific_ ? "%.4e" : whole_ ? "%.0f." : "%.4f", value);
    return buffer;
  }

 private:
  bool whole_ = false, scientific_ = false;
};

/// The printed positions of a dimension of this size; -1 stands for the dots.
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

template <class T>
void collect(const Tensor& x, bool summarize, std::vector<T>& values) {
  if (x.dim() == 0) {
    values.push_back(x.item<T>());
    return;
  }
  for (int64_t i : shown(x.size(0), summarize))
    if (i >= 0) collect(x[i], summarize, values);
}

/// The printed elements as text of equal width, so that columns line up. Integers are not converted to double, which
/// holds them only up to 2^53.
std::vector<std::string> texts_of(const Tensor& x, bool summarize) {
  std::vector<std::string> texts;
  if (is_floating(x.dtype())) {
    std::vector<double> values;
    collect(x, summarize, values);
    const NumberFormat format(values);
    for (const double value : values) texts.push_back(format(value));
  } else {
    std::vector<int64_t> values;
    collect(x, summarize, values);
    const bool is_bool = x.dtype() == DType::kBool;
    for (const int64_t value : values)
      texts.push_back(!is_bool ? std::to_string(value) : value != 0 ? "true" : "false");
  }
  size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, text.size());
  for (std::string& text : texts) text.insert(0, width - text.size(), ' ');
  return texts;
}

void print(std::ostream& out, const Shape& shape, int dim, bool summarize,
           std::vector<std::string>::const_iterator& text, int indent) {
  if (dim == shape.dims()) {
    out << *text++;
    return;
  }
  out << '[';
  bool first = true;
  for (int64_t i : shown(shape[dim], summarize)) {
    const bool last_dimension = dim + 1 == shape.dims();
    if (!first) {
      out << ',';
      if (last_dimension)
        out << ' ';
      else
        out << std::string(static_cast<size_t>(shape.dims() - dim - 1), '\n')
            << std::string(static_cast<size_t>(indent + 1), ' ');
    }
    first = false;
    if (i < 0)
      out << "...";
    else
      print(out, shape, dim + 1, summarize, text, indent + 1);
  }
  out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "tensor(undefined)";
  const bool summarize = tensor.numel() > kSummarizeAbove;
  out << "tensor(";
  if (tensor.numel() == 0) {
    out << "[], shape=" << tensor.shape();
  } else {
    const std::vector<std::string> texts = texts_of(tensor.detach().to(cpu), summarize);
    auto text = texts.cbegin();
    print(out, tensor.shape(), 0, summarize, text, 7);
  }
  if (tensor.dtype() != DType::kFloat32) out << ", dtype=" << tensor.dtype();
  if (!tensor.device().is_cpu()) out << ", device=" << tensor.device();
  if (tensor.requires_grad()) out << ", requires_grad=true";
  return out << ')';
}

}  // namespace tern
