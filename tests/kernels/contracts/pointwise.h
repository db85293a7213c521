#pragma once
// The contract of pointwise ops: the definition of every op of BuiltinOps, independent of the library, inputs for it,
// and bounds.

#include <numeric>

#include "tern/kernels/pointwise/pointwise.h"
#include "tern/kernels/pointwise/tiles.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {

using Reference = std::function<double(double, double, double)>;
struct Case {
  Reference forward;
  double low = -2.5, high = 2.5;  // range of the inputs
};

inline double inverse_erf(double y) {
  const double magnitude = std::fabs(y);
  if (!(magnitude < 1)) return magnitude == 1 ? std::copysign(INFINITY, y) : NAN;
  if (magnitude < 1e-4) return y * std::sqrt(M_PI) / 2 * (1 + M_PI / 12 * y * y);
  long double low = 0, high = 7;
  for (int i = 0; i < 64; ++i) (std::erf((low + high) / 2) < magnitude ? low : high) = (low + high) / 2;
  return std::copysign(static_cast<double>(low), y);
}
/// -2 times the sum of 1 / (x + k)^3, whose rest from k = n on is about 1 / (2 m^2) - 1 / (8 m^4) + 7 / (96 m^6), where
/// m = x + n - 1/2 (Euler and Maclaurin's formula).
inline double third_derivative_of_lgamma(double x) {
  constexpr int kTerms = 50;
  const long double m = x + kTerms - 0.5L, square = m * m;
  long double sum = (0.5L - (0.125L - 7 / (96 * square)) / square) / square;
  for (int k = kTerms - 1; k >= 0; --k) sum += 1 / ((x + static_cast<long double>(k)) * (x + k) * (x + k));
  return static_cast<double>(-2 * sum);
}
/// P(a, x) by its alternating series, for moderate x.
inline long double lower_gamma(long double a, long double x) {
  long double power = 1, sum = 0;  // (-x)^k / k!
  for (int k = 0; k < 50; ++k, power *= -x / k) sum += power / (a + k);
  return std::exp(a * std::log(x) - std::lgamma(a)) * sum;
}
/// I_n by its integral, (1 / pi) exp(x cos t) cos(n t) over [0, pi], whose trapezoidal sums converge fast.
inline double bessel_i(int n, double x) {
  constexpr int kSteps = 16;
  long double sum = 0;
  for (int k = 0; k <= kSteps; ++k) {
    const long double t = k * 3.14159265358979323846264338L / kSteps;
    sum += std::exp(x * std::cos(t)) * std::cos(n * t) * (k == 0 || k == kSteps ? 0.5L : 1.0L);
  }
  return static_cast<double>(sum / kSteps);
}
/// The count at which u is used up, counts taken in turn from the mode, first upwards. P(k), k <= most.
inline double count_from_mode(double u, int mode, int most, const std::function<double(int)>& p) {
  long double rest = u;
  for (int step = 0; step <= 2 * most; ++step) {
    const int count = mode + (step % 2 == 1 ? (step + 1) / 2 : -step / 2);
    if (count < 0 || count > most) continue;
    rest -= p(count);
    if (rest < 0) return count;
  }
  return mode;
}
inline double truth(bool b) { return b ? 1 : 0; }
/// The 64-bit integer whose bits are those of the whole parts of a and b, combined one by one.
inline double by_bit(double a, double b, bool (*combine)(bool, bool)) {
  const auto bit = [](double x, int i) { return (static_cast<int64_t>(x) >> i & 1) != 0; };
  uint64_t result = 0;
  for (int i = 0; i < 64; ++i) result += combine(bit(a, i), bit(b, i)) ? uint64_t{1} << i : 0;
  return static_cast<double>(static_cast<int64_t>(result));
}

