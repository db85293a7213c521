// The in-place forms of ops against the ops that return a tensor: values, gradients, versions, views, and errors.

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

class InPlace : public DerivativeTest {};

struct Form {
  const char* name;
  std::function<Tensor&(Tensor&, const Tensor&)> in_place;
  std::function<Tensor(const Tensor&, const Tensor&)> op;
};
std::vector<Form> forms() {
  return {
      {"neg_", [](Tensor& x, const Tensor&) -> Tensor& { return x.neg_(); }, [](auto& x, auto&) { return neg(x); }},
      {"abs_", [](Tensor& x, const Tensor&) -> Tensor& { return x.abs_(); }, [](auto& x, auto&) { return abs(x); }},
      {"exp_", [](Tensor& x, const Tensor&) -> Tensor& { return x.exp_(); }, [](auto& x, auto&) { return exp(x); }},
      {"log_", [](Tensor& x, const Tensor&) -> Tensor& { return x.log_(); }, [](auto& x, auto&) { return log(x); }},
      {"expm1_", [](Tensor& x, const Tensor&) -> Tensor& { return x.expm1_(); },
       [](auto& x, auto&) { return expm1(x); }},
      {"log1p_", [](Tensor& x, const Tensor&) -> Tensor& { return x.log1p_(); },
       [](auto& x, auto&) { return log1p(x); }},
      {"erf_", [](Tensor& x, const Tensor&) -> Tensor& { return x.erf_(); }, [](auto& x, auto&) { return erf(x); }},
      {"sqrt_", [](Tensor& x, const Tensor&) -> Tensor& { return x.sqrt_(); }, [](auto& x, auto&) { return sqrt(x); }},
      {"rsqrt_", [](Tensor& x, const Tensor&) -> Tensor& { return x.rsqrt_(); },
       [](auto& x, auto&) { return rsqrt(x); }},
      {"square_", [](Tensor& x, const Tensor&) -> Tensor& { return x.square_(); },
       [](auto& x, auto&) { return square(x); }},
      {"reciprocal_", [](Tensor& x, const Tensor&) -> Tensor& { return x.reciprocal_(); },
       [](auto& x, auto&) { return reciprocal(x); }},
      {"sign_", [](Tensor& x, const Tensor&) -> Tensor& { return x.sign_(); }, [](auto& x, auto&) { return sign(x); }},
      {"floor_", [](Tensor& x, const Tensor&) -> Tensor& { return x.floor_(); },
       [](auto& x, auto&) { return floor(x); }},
      {"ceil_", [](Tensor& x, const Tensor&) -> Tensor& { return x.ceil_(); }, [](auto& x, auto&) { return ceil(x); }},
      {"trunc_", [](Tensor& x, const Tensor&) -> Tensor& { return x.trunc_(); },
       [](auto& x, auto&) { return trunc(x); }},
      {"round_", [](Tensor& x, const Tensor&) -> Tensor& { return x.round_(); },
       [](auto& x, auto&) { return round(x); }},
      {"sin_", [](Tensor& x, const Tensor&) -> Tensor& { return x.sin_(); }, [](auto& x, auto&) { return sin(x); }},
      {"cos_", [](Tensor& x, const Tensor&) -> Tensor& { return x.cos_(); }, [](auto& x, auto&) { return cos(x); }},
      {"sigmoid_", [](Tensor& x, const Tensor&) -> Tensor& { return x.sigmoid_(); },
       [](auto& x, auto&) { return sigmoid(x); }},
      {"tanh_", [](Tensor& x, const Tensor&) -> Tensor& { return x.tanh_(); }, [](auto& x, auto&) { return tanh(x); }},
      {"relu_", [](Tensor& x, const Tensor&) -> Tensor& { return x.relu_(); }, [](auto& x, auto&) { return relu(x); }},
      {"leaky_relu_", [](Tensor& x, const Tensor&) -> Tensor& { return x.leaky_relu_(0.3); },
       [](auto& x, auto&) { return leaky_relu(x, 0.3); }},
      {"clamp_", [](Tensor& x, const Tensor&) -> Tensor& { return x.clamp_(0.5, 1.5); },
       [](auto& x, auto&) { return clamp(x, 0.5, 1.5); }},
      {"clamp_ between tensors", [](Tensor& x, const Tensor& y) -> Tensor& { return x.clamp_(y, {}); },
       [](auto& x, auto& y) { return clamp(x, y, {}); }},
      {"floor_divide_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.floor_divide_(y); },
       [](auto& x, auto& y) { return floor_divide(x, y); }},
      {"scatter_reduce_",
       [](Tensor& x, const Tensor& y) -> Tensor& {
         return x.scatter_reduce_(0, zeros(x.shape(), {.dtype = int64}), y.expand(x.shape()), ScatterReduction::kMax,
                                  false);
       },
       [](auto& x, auto& y) {
         return scatter_reduce(x, 0, zeros(x.shape(), {.dtype = int64}), y.expand(x.shape()), ScatterReduction::kMax,
                               false);
       }},
      {"put_",
       [](Tensor& x, const Tensor& y) -> Tensor& {
         return x.put_(arange(0, static_cast<double>(std::min(x.numel(), y.numel()))), y.slice(0, 0, x.numel()), true);
       },
       [](auto& x, auto& y) {
         return put(x, arange(0, static_cast<double>(std::min(x.numel(), y.numel()))), y.slice(0, 0, x.numel()), true);
       }},
      {"masked_scatter_",
       [](Tensor& x, const Tensor& y) -> Tensor& { return x.masked_scatter_(x.detach() > 0.5, y.expand(x.shape())); },
       [](auto& x, auto& y) { return masked_scatter(x, x.detach() > 0.5, y.expand(x.shape())); }},
      {"nan_to_num_", [](Tensor& x, const Tensor&) -> Tensor& { return x.nan_to_num_(3); },
       [](auto& x, auto&) { return nan_to_num(x, 3); }},
      {"sub_ number", [](Tensor& x, const Tensor&) -> Tensor& { return x.sub_(2); },
       [](auto& x, auto&) { return sub(x, 2.0); }},
      {"div_ number", [](Tensor& x, const Tensor&) -> Tensor& { return x.div_(3); },
       [](auto& x, auto&) { return div(x, 3.0); }},
      {"pow_ number", [](Tensor& x, const Tensor&) -> Tensor& { return x.pow_(1.5); },
       [](auto& x, auto&) { return pow(x, 1.5); }},
      {"pow_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.pow_(y); },
       [](auto& x, auto& y) { return pow(x, y); }},
      {"remainder_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.remainder_(y); },
       [](auto& x, auto& y) { return remainder(x, y); }},
      {"fmod_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.fmod_(y); },
       [](auto& x, auto& y) { return fmod(x, y); }},
      {"lerp_ number", [](Tensor& x, const Tensor& y) -> Tensor& { return x.lerp_(y, 0.3); },
       [](auto& x, auto& y) { return lerp(x, y, 0.3); }},
      {"lerp_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.lerp_(y, y); },
       [](auto& x, auto& y) { return lerp(x, y, y); }},
      {"addcmul_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.addcmul_(y, y, 2); },
       [](auto& x, auto& y) { return addcmul(x, y, y, 2); }},
      {"addcdiv_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.addcdiv_(y, y, 2); },
       [](auto& x, auto& y) { return addcdiv(x, y, y, 2); }},
      {"tril_", [](Tensor& x, const Tensor&) -> Tensor& { return x.tril_(1); },
       [](auto& x, auto&) { return tril(x, 1); }},
      {"triu_", [](Tensor& x, const Tensor&) -> Tensor& { return x.triu_(); }, [](auto& x, auto&) { return triu(x); }},
      {"cumsum_", [](Tensor& x, const Tensor&) -> Tensor& { return x.cumsum_(0); },
       [](auto& x, auto&) { return cumsum(x, 0); }},
      {"cumprod_", [](Tensor& x, const Tensor&) -> Tensor& { return x.cumprod_(-1); },
       [](auto& x, auto&) { return cumprod(x, -1); }}};
}

