// User-defined ops: Function<>, element-wise structs; the engine's checks of them; anomaly mode. The gradient checker
// fails where a gradient is wrong.

#include "tern/core/autograd/function.h"
#include "tern/tests/core/rounding.h"

namespace tern::test {
namespace {

struct Scale final : TwiceDifferentiable<Scale> {
  static constexpr const char* kName = "scale";
  double factor_ = 1;
  Tensor forward(const Tensor& x, double factor) {
    factor_ = factor;
    return mul(x, factor);
  }
  Grads backward(const Tensor& dy) override { return {Scale::apply(dy, factor_)}; }
};

/// a * b and a / b.
struct ProductAndQuotient final : TwiceDifferentiable<ProductAndQuotient> {
  static constexpr const char* kName = "product_and_quotient";
  Saved a_, b_;
  Tensors forward(const Tensor& a, const Tensor& b) {
    a_ = a;
    b_ = b;
    return {mul(a, b), div(a, b), ne(a, b)};
  }
  Grads backward_all(const Grads& dys) override {
    const Tensor a = a_.get(), b = b_.get();
    const Tensor dproduct = dys[0].defined() ? dys[0] : zeros_like(a);
    const Tensor dquotient = dys[1].defined() ? dys[1] : zeros_like(a);
    return {needs_grad(0) ? dproduct * b + dquotient / b : Tensor(),
            needs_grad(1) ? dproduct * a - dquotient * a / (b * b) : Tensor()};
  }
};

enum class Fault { kNone, kShape, kDType, kCount, kThrow, kNaN, kUndefined };

struct Faulty final : Function<Faulty> {
  static constexpr const char* kName = "faulty";
  Fault fault_ = Fault::kNone;
  Saved x_;
  Tensor forward(const Tensor& x, Fault fault) {
    fault_ = fault;
    x_ = x;
    if (fault == Fault::kUndefined) return {};
    return x;  // the input: the result must still be a separate tensor
  }
  Grads backward(const Tensor& dy) override {
    x_.get();
    if (fault_ == Fault::kShape) return {zeros({3}, dy.options())};
    if (fault_ == Fault::kDType) return {zeros(dy.shape(), {.dtype = int64})};
    if (fault_ == Fault::kCount) return {dy, dy};
    if (fault_ == Fault::kThrow) fail("faulty: planted");
    if (fault_ == Fault::kNaN) return {full(dy.shape(), NAN, dy.options())};
    return {dy};
  }
};

/// Not a built-in op: its loops are compiled here.
struct Bump {
  static constexpr const char* name = "bump";
  static constexpr kernels::Saves saves = kernels::Saves::kInputs;
  double width;
  template <class F>
  F forward(F x) const {
    return kernels::math::exp(-(x * x) * F(width));
  }
  template <class F>
  F derivative(F x) const {
    return F(-2 * width) * x * kernels::math::exp(-(x * x) * F(width));
  }
};

/// Two inputs, saves its output as well; no derivative with respect to the second.
struct ScaledExp {
  static constexpr const char* name = "scaled_exp";
  static constexpr kernels::Saves saves = kernels::Saves::kOutput;
  template <class F>
  F forward(F x, F y) const {
    return kernels::math::exp(x) * y;
  }
  template <class F>
  F derivative0(F result) const {
    return result;
  }
};

TEST(Custom, FunctionsWithParameters) {
  Generator g = fresh_generator();
  const Tensor x = leaf({3, 2}, g);
  expect_derivatives([](const Tensors& in) { return square(Scale::apply(in[0], 2.5)); }, {x});
  EXPECT_FALSE(Scale::apply(x.detach(), 2.0).requires_grad());
}

TEST(Custom, SeveralOutputs) {
  Generator g = fresh_generator();
  const Tensor a = leaf({4}, g), b = (rand({4}, g, {.dtype = float64}) + 1.0).set_requires_grad(true);
  const auto both = [](const Tensors& in) {
    const Tensors out = ProductAndQuotient::apply(in[0], in[1]);
    return out[0] * out[1] + out[0];
  };
  expect_derivatives(both, {a, b});
  EXPECT_NO_THROW(gradcheck([](const Tensors& in) { return ProductAndQuotient::apply(in[0], in[1])[1]; }, {a, b}));
  const Tensors out = ProductAndQuotient::apply(a, b);
  EXPECT_FALSE(out[2].requires_grad());
  EXPECT_EQ(out[2].dtype(), boolean);
}

TEST(Custom, ElementWiseStructs) {
  Generator g = fresh_generator();
  const Tensor x = leaf({3, 5}, g);
  expect_derivatives([](const Tensors& in) { return pointwise(Bump{0.7}, in[0]); }, {x});
  expect_derivatives([](const Tensors& in) { return pointwise(Bump{0.7}, in[0].t()); }, {x});
  const Tensor y = randn({5}, g, {.dtype = float64});
  expect_derivatives([&](const Tensors& in) { return pointwise(ScaledExp{}, in[0], y); }, {x});
  for (DType dtype : {float32, bfloat16, float16}) {
    const Tensor low = x.detach().to(dtype);
    const std::vector<double> got = pointwise(Bump{0.7}, low).to_vector<double>(), in = low.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      // Three roundings of the exponent, two units of exp, and the rounding to dtype.
      const double exponent = 0.7 * in[i] * in[i], want = std::exp(-exponent);
      const double relative = (3 * exponent + 4) * 0x1p-24 + storage_unit(dtype);
      EXPECT_NEAR(got[i], want, 1.1 * relative * want + (dtype == float16 ? 0x1p-25 : 0)) << dtype;
    }
  }
}

TEST(Custom, WrongGradientsNameTheOp) {
  const Tensor x = tensor({1, 2}, {.dtype = float64, .requires_grad = true});
  const auto run = [&](Fault fault) { sum(Faulty::apply(x, fault)).backward(); };
  expect_error([&] { run(Fault::kShape); }, {"faulty", "[3]", "[2]"});
  expect_error([&] { run(Fault::kDType); }, {"faulty", "int64", "float64"});
  expect_error([&] { run(Fault::kCount); }, {"faulty", "2 gradients for 1"});
  expect_error([&] { run(Fault::kThrow); }, {"planted"});
  expect_error([&] { run(Fault::kUndefined); }, {"faulty", "undefined"});
  EXPECT_FALSE(x.grad().defined());
  run(Fault::kNone);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(Custom, AnInputReturnedAsOutputStaysALeaf) {
  const Tensor x = tensor({1, 2}, {.requires_grad = true}), y = Faulty::apply(x, Fault::kNone);
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE(y.is_leaf());
  EXPECT_EQ(y.storage(), x.storage());
}

/// 2 x and what `more` gives; its backward is enough if no other output is floating.
struct OneBackward final : Function<OneBackward> {
  static constexpr const char* kName = "one_backward";
  Tensors forward(const Tensor& x, const std::function<Tensors(const Tensor&)>& more) {
    Tensors all = more(x);
    all.insert(all.begin(), mul(x, 2));
    return all;
  }
  Grads backward(const Tensor& dy) override { return {mul(dy, 2)}; }
};

/// backward_all is inherited and not public.
template <class Op>
struct DoublesTwice : Function<Op> {
 protected:
  Grads backward_all(const Grads& dys) override { return {add(mul(dys[0], 2), mul(dys[1], 3))}; }
};
struct Inherited final : DoublesTwice<Inherited> {
  static constexpr const char* kName = "inherited";
  Tensors forward(const Tensor& x) { return {mul(x, 2), mul(x, 3)}; }
};

TEST(Custom, SeveralOutputsNeedABackwardForAll) {
  const Tensor x = tensor({1, 5, 2}, {.requires_grad = true});
  const auto tripled = [](const Tensor& in) { return Tensors{mul(in, 3)}; };
  const auto index = [](const Tensor& in) { return Tensors{argmax(in)}; };
  const auto nothing = [](const Tensor&) { return Tensors(); };
  expect_error([&] { OneBackward::apply(x, tripled); }, {"one_backward", "output 1 of 2", "backward_all"});
  expect_error([&] { OneBackward::apply(x.detach(), tripled); }, {"backward_all"});
  sum(OneBackward::apply(x, index)[0]).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 2, 2}));
  sum(OneBackward::apply(x, nothing)[0]).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{4, 4, 4}));
  const Tensors both = Inherited::apply(x);
  sum(add(both[0], both[1])).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{9, 9, 9}));
}