/// The definition of each op, with the default parameters of its struct unless make_op sets others.
inline const std::map<std::string, Case>& definitions() {
  using D = double;
  static const std::map<std::string, Case> table = {
      {"neg", {[](D x, D, D) { return -x; }}},
      {"abs", {[](D x, D, D) { return std::fabs(x); }}},
      {"exp", {[](D x, D, D) { return std::exp(x); }}},
      {"expm1", {[](D x, D, D) { return std::expm1(x); }}},
      {"exp2", {[](D x, D, D) { return std::exp2(x); }}},
      {"log", {[](D x, D, D) { return std::log(x); }, 0.2, 4}},
      {"log2", {[](D x, D, D) { return std::log2(x); }, 0.2, 4}},
      {"log10", {[](D x, D, D) { return std::log10(x); }, 0.2, 4}},
      {"log1p", {[](D x, D, D) { return std::log1p(x); }, -0.8, 4}},
      {"sqrt", {[](D x, D, D) { return std::sqrt(x); }, 0.2, 4}},
      {"rsqrt", {[](D x, D, D) { return 1 / std::sqrt(x); }, 0.2, 4}},
      {"square", {[](D x, D, D) { return x * x; }}},
      {"cube", {[](D x, D, D) { return x * x * x; }}},
      {"nan_to_num", {[](D x, D, D) { return x; }}},
      {"reciprocal", {[](D x, D, D) { return 1 / x; }, 0.3, 3}},
      {"sigmoid", {[](D x, D, D) { return 1 / (1 + std::exp(-x)); }}},
      {"tanh", {[](D x, D, D) { return std::tanh(x); }}},
      {"relu", {[](D x, D, D) { return x > 0 ? x : 0; }}},
      {"leaky_relu", {[](D x, D, D) { return x > 0 ? x : 0.01 * x; }}},
      {"gelu", {[](D x, D, D) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }}},
      {"gelu_tanh",
       {[](D x, D, D) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3)))); }}},
      {"silu", {[](D x, D, D) { return x / (1 + std::exp(-x)); }}},
      {"softplus", {[](D x, D, D) { return std::log(1 + std::exp(x)); }}},
      {"logsigmoid", {[](D x, D, D) { return -std::log(1 + std::exp(-x)); }}},
      {"elu", {[](D x, D, D) { return x > 0 ? x : 0.7 * std::expm1(1.5 * x); }}},
      {"selu", {[](D x, D, D) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * (std::exp(x) - 1)); }}},
      {"mish", {[](D x, D, D) { return x * std::tanh(std::log(1 + std::exp(x))); }}},
      {"hardsigmoid", {[](D x, D, D) { return std::clamp(x / 6 + 0.5, 0.0, 1.0); }, -4, 4}},
      {"hardswish", {[](D x, D, D) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }, -4, 4}},
      {"softsign", {[](D x, D, D) { return x / (1 + std::fabs(x)); }}},
      {"softshrink", {[](D x, D, D) { return x > 0.6    ? x - 0.6
                                             : x < -0.6 ? x + 0.6
                                                        : 0; }}},
      {"hardshrink", {[](D x, D, D) { return std::fabs(x) > 0.6 ? x : 0; }}},
      {"erf", {[](D x, D, D) { return std::erf(x); }}},
      {"erfinv", {[](D x, D, D) { return inverse_erf(x); }, -0.97, 0.97}},
      {"erfc", {[](D x, D, D) { return std::erfc(x); }}},
      {"lgamma", {[](D x, D, D) { return std::lgamma(x); }, 0.3, 5}},
      {"polygamma", {[](D x, D, D) { return third_derivative_of_lgamma(x); }, 0.3, 5}},
      {"i0", {[](D x, D, D) { return bessel_i(0, x); }}},
      {"i0e", {[](D x, D, D) { return bessel_i(0, x) * std::exp(-std::fabs(x)); }}},
      {"i1", {[](D x, D, D) { return bessel_i(1, x); }}},
      {"i1e", {[](D x, D, D) { return bessel_i(1, x) * std::exp(-std::fabs(x)); }}},
      {"erfcx", {[](D x, D, D) { return static_cast<D>(std::exp(x * (long double)x) * std::erfc((long double)x)); }}},
      {"log_ndtr", {[](D x, D, D) { return static_cast<D>(std::log(std::erfc(x / -std::sqrt(2.0L)) / 2)); }, -5, 5}},
      {"igamma", {[](D a, D x, D) { return static_cast<D>(lower_gamma(a, x)); }, 0.3, 5}},
      {"igammac", {[](D a, D x, D) { return static_cast<D>(1 - lower_gamma(a, x)); }, 0.3, 5}},
      {"gcd",
       {[](D a, D b, D) { return static_cast<D>(std::gcd(static_cast<int>(a), static_cast<int>(b))); }, -99, 99}},
      {"lcm",
       {[](D a, D b, D) { return static_cast<D>(std::lcm(static_cast<int>(a), static_cast<int>(b))); }, -99, 99}},
      {"nextafter", {[](D a, D b, D) { return std::nextafter(a, b); }}},
      {"poisson",
       {[](D rate, D u, D) {
          return count_from_mode(u, static_cast<int>(rate), 60,
                                 [&](int k) { return std::exp(k * std::log(rate) - rate - std::lgamma(k + 1.0)); });
        },
        0.01, 0.99}},
      {"binomial", {[](D, D, D) { return 0; }, 0.01, 0.99}},  // of less than one trial; the rest is core_random_test
      {"sin", {[](D x, D, D) { return std::sin(x); }}},
      {"cos", {[](D x, D, D) { return std::cos(x); }}},
      {"tan", {[](D x, D, D) { return std::tan(x); }, -1.2, 1.2}},
      {"asin", {[](D x, D, D) { return std::asin(x); }, -0.95, 0.95}},
      {"acos", {[](D x, D, D) { return std::acos(x); }, -0.95, 0.95}},
      {"atan", {[](D x, D, D) { return std::atan(x); }}},
      {"sinh", {[](D x, D, D) { return std::sinh(x); }}},
      {"cosh", {[](D x, D, D) { return std::cosh(x); }}},
      {"asinh", {[](D x, D, D) { return std::asinh(x); }}},
      {"acosh", {[](D x, D, D) { return std::acosh(x); }, 1.1, 4}},
      {"atanh", {[](D x, D, D) { return std::atanh(x); }, -0.95, 0.95}},
      {"sign", {[](D x, D, D) { return truth(x > 0) - truth(x < 0); }}},
      {"floor", {[](D x, D, D) { return std::floor(x); }}},
      {"ceil", {[](D x, D, D) { return std::ceil(x); }}},
      {"trunc", {[](D x, D, D) { return std::trunc(x); }}},
      {"round", {[](D x, D, D) { return x - std::remainder(x, 1.0); }}},
      {"pow_scalar", {[](D x, D, D) { return std::pow(x, 2.7); }, 0.3, 3}},
      {"add_scalar", {[](D x, D, D) { return x + 3; }}},
      {"mul_scalar", {[](D x, D, D) { return x * -2; }}},
      {"hardtanh", {[](D x, D, D) { return std::clamp(x, -1.0, 2.0); }}},
      {"clamp", {[](D x, D, D) { return x < -1  ? -1
                                        : x > 2 ? 2
                                                : x; }}},
      {"logical_not", {[](D x, D, D) { return truth(x == 0); }}},
      {"isnan", {[](D x, D, D) { return truth(std::isnan(x)); }}},
      {"isfinite", {[](D x, D, D) { return truth(std::isfinite(x)); }}},
      {"add", {[](D a, D b, D) { return a + b; }}},
      {"sub", {[](D a, D b, D) { return a - b; }}},
      {"mul", {[](D a, D b, D) { return a * b; }}},
      {"div", {[](D a, D b, D) { return a / b; }, 0.3, 3}},
      {"maximum", {[](D a, D b, D) { return a > b ? a : b; }}},
      {"minimum", {[](D a, D b, D) { return a < b ? a : b; }}},
      {"pow", {[](D a, D b, D) { return std::pow(a, b); }, 0.3, 3}},
      {"remainder", {[](D a, D b, D) { return a - b * std::floor(a / b); }, 0.3, 3}},
      {"fmod", {[](D a, D b, D) { return a - b * std::trunc(a / b); }, 0.3, 3}},
      {"floor_divide", {[](D a, D b, D) { return std::floor(a / b); }, 1, 5}},
      {"atan2", {[](D a, D b, D) { return std::atan2(a, b); }, 0.7, 4}},
      {"logaddexp", {[](D a, D b, D) { return std::log(std::exp(a) + std::exp(b)); }}},
      {"swiglu", {[](D a, D b, D) { return a / (1 + std::exp(-a)) * b; }}},
      {"hypot", {[](D a, D b, D) { return std::hypot(a, b); }, 0.3, 3}},
      {"copysign", {[](D a, D b, D) { return std::copysign(a, b); }}},
      {"prelu", {[](D x, D w, D) { return x > 0 ? x : w * x; }}},
      {"eq", {[](D a, D b, D) { return truth(a == b); }}},
      {"ne", {[](D a, D b, D) { return truth(a != b); }}},
      {"lt", {[](D a, D b, D) { return truth(a < b); }}},
      {"le", {[](D a, D b, D) { return truth(a <= b); }}},
      {"gt", {[](D a, D b, D) { return truth(a > b); }}},
      {"ge", {[](D a, D b, D) { return truth(a >= b); }}},
      {"logical_and", {[](D a, D b, D) { return truth(a != 0 && b != 0); }}},
      {"logical_or", {[](D a, D b, D) { return truth(a != 0 || b != 0); }}},
      {"logical_xor", {[](D a, D b, D) { return truth((a != 0) != (b != 0)); }}},
      {"bitwise_and", {[](D a, D b, D) { return by_bit(a, b, [](bool p, bool q) { return p && q; }); }, -99, 99}},
      {"bitwise_or", {[](D a, D b, D) { return by_bit(a, b, [](bool p, bool q) { return p || q; }); }, -99, 99}},
      {"bitwise_xor", {[](D a, D b, D) { return by_bit(a, b, [](bool p, bool q) { return p != q; }); }, -99, 99}},
      {"bitwise_left_shift",
       {[](D a, D b, D) { return b > -1 ? std::trunc(a) * std::exp2(std::trunc(b)) : 0; }, -6, 6}},
      {"bitwise_right_shift",
       {[](D a, D b, D) { return std::floor(std::trunc(a) * std::exp2(b > -1 ? -std::trunc(b) : -63)); }, -6, 6}},
      {"where", {[](D c, D a, D b) { return c != 0 ? a : b; }}},
      {"lerp", {[](D a, D b, D w) { return a * (1 - w) + b * w; }}},
      {"addcdiv", {[](D a, D b, D c) { return a + b / c; }, 0.3, 3}},
      {"addcmul", {[](D a, D b, D c) { return a + 0.5 * b * c; }}},
      {"squared_difference", {[](D a, D b, D) { return (a - b) * (a - b); }}},
      {"bce_with_logits", {[](D x, D t, D) { return std::log(1 + std::exp(x)) - t * x; }}},
      {"huber", {[](D a, D b, D) {
         const D d = std::fabs(a - b);
         return d < 0.7 ? 0.5 * d * d : 0.7 * (d - 0.35);
       }}},
  };
  return table;
}