TEST_F(InPlace, GivesTheValuesOfTheOp) {
  for (const Form& form : forms())
    for (const DType dtype : {float64, float32, bfloat16, float16})
      for (const Shape& shape : {Shape{3, 4}, Shape{1, 1}, Shape{0, 4}}) {
        SCOPED_TRACE(std::string(form.name) + " " + name_of(dtype));
        const Tensor base = (square(normal({shape[1], shape[0]})) + 0.1).detach().to(dtype);
        const Tensor other = (square(normal({shape[1]})) + 0.1).detach().to(dtype);
        Tensor x = base.t();  // a view that is not contiguous
        const Tensor expected = form.op(x.clone(), other);
        const uint32_t version = base.version();
        EXPECT_TRUE(same(form.in_place(x, other), x));
        EXPECT_GT(base.version(), version);
        EXPECT_EQ(x.dtype(), dtype);
        EXPECT_EQ(x.to_vector<double>(), expected.to(dtype).to_vector<double>());
      }
}

TEST_F(InPlace, HasTheDerivativesOfTheOp) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    const Tensor a = (square(normal({3, 4})) + 0.1).detach().set_requires_grad(true);
    const Tensor b = (square(normal({4})) + 0.2).detach().set_requires_grad(true), weights = normal({3, 4}).detach();
    const auto gradients = [&](const auto& fn) {
      Tensor x = square(a);
      return grad({sum(square(fn(x)) * weights)}, {a, b}, {.allow_unused = true});
    };
    const Tensors got = gradients([&](Tensor& x) { return form.in_place(x, b); });
    const Tensors want = gradients([&](Tensor& x) { return form.op(x, b); });
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(got[i].defined(), want[i].defined());
      if (got[i].defined()) {
        EXPECT_EQ(got[i].to_vector<double>(), want[i].to_vector<double>());
      }
    }
    Tensor constant = a.detach().clone();
    if (const Tensor y = form.op(constant, b); y.requires_grad()) {
      const Tensor expected = grad({sum(y)}, {b})[0];
      const Tensor z = form.in_place(constant, b);  // of which the other tensor alone needs a gradient
      EXPECT_EQ(grad({sum(z)}, {b})[0].to_vector<double>(), expected.to_vector<double>());
    }
    Tensor leaf = a;
    EXPECT_THROW(form.in_place(leaf, b), Error);
    Tensor repeated = ones({1, 4}).expand({3, 4});
    EXPECT_THROW(form.in_place(repeated, b.detach().to(float32)), Error);
  }
}

