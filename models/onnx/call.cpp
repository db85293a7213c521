#include "tern/models/onnx/call.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "tern/kernels/base/check.h"

namespace tern::onnx {

void Call::choose_device() {
  device_ = inputs_.empty() ? Device() : cpu;
  for (const Value& input : inputs_)
    if (input.tensor.defined() && input.tensor.device() == context_.device) device_ = context_.device;
}

const Value& Call::value(size_t i) const {
  TERN_CHECK(has(i), "input ", i, " is missing");
  return inputs_[i];
}

const Tensor& Call::tensor(size_t i) const {
  const Value& input = value(i);
  TERN_CHECK(input.tensor.defined(), "input ", i, " is a sequence where a tensor is expected");
  return input.tensor;
}

Tensor Call::in(size_t i) const {
  const Tensor& x = tensor(i);
  if (x.device() == device_) return x;
  const Value& input = inputs_[i];
  if (!input.copies) return x.to(device_);
  static std::mutex lock;  // threads that run one model share its constants
  const std::lock_guard guard(lock);
  Tensor& copy = (*input.copies)[device_.index];
  if (!copy.defined()) copy = x.to(device_);
  return copy;
}

Tensors Call::all() const {
  Tensors result;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (has(i)) result.push_back(in(i));
  return result;
}

Tensor Call::number_of(const Tensor& x) const {
  TERN_CHECK(x.numel() == 1, "expected one number, got ", x.describe());
  return x;
}

void Call::check_types(size_t first) const {
  const Value* one = nullptr;
  for (size_t i = first; i < inputs_.size(); ++i) {
    if (!inputs_[i].tensor.defined()) continue;
    if (one == nullptr) one = &inputs_[i];
    const bool floats = is_floating(one->tensor.dtype()) && is_floating(inputs_[i].tensor.dtype()) &&
                        !is_small_float(one->element) && !is_small_float(inputs_[i].element);
    TERN_CHECK(floats || one->element == inputs_[i].element,
               "its inputs are of different types: ", element_name(one->element), " and ",
               element_name(inputs_[i].element));
  }
}

const std::vector<Value>& Call::sequence(size_t i) const {
  const Value& input = value(i);
  TERN_CHECK(input.sequence, "input ", i, " is a tensor where a sequence is expected");
  return *input.sequence;
}

const Attribute* Call::attribute(const std::string& name) const {
  const auto found = node_.attributes.find(name);
  return found == node_.attributes.end() ? nullptr : &found->second;
}

namespace {

[[noreturn]] void fail_kind(const std::string& name, const char* wanted) {
  fail("attribute '", name, "' is not ", wanted);
}

}  // namespace

int64_t Call::integer(const std::string& name, int64_t otherwise) const {
  const Attribute* found = attribute(name);
  if (found == nullptr) return otherwise;
  if (found->kind != AttributeKind::kInt) fail_kind(name, "an integer");
  return found->i;
}

double Call::number(const std::string& name, double otherwise) const {
  const Attribute* found = attribute(name);
  if (found == nullptr) return otherwise;
  if (found->kind != AttributeKind::kFloat) fail_kind(name, "a number");
  return found->f;
}

std::string Call::text(const std::string& name, const std::string& otherwise) const {
  const Attribute* found = attribute(name);
  if (found == nullptr) return otherwise;
  if (found->kind != AttributeKind::kString) fail_kind(name, "a string");
  return found->s;
}

Numbers Call::numbers(const std::string& name, const Numbers& otherwise) const {
  const Attribute* found = attribute(name);
  if (found == nullptr) return otherwise;
  if (found->kind != AttributeKind::kInts) fail_kind(name, "a list of integers");
  return found->ints;
}

std::vector<double> Call::reals(const std::string& name, const std::vector<double>& otherwise) const {
  const Attribute* found = attribute(name);
  if (found == nullptr) return otherwise;
  if (found->kind != AttributeKind::kFloats) fail_kind(name, "a list of numbers");
  return found->floats;
}

int Call::dim_of(int64_t axis) {
  TERN_CHECK(axis >= -kMaxDims && axis < kMaxDims, "there is no axis ", axis);
  return static_cast<int>(axis);
}

void Call::set(size_t i, const Tensor& tensor, int32_t element) {
  if (i >= outputs_.size()) return;
  if (element == kUndefined) {
    element = element_of(tensor.dtype());
    for (const Value& input : inputs_) {
      if (!input.tensor.defined()) continue;
      if (is_narrow(input.element) && storage_of(input.element) == tensor.dtype()) element = input.element;
      break;
    }
  }
  outputs_[i] = {wrapped_to(tensor, element), element};
}

Tensor wrapped_to(const Tensor& x, int32_t element) {
  if (!is_integer(element) || !is_narrow(element) || x.numel() == 0) return x;
  if (element == kUInt64) {
    TERN_CHECK(min(x).item<int64_t>() >= 0,
               "a uint64 of 2^63 or more, or the difference of two below 0, is not "
               "supported");
    return x;
  }
  const IntegerRange range = range_of(element);
  const int64_t mask = (int64_t{1} << element_bits(element)) - 1;
  const Tensor shifted = range.low == 0 ? x : x - static_cast<double>(range.low);
  const Tensor bits = bitwise_and(shifted, mask).to(x.dtype());
  return range.low == 0 ? bits : bits + static_cast<double>(range.low);
}

Tensor rounded_to(const Tensor& x, int32_t element, bool saturate, const std::string& rounding) {
  // All values of the type, ascending, and those between two neighbours.
  std::vector<double> values;
  for (uint32_t bits = 0; bits < (1u << element_bits(element)); ++bits) {
    const double value = static_cast<double>(small_float_value(element, bits));
    if (std::isfinite(value)) values.push_back(value);
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  const double most = values.back();
  const bool has_infinity = element == kFloat8E5M2, has_nan = element != kFloat4E2M1;
  std::vector<double> in = x.to_vector<double>();
  std::vector<float> out(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const double v = in[i];
    const double beyond = !has_nan || saturate ? most : has_infinity ? INFINITY : NAN;
    double y = 0;
    if (std::isnan(v)) {
      y = has_nan ? NAN : -0.0;
    } else if (std::isinf(v)) {
      y = !has_nan || saturate || element == kFloat8E8M0 ? most : has_infinity ? INFINITY : NAN;
      if (v < 0 && element != kFloat8E8M0) y = -y;
    } else {
      const auto above = std::lower_bound(values.begin(), values.end(), v);
      if (element == kFloat8E8M0) {
        if (above == values.end()) {
          y = most;
        } else if (above == values.begin()) {
          y = values.front();
        } else if (rounding == "up") {
          y = *above;
        } else if (rounding == "down") {
          y = *above == v ? v : *(above - 1);
        } else {
          y = v - *(above - 1) < *above - v ? *(above - 1) : *above;
        }
      } else if (above == values.end() || (above == values.begin() && *above != v)) {
        // Beyond the largest; less than half a step more rounds to it.
        const double step = most - values[values.size() - 2];
        y = std::abs(v) - most < step / 2 ? most : beyond;
        if (v < 0) y = -y;
      } else if (*above == v) {
        y = v;
      } else {
        const double low = *(above - 1), high = *above, middle = (low + high) / 2;
        if (v == middle) {  // to the even mantissa: the value at an even distance from 0 in the list
          const auto zero = std::lower_bound(values.begin(), values.end(), 0.0);
          y = ((above - zero) % 2 == 0) ? high : low;
        } else {
          y = v < middle ? low : high;
        }
      }
      if (y == 0 && std::signbit(v) && element != kFloat8E4M3FNUZ && element != kFloat8E5M2FNUZ) y = -0.0;
    }
    out[i] = static_cast<float>(y);
  }
  return from_vector(out, x.shape()).to(x.device());
}

int wrapped(int64_t dim, int dims) {
  const int64_t place = dim < 0 ? dim + dims : dim;
  TERN_CHECK(place >= 0 && place < std::max(dims, 1), "there is no axis ", dim, " of ", dims);
  return static_cast<int>(place);
}

std::vector<int> wrapped(const Numbers& axes, int dims) {
  std::vector<int> result;
  for (const int64_t axis : axes) result.push_back(wrapped(axis, dims));
  return result;
}

}  // namespace tern::onnx