template <class Op>
Op make_op() {
  if constexpr (std::is_same_v<Op, PowScalar>)
    return {2.7};
  else if constexpr (std::is_same_v<Op, AddScalar>)
    return {3};
  else if constexpr (std::is_same_v<Op, MulScalar>)
    return {-2};
  else if constexpr (std::is_same_v<Op, Clamp>)
    return {-1, 2};
  else if constexpr (std::is_same_v<Op, Hardtanh>)
    return {{-1, 2}};
  else if constexpr (std::is_same_v<Op, Elu>)
    return {0.7, 1.5};
  else if constexpr (std::is_same_v<Op, Softshrink> || std::is_same_v<Op, Hardshrink>)
    return {0.6};
  else if constexpr (std::is_same_v<Op, Huber>)
    return {0.7};
  else if constexpr (std::is_same_v<Op, Polygamma>)
    return {2};
  else if constexpr (std::is_same_v<Op, Addcmul>)
    return {0.5};
  else
    return {};
}

/// An op of BuiltinOps as a value: tests loop over these, so that their code is compiled once instead of once per op.
struct TestedOp {
  std::string name;
  Case reference;
  int arity = 0;
  bool integral = false, bool_result = false;
  bool saves_inputs = false, saves_output = false;
  int saved = 0;
  bool derivable[3] = {};   // with respect to each input
  uint32_t needed[3] = {};  // needed_saves with respect to each input
  int inputs[3] = {};       // number for each kind of pass
  PointwiseCall (*call)(PointwisePass pass, DType compute) = nullptr;