TEST_F(InPlace, IntegersHoldNoFractions) {
  Tensor x = from_vector<int64_t>({1, 2, -3, 4}, {2, 2});
  EXPECT_EQ(Tensor(x.clone()).neg_().to_vector<int64_t>(), (std::vector<int64_t>{-1, -2, 3, -4}));
  EXPECT_EQ(Tensor(x.clone()).cumsum_(1).to_vector<int64_t>(), (std::vector<int64_t>{1, 3, -3, 1}));
  EXPECT_EQ(Tensor(x.to(int32)).clone().clamp_(-1, 2).to_vector<int64_t>(), (std::vector<int64_t>{1, 2, -1, 2}));
  EXPECT_THROW(x.exp_(), Error);
  EXPECT_THROW(x.div_(2), Error);
  EXPECT_THROW(x.lerp_(x, 0.5), Error);
  EXPECT_THROW(x.clamp_(2, 1), Error);
  EXPECT_THROW(Tensor(ones({2})).addcmul_(ones({3, 2}), ones({2})), Error);
  Tensor bytes = full({2}, 5, {.dtype = uint8});
  bytes.sub_(2) -= 1;  // -2 is no uint8
  EXPECT_EQ(bytes.to_vector<int64_t>(), (std::vector<int64_t>{2, 2}));
  Tensor y = ones({2});
  y /= 4;
  y -= 1;
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{-0.75, -0.75}));
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, -3, 4}));  // an error changes nothing
}

/// Writes that read their operands from the memory that they write.
struct AliasedWrite {
  const char* name;
  std::function<void(Tensor& x, const Tensor& other)> write;
};
std::vector<AliasedWrite> aliased_writes() {
  const auto rows = [](int64_t n) {
    return remainder(arange(0, static_cast<double>(n)) * 3 + 1, full({}, n - 1, {int64}));
  };
  return {{"copy_", [](Tensor& x, const Tensor& y) { x.copy_(y); }},
          {"add_", [](Tensor& x, const Tensor& y) { x.add_(y); }},
          {"add_ alpha", [](Tensor& x, const Tensor& y) { x.add_(y, 3); }},
          {"sub_", [](Tensor& x, const Tensor& y) { x.sub_(y); }},
          {"mul_", [](Tensor& x, const Tensor& y) { x.mul_(y); }},
          {"clamp_", [](Tensor& x, const Tensor& y) { x.clamp_(y, {}); }},
          {"masked_fill_", [](Tensor& x, const Tensor& y) { x.masked_fill_(y > 5.0, 7); }},
          {"masked_scatter_", [](Tensor& x, const Tensor& y) { x.masked_scatter_(x > 4.0, y); }},
          {"put_", [](Tensor& x, const Tensor& y) { x.put_(y.to(int64), y); }},
          {"put_ accumulate", [](Tensor& x, const Tensor& y) { x.put_(y.to(int64), y, true); }},
          {"index_put_", [=](Tensor& x, const Tensor& y) { x.index_put_({rows(x.size(0))}, y); }},
          {"index_put_ accumulate", [=](Tensor& x, const Tensor& y) { x.index_put_({rows(x.size(0))}, y, true); }},
          {"index_put_ of a slice",
           [](Tensor& x, const Tensor& y) { x.index_put_({Slice{1}}, y.slice(0, 0, y.size(0) - 1)); }},
          {"index_copy_", [=](Tensor& x, const Tensor& y) { x.index_copy_(0, rows(x.size(0)), y); }},
          {"index_add_", [=](Tensor& x, const Tensor& y) { x.index_add_(0, rows(x.size(0)), y); }},
          {"scatter_", [](Tensor& x, const Tensor& y) { x.scatter_(0, y.to(int64), y); }},
          {"scatter_add_", [](Tensor& x, const Tensor& y) { x.scatter_add_(0, y.to(int64), y); }},
          {"scatter_reduce_",
           [](Tensor& x, const Tensor& y) { x.scatter_reduce_(0, y.to(int64), y, ScatterReduction::kProd); }}};
}

/// The elements of `base` that are written, and those that are read.
using Views = std::pair<std::function<Tensor(const Tensor& base)>, std::function<Tensor(const Tensor& base)>>;

TEST_F(InPlace, WritesWhatOtherMemoryWouldGive) {
  constexpr int64_t kSize = 9;
  const std::vector<Views> views = {
      {[](const Tensor& b) { return b; }, [](const Tensor& b) { return b; }},
      {[](const Tensor& b) { return b; }, [](const Tensor& b) { return b.detach(); }},
      {[](const Tensor& b) { return b; }, [](const Tensor& b) { return b.reshape(b.shape()); }},
      {[](const Tensor& b) { return b; }, [](const Tensor& b) { return b.t(); }},
      {[](const Tensor& b) { return b.t(); }, [](const Tensor& b) { return b; }},
      {[](const Tensor& b) { return b.narrow(0, 1, kSize - 1); },
       [](const Tensor& b) { return b.narrow(0, 0, kSize - 1); }},
      {[](const Tensor& b) { return b.narrow(0, 0, kSize - 1); },
       [](const Tensor& b) { return b.narrow(0, 1, kSize - 1); }},
      {[](const Tensor& b) { return b.narrow(1, 1, kSize - 1); },
       [](const Tensor& b) { return b.narrow(1, 0, kSize - 1); }},
      {[](const Tensor& b) { return b.slice(0, 0, kSize - 1, 2); },
       [](const Tensor& b) { return b.slice(0, 1, kSize, 2); }},
      {[](const Tensor& b) { return b; }, [](const Tensor& b) { return b.narrow(0, 4, 1).expand(b.shape()); }},
      // Two storages of one memory.
      {[](const Tensor& b) { return b; },
       [](const Tensor& b) { return from_blob(b.raw_data(), b.shape(), b.dtype()); }}};
  for (const AliasedWrite& form : aliased_writes())
    for (const DType dtype : {float32, int64, bfloat16})
      for (size_t v = 0; v < views.size(); ++v) {
        SCOPED_TRACE(testing::Message() << form.name << " of " << name_of(dtype) << ", views " << v);
        // Numbers that are valid indices of every view; the values of a row differ.
        const Tensor start =
            remainder(arange(0, kSize * kSize) * 7 + 3, full({}, 4, {int64})).reshape({kSize, kSize}).to(dtype);
        Tensor base = start.clone(), expected = start.clone();
        Tensor x = views[v].first(base), apart = views[v].first(expected);
        form.write(x, views[v].second(base));
        form.write(apart, views[v].second(start).clone());
        EXPECT_EQ(base.to_vector<double>(), expected.to_vector<double>());
      }
}

/// The index itself is what is written.
TEST_F(InPlace, WritesToItsOwnIndex) {
  const std::vector<int64_t> start = {2, 0, 1, 3, 3};
  const auto of = [&] { return from_vector(start, {5}); };
  const auto check = [&](const char* name, const auto& write) {
    SCOPED_TRACE(name);
    Tensor x = of(), y = of();
    write(x, x);
    write(y, of());
    EXPECT_EQ(x.to_vector<int64_t>(), y.to_vector<int64_t>());
  };
  check("scatter_", [](Tensor& x, const Tensor& i) { x.scatter_(0, i, 7); });
  check("scatter_add_", [](Tensor& x, const Tensor& i) { x.scatter_add_(0, i, i); });
  check("index_fill_", [](Tensor& x, const Tensor& i) { x.index_fill_(0, i, 9); });
  check("index_copy_", [](Tensor& x, const Tensor& i) { x.index_copy_(0, i, i); });
  check("index_add_", [](Tensor& x, const Tensor& i) { x.index_add_(0, i, i, 2); });
  check("index_put_", [](Tensor& x, const Tensor& i) { x.index_put_({i}, i); });
  check("index_put_ accumulate", [](Tensor& x, const Tensor& i) { x.index_put_({i}, i, true); });
  check("put_", [](Tensor& x, const Tensor& i) { x.put_(i, i, true); });
  Tensor mask = from_vector<bool>({true, false, true}, {3});
  mask.masked_fill_(mask, 0);
  EXPECT_EQ(mask.to_vector<bool>(), (std::vector<bool>{false, false, false}));
  Tensor rows = from_vector<int64_t>({2, 0, 1, 1, 0, 2}, {3, 2});
  rows.index_put_({rows.select(1, 0)}, rows);  // row 2 gets {2, 0}, 1 {1, 1}, 0 {0, 2}
  EXPECT_EQ(rows.to_vector<int64_t>(), (std::vector<int64_t>{0, 2, 1, 1, 2, 0}));
}

TEST_F(InPlace, CopyOfOwnValuesKeepsThem) {
  const Tensor leaf = normal({4}).detach().set_requires_grad(true);
  Tensor x = square(leaf);
  const auto before = x.to_vector<double>();
  x.copy_(x.detach());
  EXPECT_EQ(x.to_vector<double>(), before);
  EXPECT_EQ(grad({sum(x)}, {leaf})[0].to_vector<double>(), std::vector<double>(4, 0.0));
}

}  // namespace
}  // namespace tern::test