/// x * factor, where the factor has no gradient.
struct TimesConstant final : Function<TimesConstant> {
  static constexpr const char* kName = "times_constant";
  Saved factor_;
  Tensor forward(const Tensor& x, const Constant& factor) {
    factor_ = factor.tensor;
    return factor.tensor.defined() ? mul(x, factor.tensor) : x.clone();
  }
  Grads backward(const Tensor& dy) override { return {mul(dy, factor_.get())}; }
};

TEST(Custom, AConstantArgumentHasNoGradient) {
  const Tensor x = tensor({1, 2}, {.requires_grad = true}), factor = tensor({3, 4}, {.requires_grad = true});
  sum(TimesConstant::apply(x, Constant{factor})).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 4}));
  EXPECT_FALSE(factor.grad().defined());
  EXPECT_FALSE(TimesConstant::apply(x.detach(), Constant{factor}).requires_grad());
  EXPECT_EQ(TimesConstant::apply(x.detach(), Constant{}).to_vector<double>(), (std::vector<double>{1, 2}));
}

struct Asks final : Function<Asks> {
  static constexpr const char* kName = "asks";
  int wanted_ = 0;
  bool answer_ = false;
  Tensor forward(const Tensor& x, const Tensor& y, int in_forward, int in_backward) {
    wanted_ = in_backward;
    if (in_forward != 99) answer_ = needs_grad(in_forward);
    return add(x, y);
  }
  Grads backward(const Tensor& dy) override {
    answer_ = needs_grad(wanted_);
    return {dy, dy};
  }
};