  double at(const std::vector<Array>& in, int64_t i) const {
    const auto value = [&](size_t k) { return k < in.size() ? in[k].at(i) : 0.0; };
    return reference.forward(value(0), value(1), value(2));
  }
};

template <class Op>
TestedOp tested_op() {
  constexpr int n = arity_of<Op>();
  TestedOp op;
  op.name = Op::name;
  op.reference = definitions().at(Op::name);
  op.arity = n;
  op.integral = is_integral_op<Op>();
  op.bool_result = has_bool_result<Op>();
  op.saves_inputs = Op::saves == Saves::kInputs || Op::saves == Saves::kBoth;
  op.saves_output = Op::saves == Saves::kOutput || Op::saves == Saves::kBoth;
  op.saved = saved_count<Op>();
  [&]<int... k>(std::integer_sequence<int, k...>) {
    ((op.derivable[k] = has_derivative<Op, k>(), op.needed[k] = needed_saves<Op>(k)), ...);
  }
  (std::make_integer_sequence<int, n>());
  for (PointwisePass::Kind kind : {PointwisePass::kForward, PointwisePass::kBackward, PointwisePass::kSecond})
    op.inputs[kind] = input_count<Op>(kind);
  op.call = [](PointwisePass pass, DType compute) {
    static const Op instance = make_op<Op>();
    return make_call(instance, pass, compute);
  };
  return op;
}

