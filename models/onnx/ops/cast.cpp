// Conversions between element types.

#include <cmath>
#include <cstring>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

std::string refuse_type(int64_t element) {
  return is_supported(static_cast<int32_t>(element))
             ? ""
             : "elements of type " + element_name(static_cast<int32_t>(element));
}

std::string refuse_cast(const NodeDef& node, int64_t) {
  const auto to = node.attributes.find("to");
  return to == node.attributes.end() ? "the attribute 'to' is missing" : refuse_type(to->second.i);
}

/// x of one element type as another.
Tensor converted(const Call& c, const Tensor& x, int32_t from, int32_t to) {
  const DType dtype = storage_of(to);
  if (is_small_float(to)) {
    if (from == to) return x;
    return rounded_to(x, to, c.flag("saturate", true), c.text("round_mode", "up"));
  }
  if (to == kBool) return x != 0.0;
  if (is_integer(to) && is_floating(x.dtype())) {
    // Towards 0; what the type cannot hold wraps around, as an integer of 64 bits would.
    const Tensor whole = is_narrow(to) && !is_small_float(from) ? x.to(int64) : x.to(dtype);
    return wrapped_to(whole, to).to(dtype);
  }
  if (is_integer(to) && is_integer(from))
    return wrapped_to(x, to == kInt32 && x.dtype() == int64 ? kInt32 : to).to(dtype);
  return x.to(dtype);
}

void cast(Call& c) {
  const auto to = static_cast<int32_t>(c.integer("to", 0));
  c.set(0, converted(c, c.in(0), c.element(0), to), to);
}

void cast_like(Call& c) {
  const int32_t to = c.element(1);
  c.set(0, converted(c, c.in(0), c.element(0), to), to);
}

/// The elements as a file holds them.
std::string bytes_of(const Tensor& x, int32_t element) {
  const int bits = element_bits(element);
  TERN_CHECK(bits >= 8 && !is_small_float(element), "the bits of ", element_name(element));
  const Tensor host = x.detach().to(cpu).contiguous();
  if (!is_narrow(element)) return {static_cast<const char*>(host.raw_data()), static_cast<size_t>(host.nbytes())};
  std::string bytes;
  for (const int64_t value : host.to_vector<int64_t>())
    bytes.append(reinterpret_cast<const char*>(&value), static_cast<size_t>(bits / 8));
  return bytes;
}

void bit_cast(Call& c) {
  const auto to = static_cast<int32_t>(c.integer("to", 0));
  const Tensor x = c.in(0);
  const auto bytes = std::make_shared<std::string>(bytes_of(x, c.element(0)));
  TERN_CHECK(element_bits(to) == element_bits(c.element(0)), "the bits of ", element_name(c.element(0)),
             " are not "
             "those of ",
             element_name(to));
  const TensorData data{.element = to,
                        .dims = x.shape().vec(),
                        .data = bytes->data(),
                        .bytes = static_cast<int64_t>(bytes->size()),
                        .owner = bytes};
  c.set(0, data.tensor().clone().to(c.device()), to);
}

std::string refuse_constant(const NodeDef& node, int64_t) {
  for (const char* name : {"value_string", "value_strings"})
    if (node.attributes.contains(name)) return "constants of strings are not supported";
  for (const char* name : {"value", "sparse_value"}) {
    const auto found = node.attributes.find(name);
    if (found != node.attributes.end() && found->second.tensor) return refuse_type(found->second.tensor->element);
  }
  return "";
}

/// Numbers as attributes; tensors are read by the compiler.
void constant(Call& c) {
  const auto options = [&](DType dtype) { return TensorOptions{.dtype = dtype}; };
  if (c.has_attribute("value_float")) return c.set(0, full({}, c.number("value_float", 0), options(float32)), kFloat);
  if (c.has_attribute("value_int")) return c.set(0, from_vector(Numbers{c.integer("value_int", 0)}, {}), kInt64);
  if (c.has_attribute("value_ints")) {
    const Numbers values = c.numbers("value_ints");
    return c.set(0, from_vector(values, {static_cast<int64_t>(values.size())}), kInt64);
  }
  TERN_CHECK(c.has_attribute("value_floats"), "it has no value");
  const std::vector<double> values = c.reals("value_floats");
  c.set(0, from_vector(values, {static_cast<int64_t>(values.size())}).to(float32), kFloat);
}

}  // namespace

void add_cast_ops(Rows& rows) {
  const Rows own = {
      {"Cast", 6, cast, refuse_cast},
      {"CastLike", 15, cast_like},
      {"BitCast", 1, bit_cast, refuse_cast},
      {"Constant", 1, constant, refuse_constant},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx
