#pragma once
// Random calls with PyTorch's results, which tests/golden/random_ops.py writes: cases, layouts in memory, comparison.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"

namespace tern::test::random_ops {

using Json = nlohmann::json;
using Tensors = std::vector<Tensor>;

struct Case {
  std::string op, family;
  int number = 0;
  Json arguments = {}, layouts = {};
  Tensors inputs = {}, outputs = {}, exact = {};  // undefined where there is none
  Tensors gradients = {}, exact_gradients = {};   // of the inputs
  Tensors output_gradients = {};
  std::vector<size_t> differentiable = {};  // inputs

  const Tensor& in(size_t i) const { return inputs.at(i); }
  bool has(const char* name) const { return arguments.contains(name) && !arguments[name].is_null(); }
  template <class T = int64_t>
  T get(const char* name) const {
    return arguments.at(name).get<T>();
  }
  /// A number, which JSON has as a string where it is not finite.
  double number_of(const char* name) const {
    const Json& value = arguments.at(name);
    return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
  }
  std::vector<int64_t> list(const char* name) const { return get<std::vector<int64_t>>(name); }
  int dim(const char* name = "dim") const { return get<int>(name); }
  std::vector<int> dims(const char* name = "dims") const { return get<std::vector<int>>(name); }
  bool flag(const char* name) const { return get<bool>(name); }
};

using Run = std::function<Tensors(const Case&)>;
/// By the name of the op, to which the generator appends what it varies.
using Table = std::map<std::string, Run>;

inline std::vector<Case> load_cases(const std::string& path) {
  const SafetensorsFile file = load_safetensors(path);
  std::map<std::string, Tensor> tensors;
  for (const NamedTensor& entry : file.tensors) tensors[entry.name] = entry.tensor;
  std::vector<Case> cases;
  for (const Json& entry : Json::parse(file.metadata.at("cases"))) {
    Case c{.op = entry["op"], .family = entry["family"], .number = entry["number"]};
    c.arguments = entry["arguments"];
    c.layouts = entry["layouts"];
    const auto take = [&](const char* kind, size_t count) {
      Tensors list(count);
      for (size_t i = 0; i < count; ++i) {
        const auto found = tensors.find(std::to_string(c.number) + "/" + kind + std::to_string(i));
        if (found != tensors.end()) list[i] = found->second;
      }
      return list;
    };
    const size_t inputs = entry["inputs"], outputs = entry["outputs"];
    c.inputs = take("in", inputs);
    c.outputs = take("out", outputs);
    c.exact = take("exact", outputs);
    c.output_gradients = take("d_out", outputs);
    c.gradients = take("d_in", inputs);
    c.exact_gradients = take("d_exact", inputs);
    c.differentiable = entry["differentiable"].get<std::vector<size_t>>();
    cases.push_back(std::move(c));
  }
  return cases;
}

/// A copy that lies in memory as the word says: with gaps, behind other elements, or with its dimensions in reverse.
inline Tensor laid_out(const Tensor& x, const std::string& layout) {
  if (layout == "strided") return stack({x, x}, -1).select(-1, 1);
  if (layout == "offset") return cat({x, x}, 0).slice(0, x.size(0));
  if (layout == "transposed") {
    std::vector<int> reversed(static_cast<size_t>(x.dim()));
    for (int d = 0; d < x.dim(); ++d) reversed[static_cast<size_t>(d)] = x.dim() - 1 - d;
    return x.permute(reversed).contiguous().permute(reversed);
  }
  return x.clone();
}

/// Two results of one op from the same inputs, each with its own roundings. 16-bit results are rounded once or twice
/// more where an op is made of others: four units in the last place. In fp32 and fp64 a chain of some tens of
/// roundings, and functions with errors of a few units. Integers and bool are equal.
inline double tolerance(DType dtype) {
  if (dtype == float64) return 1e-10;
  if (dtype == float32) return 2e-5;
  if (dtype == bfloat16) return 0x1p-6;
  return dtype == float16 ? 0x1p-9 : 0;
}
/// Below it numbers of the dtype have fewer digits; a level may flush them to 0.
inline double smallest_normal(DType dtype) {
  return dtype == float64 ? std::numeric_limits<double>::min() : dtype == float16 ? 0x1p-14 : 0x1p-126;
}

inline double largest_finite(const Tensor& x) {
  double largest = 0;
  if (x.defined() && is_floating(x.dtype()))
    for (const double value : x.to_vector<double>())
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return largest;
}

/// Empty, or what differs. An element agrees if it is near PyTorch's result in the dtype, or near the one in fp64: the
/// former may overflow or lose digits where Tern does not, and the latter has other integers and infinities.
/// scale: of the terms of a sum, whose rounding errors do not shrink with it; in 16 bits partial sums may be rounded.
inline std::string difference(const Tensor& got, const Tensor& want, const Tensor& exact, double scale,
                              double relative) {
  std::ostringstream text;
  if (!got.defined()) return "no tensor";
  if (got.dtype() != want.dtype()) {
    text << got.describe() << ", expected " << want.describe();
    return text.str();
  }
  if (got.shape() != want.shape()) {
    text << got.shape() << ", expected " << want.shape();
    return text.str();
  }
  if (want.dtype() == int64) {  // a double does not hold all of them
    const auto a = got.to_vector<int64_t>(), b = want.to_vector<int64_t>();
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i]) text << "element " << i << ": " << a[i] << ", expected " << b[i] << "; ";
    return text.str().substr(0, 300);
  }
  const auto near = [&](double a, double b) {
    if (a == b || (std::isnan(a) && std::isnan(b))) return true;
    if (!std::isfinite(a) || !std::isfinite(b)) return false;
    return std::abs(a - b) <=
           relative * (std::abs(b) + (relative > 1e-4 ? scale : scale / 10)) + smallest_normal(want.dtype());
  };
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  const std::vector<double> e = exact.defined() ? exact.to_vector<double>() : b;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(near(a[i], b[i]) || ((is_floating(want.dtype()) || want.dtype() == boolean) && near(a[i], e[i]))))
      text << "element " << i << ": " << a[i] << ", expected " << b[i] << " or " << e[i] << "; ";
  return text.str().substr(0, 300);
}