inline const std::vector<TestedOp>& tested_ops() {
  static const std::vector<TestedOp> ops = [] {
    std::vector<TestedOp> all;
    BuiltinOps::for_each([&]<class Op>() { all.push_back(tested_op<Op>()); });
    return all;
  }();
  return ops;
}

inline std::vector<const Array*> pointers(const std::vector<Array>& arrays) {
  std::vector<const Array*> result;
  for (const Array& a : arrays) result.push_back(&a);
  return result;
}

inline std::vector<Array> random_inputs(const TestedOp& op, std::mt19937_64& random, DType dtype, const Shape& shape,
                                        Order order) {
  const Case& c = op.reference;
  std::vector<Array> inputs;
  for (int k = 0; k < op.arity; ++k) inputs.push_back(random_array(random, dtype, shape, c.low, c.high, order));
  // A third of the elements equal the next input's (ties), and some are 0.
  for (int64_t i = 0; i < inputs[0].numel(); i += 3)
    if (op.arity > 1) inputs[1].set(i, inputs[0].at(i));
  if (c.low < 0)
    for (int64_t i = 1; i < inputs[0].numel(); i += 7) inputs[0].set(i, 0);
  return inputs;
}

/// The tensors that autograd passes to derivatives: dy and the saved ones.
struct SavedTensors {
  SavedTensors(const TestedOp& op, const Array& dy, const std::vector<Array>& x, const Array& y) {
    append(dy);
    if (op.saves_inputs)
      for (const Array& a : x) append(a);
    if (op.saves_output) append(y);
  }
  /// dy and the saved tensors that the derivative with respect to `input` reads; null for the others.
  std::vector<const Array*> needed(const TestedOp& op, int input) const {
    std::vector<const Array*> result = pointers(arrays);
    for (int s = 0; s < op.saved; ++s)
      if (!(op.needed[input] >> s & 1)) result[1 + s] = nullptr;
    return result;
  }
  std::vector<Array> arrays;

 private:
  void append(const Array& a) { arrays.emplace_back(a.dtype(), a.shape()).set(a.values()); }
};

/// Calls the kernel; `inputs` are broadcast to y's shape.
inline void call(Call& on, const PointwiseCall& call, const std::vector<const Array*>& inputs, Array& y) {
  std::vector<ConstView> views;
  for (const Array* input : inputs) views.push_back(input ? on(*input, input->expand(y.shape())) : ConstView());
  pointwise(on.stream(), call, views.data(), static_cast<int>(views.size()), on(y));
}
inline void call(const PointwiseCall& what, const std::vector<const Array*>& inputs, Array& y) {
  run_kernel([&](Call& on) { call(on, what, inputs, y); });
}