TEST(Custom, NeedsGradOfAnInputThatIsNotThere) {
  const Tensor x = tensor({1, 2}, {.requires_grad = true}), y = tensor({3, 4});
  for (const int i : {2, 3, 1000, -1, INT32_MIN}) {
    expect_error([&] { Asks::apply(x, y, i, 0); },
                 {"asks", "needs_grad(" + std::to_string(i) + ")", "2 tensor inputs"});
    expect_error([&] { Asks::apply(x.detach(), y, i, 0); }, {"asks", "2 tensor inputs"});
    expect_error([&] { sum(Asks::apply(x, y, 99, i)).backward(); }, {"asks", "2 tensor inputs"});
  }
  EXPECT_NO_THROW(sum(Asks::apply(x, y, 1, 1)).backward());
}

/// Saves its output in the given kind of member.
enum class Place { kSaved, kSavedOutput, kMember, kView };
struct KeepsOutput final : Function<KeepsOutput> {
  static constexpr const char* kName = "keeps_output";
  Saved saved_;
  SavedOutput saved_output_;
  Tensor member_;
  Tensor forward(const Tensor& x, Place where) {
    const Tensor y = exp(x);
    if (where == Place::kSaved) saved_ = y;
    if (where == Place::kSavedOutput) saved_output_ = y;
    if (where == Place::kMember) member_ = y;
    if (where == Place::kView) saved_ = y.unsqueeze(0);
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor y = member_.defined() ? member_ : saved_.defined() ? saved_.get() : saved_output_.get();
    return {mul(dy, y.reshape(dy.shape()))};
  }
};
struct KeepsSecondOutput final : Function<KeepsSecondOutput> {
  static constexpr const char* kName = "keeps_second_output";
  Saved saved_;
  Tensors forward(const Tensor& x) {
    const Tensor y = exp(x), z = exp(y);
    saved_ = z;
    return {y, z};
  }
  Grads backward_all(const Grads& dys) override { return {dys[0]}; }
};

TEST(Custom, AnOutputKeptInSavedIsAnError) {
  const Tensor x = tensor({1, 2}, {.requires_grad = true});
  expect_error([&] { KeepsOutput::apply(x, Place::kSaved); }, {"keeps_output", "SavedOutput"});
  expect_error([&] { KeepsSecondOutput::apply(x); }, {"keeps_second_output", "SavedOutput"});
  EXPECT_NO_THROW(KeepsOutput::apply(x.detach(), Place::kSaved));  // without a gradient nothing is saved
  const auto bytes = [] { return allocator(cpu).statistics().live_bytes; };
  const Tensor large = ones({100000}, {.requires_grad = true});
  const int64_t before = bytes();
  for (int i = 0; i < 5; ++i) EXPECT_THROW(KeepsOutput::apply(large, Place::kSaved), Error);
  EXPECT_EQ(bytes(), before);
  for (const Place place : {Place::kSavedOutput, Place::kMember, Place::kView}) {
    SCOPED_TRACE(static_cast<int>(place));
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(KeepsOutput::apply(large, place).requires_grad());  // no backward
    EXPECT_EQ(bytes(), before);
    const Tensor leaf = tensor({1, 2}, {.requires_grad = true});
    sum(KeepsOutput::apply(leaf, place)).backward();
    EXPECT_NEAR(leaf.grad().to_vector<double>()[1], std::exp(2.0), 0x1p-20);  // two units in the last place
  }
}

TEST(Custom, SavedOutsideOfAnOpIsAnError) {
  expect_error([] { Saved stray; }, {"member of a Function"});
}

TEST(Anomaly, NamesTheForwardOp) {
  const Tensor x = tensor({-1, 1}, {.requires_grad = true});
  const DetectAnomaly on;
  expect_error([&] { mul(sqrt(x), 2.0); }, {"anomaly", "sqrt", "NaN"});
  EXPECT_NO_THROW(mul(tensor({NAN}), 2.0));  // not the first op to produce NaN
  EXPECT_NO_THROW(log(tensor({0.})));        // kNaN does not report an infinity
  const DetectAnomaly strict(Anomaly::kNonFinite);
  expect_error([] { log(tensor({0.})); }, {"anomaly", "log", "non-finite"});
}

TEST(Anomaly, NamesTheBackwardOp) {
  const Tensor x = tensor({0, 1}, {.requires_grad = true});
  {
    const DetectAnomaly on;
    const Tensor y = sum(sqrt(x) * tensor({0, 1}));  // 0 * infinity
    expect_error([&] { y.backward(); }, {"anomaly", "backward of sqrt", "NaN"});
    expect_error([&] { sum(Faulty::apply(x, Fault::kNaN)).backward(); }, {"anomaly", "backward of faulty"});
  }
  EXPECT_EQ(anomaly_mode(), Anomaly::kOff);
  EXPECT_NO_THROW(sum(Faulty::apply(x, Fault::kNaN)).backward());
}

/// Wrong by `error` at one element; correct at first order only, since the gradient's dependence on x is dropped; wrong
/// when it can be differentiated again.
enum class Flaw { kElement, kDependence, kCreateGraph };
struct WrongSin final : TwiceDifferentiable<WrongSin> {
  static constexpr const char* kName = "wrong_sin";
  Saved x_;
  Flaw flaw_ = Flaw::kElement;
  double error_ = 0;
  Tensor forward(const Tensor& x, Flaw flaw, double error) {
    flaw_ = flaw;
    error_ = error;
    x_ = x;
    return sin(x);
  }
  Grads backward(const Tensor& dy) override {
    const Tensor x = flaw_ == Flaw::kDependence ? x_.get().detach() : x_.get(), wrong = zeros_like(dy);
    wrong.data<double>()[2] = error_;
    return {dy * cos(x) * (flaw_ == Flaw::kCreateGraph && grad_enabled() ? 1.25 : 1.0) + wrong};
  }
};

TEST(Gradcheck, PassesAndFailsWhereItShould) {
  Generator g = fresh_generator();
  const Tensors x = {leaf({5}, g)};
  const auto wrong = [](Flaw flaw, double error) {
    return [=](const Tensors& in) { return WrongSin::apply(in[0], flaw, error); };
  };
  EXPECT_NO_THROW(gradcheck(wrong(Flaw::kElement, 0), x, {.second = true}));
  expect_error([&] { gradcheck(wrong(Flaw::kElement, 1e-2), x); },
               {"gradcheck", "first gradient", "input 0", "element 2"});
  expect_error([&] { gradcheck(wrong(Flaw::kElement, NAN), x); }, {"element 2", "nan"});
  expect_error([&] { gradcheck(wrong(Flaw::kElement, INFINITY), x); }, {"element 2", "inf"});
  const auto cut = wrong(Flaw::kDependence, 0), differs = wrong(Flaw::kCreateGraph, 0);
  EXPECT_NO_THROW(gradcheck(cut, x));
  expect_error([&] { gradcheck(cut, x, {.second = true}); }, {"second gradient"});
  EXPECT_NO_THROW(gradcheck(differs, x));
  expect_error([&] { gradcheck(differs, x, {.second = true}); }, {"first gradient of input 0", "create_graph"});
  const Tensors negative = {tensor({-1, 2}, {.dtype = float64, .requires_grad = true})};
  expect_error([&] { gradcheck([](const auto& in) { return sqrt(in[0]); }, negative); }, {"gradcheck", "nan"});
}

TEST(Gradcheck, ChecksItsInputs) {
  const auto id = [](const Tensors& in) { return in[0] * 1.0; };
  expect_error([&] { gradcheck(id, {tensor({1}, {.requires_grad = true})}); }, {"float32", "float64"});
  expect_error([&] { gradcheck(id, {tensor({1}, {.dtype = float64})}); }, {"no input requires"});
}

}  // namespace
}  // namespace tern::test