/// The elements of the inputs that are at the place of the first one that differs, where they have its shape.
inline std::string inputs_there(const Case& c, const std::string& found, const Shape& shape) {
  std::ostringstream text;
  const size_t at = found.find("element ");
  if (at == std::string::npos) return "";
  for (const Tensor& x : c.inputs)
    if (x.defined() && x.shape() == shape)
      text << "input " << x.to_vector<double>()[std::stoul(found.substr(at + 8))] << "; ";
  return text.str();
}

/// Empty, or what differs from PyTorch.
inline std::string difference(const Case& original, const Run& run) {
  Case c = original;
  double inputs = 0, relative = 0;  // the tolerance of the narrowest floating dtype
  for (const Tensors* list : {&c.inputs, &c.outputs})
    for (const Tensor& x : *list)
      if (x.defined()) relative = std::max(relative, tolerance(x.dtype()));
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.inputs[i].defined()) continue;
    c.inputs[i] = laid_out(c.inputs[i], c.layouts[i]);
    const double largest = largest_finite(c.inputs[i]);
    inputs = std::max(inputs, largest < 100 ? largest : 0);
  }
  for (const size_t i : c.differentiable) c.inputs[i] = c.inputs[i].detach().set_requires_grad(true);
  try {
    const Tensors got = run(c);
    if (got.size() != c.outputs.size())
      return std::to_string(got.size()) + " results, expected " + std::to_string(c.outputs.size());
    const bool pointwise = c.family == "pointwise";
    for (size_t i = 0; i < got.size(); ++i) {
      const double scale = pointwise ? std::min(1.0, inputs) : std::max(inputs, largest_finite(c.outputs[i]));
      const std::string found = difference(got[i].detach(), c.outputs[i], c.exact[i], scale, relative);
      if (!found.empty())
        return "output " + std::to_string(i) + ": " + found + inputs_there(original, found, c.outputs[i].shape());
    }
    double incoming = inputs;
    for (size_t i = 0; i < got.size(); ++i) {
      if (!c.output_gradients[i].defined()) continue;
      incoming = std::max(incoming, largest_finite(c.output_gradients[i]));
      if (got[i].requires_grad()) got[i].backward(c.output_gradients[i], true);
    }
    for (const size_t i : c.differentiable) {
      const Tensor grad = c.inputs[i].grad().defined() ? c.inputs[i].grad() : zeros_like(c.inputs[i].detach());
      const double scale = pointwise ? incoming : std::max(incoming, largest_finite(c.gradients[i]));
      const std::string found = difference(grad, c.gradients[i], c.exact_gradients[i], scale, relative);
      if (!found.empty())
        return "gradient " + std::to_string(i) + ": " + found + inputs_there(original, found, c.gradients[i].shape());
    }
  } catch (const std::exception& error) {
    return std::string("error: ") + error.what();
  }
  return "";
}

}  // namespace tern::test::random_ops