/// The result has the compute type's error and is then rounded once.
inline void check_forward(const TestedOp& op, DType storage, DType compute, const Shape& shape, Order order,
                          std::mt19937_64& random) {
  int64_t elements = 1;
  for (const int64_t n : shape) elements *= n;
  if (!takes_case(elements, random)) return;
  SCOPED_TRACE(op.name + " " + name_of(storage) + " computed in " + name_of(compute));
  const std::vector<Array> inputs = random_inputs(op, random, storage, shape, order);
  Array y(op.bool_result ? boolean : storage, shape, order);
  expect_same_in_every_run({&y}, [&](Call& on) { call(on, op.call({}, compute), pointers(inputs), y); });
  const double computed = compute == float32 ? 1e-6 : 1e-14, relative = epsilon_of(y.dtype()) * 1.01 + 2 * computed;
  for (int64_t i = 0; i < y.numel(); ++i) {
    const double exact = op.at(inputs, i), rounded = round_to(y.dtype(), exact);
    const bool right = is_floating(y.dtype()) && std::isfinite(rounded) ? near(y.at(i), exact, relative, computed)
                                                                        : near(y.at(i), rounded, 0, 0);
    ASSERT_TRUE(right) << "element " << i << ": got " << y.at(i) << ", expected " << exact;
  }
}

/// Compares dy * the derivative with respect to `input` with central differences of the reference, at smooth points;
/// and its derivatives with its central differences.
inline void check_derivative(const TestedOp& op, int input) {
  SCOPED_TRACE(op.name + " by input " + std::to_string(input));
  const Case& c = op.reference;
  constexpr int64_t n = 211;
  std::mt19937_64 random = fresh_random();
  std::vector<Array> x;
  for (int k = 0; k < op.arity; ++k) x.push_back(random_array(random, float64, {n}, c.low, c.high));
  Array y(float64, {n}), dy = random_array(random, float64, {n}, -2, 2), dx(float64, {n});
  for (int64_t i = 0; i < n; ++i) y.set(i, op.at(x, i));
  const SavedTensors saved(op, dy, x, y);
  ASSERT_EQ(static_cast<int>(saved.arrays.size()), op.inputs[PointwisePass::kBackward]);
  call(op.call({PointwisePass::kBackward, input}, float64), saved.needed(op, input), dx);
  const double h = 1e-5;
  for (int64_t i = 0; i < n; ++i) {
    double at[3] = {};
    for (int k = 0; k < op.arity; ++k) at[k] = x[k].at(i);
    const double middle = c.forward(at[0], at[1], at[2]);
    at[input] += h;
    const double up = c.forward(at[0], at[1], at[2]);
    at[input] -= 2 * h;
    const double down = c.forward(at[0], at[1], at[2]);
    if (std::fabs((up - middle) - (middle - down)) > 1e-8) continue;  // a kink
    ASSERT_TRUE(near(dx.at(i), dy.at(i) * (up - down) / (2 * h), 1e-6, 1e-7)) << "element " << i << " " << dx.at(i);
  }
  // Second: the derivative of the backward pass with respect to each saved tensor, with a new factor g.
  Array g = random_array(random, float64, {n}, -2, 2), second(float64, {n}), high(float64, {n}), low(float64, {n});
  for (int s = 0; s < op.saved; ++s) {
    const auto shifted = [&](double by, Array& out) {
      Array moved(float64, {n});
      for (int64_t i = 0; i < n; ++i) moved.set(i, saved.arrays[1 + s].at(i) + by);
      std::vector<const Array*> arguments = saved.needed(op, input);
      if (arguments[1 + s]) arguments[1 + s] = &moved;
      call(op.call({PointwisePass::kBackward, input}, float64), arguments, out);
    };
    shifted(h, high);
    shifted(-h, low);
    std::vector<const Array*> list = saved.needed(op, input);
    list.insert(list.begin(), &g);
    call(op.call({PointwisePass::kSecond, input, s}, float64), list, second);
    for (int64_t i = 0; i < n; ++i) {
      const double middle = dx.at(i);
      if (std::fabs((high.at(i) - middle) - (middle - low.at(i))) > 1e-8) continue;  // a jump
      const double expected = g.at(i) * (high.at(i) - low.at(i)) / (2 * h);
      ASSERT_TRUE(near(second.at(i), expected, 1e-6, 1e-7))
          << "by saved " << s << " element " << i << " got " << second.at(i) << " expected " << expected;
    }
  }
}

}  // namespace tern::kernels
