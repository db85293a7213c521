// Every op on the CUDA device against the same op on the CPU, forwards and backwards.

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/kernels/cuda/cudnn/recurrent.h"
#include "tern/nn/key_value_cache.h"
#include "tern/tests/cuda/device_test.h"
#include "tern/tests/kernels/contracts/pointwise.h"

namespace tern {
namespace {

class Parity : public DeviceTest {
 protected:
  /// In [low, high).
  Tensor uniform(const Shape& shape, DType dtype, double low, double high) {
    return add(mul(rand(shape, generator), high - low), low).to(dtype);
  }
  Tensor indices(const Shape& shape, int64_t limit) {
    return floor(mul(rand(shape, generator), static_cast<double>(limit))).to(DType::kInt64);
  }
};

const std::vector<DType> kFloats = {float64, float32, bfloat16, float16};

/// The ops of BuiltinOps, with the parameters and ranges of inputs of their contract.
struct PointwiseParity {
  detail::PointwiseOp op;
  double low, high;
  Tensor operator()(const Tensors& in) const {
    const Tensor* addresses[3] = {};
    for (size_t k = 0; k < in.size(); ++k) addresses[k] = &in[k];
    return detail::apply_pointwise(op, {addresses, in.size()});
  }
};
std::vector<PointwiseParity> builtin_ops() {
  std::vector<PointwiseParity> ops;
  kernels::BuiltinOps::for_each([&]<class Op>() {
    const kernels::Case& c = kernels::definitions().at(Op::name);
    ops.push_back({detail::describe_pointwise(kernels::make_op<Op>()), c.low, c.high});
  });
  return ops;
}

TEST_F(Parity, BuiltinOps) {
  for (const PointwiseParity& p : builtin_ops())
    for (const DType dtype : kFloats) {
      const auto input = [&](const Shape& shape) { return uniform(shape, dtype, p.low, p.high); };
      const std::string name = std::string(p.op.name) + " " + name_of(dtype);
      if (p.op.arity == 1)
        for (const Shape& shape : {Shape{7}, Shape{3, 37}, Shape{0}, Shape{}}) expect_parity(name, {input(shape)}, p);
      if (p.op.arity == 3) expect_parity(name, {input({5, 9}), input({5, 9}), input({9})}, p);
      if (p.op.arity != 2) continue;
      for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{5, 17}, {5, 17}},
                                                                     {{5, 17}, {17}},
                                                                     {{5, 1}, {1, 33}},
                                                                     {{4, 3, 9}, {3, 1}},
                                                                     {{}, {13}},
                                                                     {{0, 3}, {3}}}) {
        const Tensor x = input(a), y = input(b);
        expect_parity(name, {x, y}, p);
        if (a.dims() == 2)
          expect_parity(name + " transposed", {x, y}, [&](const Tensors& in) {
            return p({in[0].t(), in[1].dim() == 2 ? in[1].t() : in[1].unsqueeze(1)});
          });
      }
    }
}

TEST_F(Parity, PointwiseOpsInARow) {
  const std::vector<std::tuple<const char*, std::function<Tensor(const Tensor&)>, double, double>> ops = {
      {"isnan", [](const Tensor& x) { return isnan(log(x)); }, -1, 1},
      {"isfinite", [](const Tensor& x) { return isfinite(reciprocal(floor(x))); }, -1, 2},
      {"logical_not", [](const Tensor& x) { return logical_not(floor(x)); }, -1, 2},
      {"to float32", [](const Tensor& x) { return x.to(float32); }, -3, 3},
      {"to int32", [](const Tensor& x) { return x.to(int32); }, -300, 300},
      {"to uint8", [](const Tensor& x) { return x.to(uint8); }, 0, 255},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.2); }, -3, 3},
      {"clamp", [](const Tensor& x) { return clamp(x, -1, 0.5); }, -3, 3},
      {"elu", [](const Tensor& x) { return elu(x, 0.7); }, -3, 3},
      {"celu", [](const Tensor& x) { return celu(x, 0.7); }, -3, 3},
      {"polygamma", [](const Tensor& x) { return polygamma(1, x) + erfc(x); }, 0.5, 3},
      {"bessel", [](const Tensor& x) { return i0(x) + i0e(x) * i1(x) + i1e(x); }, -3, 3},
      {"erfcx", [](const Tensor& x) { return erfcx(x) + log_ndtr(x); }, -2, 3},
      {"igamma", [](const Tensor& x) { return igamma(x.detach(), x) - igammac(x.detach() * 2.0, x); }, 0.5, 3},
      {"hardshrink", [](const Tensor& x) { return hardshrink(x, 0.2); }, -3, 3},
      {"above a number", [](const Tensor& x) { return x >= 0.3; }, -1, 1},
      {"fmod by a number", [](const Tensor& x) { return fmod(x, 0.7); }, -3, 3},
      {"pow", [](const Tensor& x) { return pow(x, 2.5); }, 0.1, 3},
      {"add a number", [](const Tensor& x) { return 1.5 - x / 3.0; }, -3, 3},
  };
  for (const DType dtype : kFloats)
    for (const auto& [name, op, low, high] : ops)
      for (const Shape& shape : {Shape{7}, Shape{3, 37}, Shape{0}, Shape{}})
        expect_parity(std::string(name) + " " + name_of(dtype), {uniform(shape, dtype, low, high)},
                      [op = op](const Tensors& in) { return op(in[0]); });
  expect_parity("where", {uniform({5, 9}, float32, -1, 1), normal({5, 9}, float32), normal({9}, float32)},
                [](const Tensors& in) { return where(gt(in[0].detach(), mul(in[0].detach(), 0.0)), in[1], in[2]); });
}

TEST_F(Parity, IntegersAndPromotion) {
  for (const DType dtype : {int64, int32, uint8, boolean}) {
    const Tensor a = indices({6, 11}, 90).to(dtype),
                 b = add(indices({11}, 90), full({}, 1, {.dtype = int64})).to(dtype);
    for (const auto& [name, op] :
         std::vector<std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)>>{{"add", add},
                                                                                       {"mul", mul},
                                                                                       {"div", div},
                                                                                       {"maximum", maximum},
                                                                                       {"eq", eq},
                                                                                       {"lt", lt},
                                                                                       {"bitwise_and", bitwise_and},
                                                                                       {"bitwise_xor", bitwise_xor}})
      expect_parity(std::string(name) + " " + name_of(dtype), {a, b},
                    [op = op](const Tensors& in) { return op(in[0], in[1]); });
    if (dtype != boolean)
      expect_parity("gcd and lcm", {a, b}, [](const Tensors& in) { return gcd(in[0], in[1]) + lcm(in[0], in[1]); });
    if (dtype != boolean)
      expect_parity("shifts", {a, b}, [](const Tensors& in) { return (in[0] << in[1]) | (in[0] >> 2); });
    expect_parity("sum", {a}, [](const Tensors& in) { return sum(in[0], {1}); });
  }
  expect_parity("half with bf16", {normal({7}, float16), normal({7}, bfloat16)},
                [](const Tensors& in) { return add(in[0], in[1]); });
}

TEST_F(Parity, NumbersOnTheHostEnter) {
  const Tensor x = normal({4, 5}, float32), number = full({}, 2.5);
  const Tensor y = mul(number, x.to(kCuda));
  expect_same(mul(number, x), y, 1e-6, "mul");
  Tensor z = x.to(kCuda).clone();
  z.add_(number).mul_(0.5);
  expect_same(mul(add(x, number), 0.5), z, 1e-6, "in place");
  EXPECT_THROW(add(x, x.to(kCuda)), Error);
}

TEST_F(Parity, Reductions) {
  for (const DType dtype : kFloats)
    for (const auto& [shape, dims] : std::vector<std::pair<Shape, std::vector<int>>>{
             {{37}, {}}, {{5, 70}, {1}}, {{5, 70}, {0}}, {{3, 9, 17}, {0, 2}}, {{3, 9, 17}, {1}}, {{1, 1}, {}}}) {
      const Tensor x = normal(shape, dtype);
      using Function = Tensor (*)(const Tensor&, const std::vector<int>&, bool);
      for (const auto& [name, op] :
           std::vector<std::pair<const char*, Function>>{{"sum", sum}, {"mean", mean}, {"max", max}, {"min", min}})
        expect_parity(std::string(name) + " " + name_of(dtype), {x}, 4,
                      [op = op, &dims = dims](const Tensors& in) { return op(in[0], dims, false); });
      expect_parity("argmax", {x}, [](const Tensors& in) { return argmax(in[0]); });
      expect_parity("argmin", {x}, [](const Tensors& in) { return argmin(in[0], 0); });
      expect_parity("norm", {x}, 4, [](const Tensors& in) { return norm(in[0]); });
      expect_parity("all", {x}, [](const Tensors& in) { return all(gt(in[0], mul(in[0], 2.0))); });
    }
}

TEST_F(Parity, SoftmaxAndLoss) {
  for (const DType dtype : kFloats) {
    for (const Shape& shape : {Shape{9, 5}, Shape{3, 1000}, Shape{2, 3, 33}, Shape{0, 4}}) {
      const Tensor x = mul(normal(shape, dtype), 3.0);
      expect_parity("softmax", {x}, 2, [](const Tensors& in) { return softmax(in[0]); });
      expect_parity("log_softmax", {x}, 2, [](const Tensors& in) { return log_softmax(in[0]); });
      expect_parity("softmax of the first", {x}, 2, [](const Tensors& in) { return softmax(in[0], 0); });
    }
    for (const int64_t classes : {2, 10, 3001}) {
      const Tensor logits = mul(normal({21, classes}, dtype), 2.0);
      Tensor targets = indices({21}, classes);
      targets.slice(0, 3, 5).fill_(-100);
      for (const auto reduction : {LossReduction::kMean, LossReduction::kSum, LossReduction::kNone})
        for (const double smoothing : {0.0, 0.1})
          expect_parity("cross_entropy", {logits, targets, uniform({21}, float32, 0.5, 2)}, [&](const Tensors& in) {
            return cross_entropy(in[0], in[1],
                                 {.label_smoothing = smoothing, .reduction = reduction, .row_weights = in[2].detach()});
          });
    }
    expect_parity("mse_loss", {normal({5, 7}, dtype), normal({5, 7}, dtype)}, 4,
                  [](const Tensors& in) { return mse_loss(in[0], in[1]); });
  }
}

TEST_F(Parity, MarginLossesAndCtc) {
  for (const DType dtype : kFloats) {
    for (const int p : {1, 2})
      expect_parity("multi_margin_loss", {normal({9, 5}, dtype), indices({9}, 5)}, 4,
                    [&](const Tensors& in) { return multi_margin_loss(in[0], in[1], {.p = p}); });
    expect_parity("multilabel_margin_loss", {normal({9, 5}, dtype), sub(indices({9, 5}, 6), 1.0)}, 4,
                  [](const Tensors& in) { return multilabel_margin_loss(in[0], in[1]); });
    expect_parity("multilabel_soft_margin_loss", {normal({9, 5}, dtype), indices({9, 5}, 2)}, 4,
                  [](const Tensors& in) { return multilabel_soft_margin_loss(in[0], in[1]); });
    const Tensor lengths = from_vector<int64_t>({20, 15, 9, 20}, {4}), counts = from_vector<int64_t>({6, 4, 0, 9}, {4});
    for (const auto reduction : {LossReduction::kMean, LossReduction::kNone})
      expect_parity("ctc_loss", {normal({20, 4, 7}, dtype), add(indices({4, 9}, 6), 1.0), lengths, counts}, 20,
                    [&](const Tensors& in) {
                      return ctc_loss(log_softmax(in[0]), in[1], in[2], in[3],
                                      {.reduction = reduction, .zero_infinity = true});
                    });
  }
}

TEST_F(Parity, NormsAndDropout) {
  const Tensor keys = indices({13}, 1 << 20);
  for (const DType dtype : kFloats)
    for (const int64_t width : {1, 33, 128, 768}) {
      const Tensor x = normal({13, width}, dtype), residual = normal({13, width}, dtype);
      const Tensor gamma = uniform({width}, float32, 0.5, 1.5).to(dtype == float64 ? float64 : float32);
      const Tensor beta = normal({width}, float32).to(gamma.dtype());
      // One column normalises to rounding noise.
      if (width > 1)
        expect_parity("layer_norm", {x, gamma, beta}, 10,
                      [](const Tensors& in) { return layer_norm(in[0], in[1], in[2]); });
      expect_parity("rms_norm", {x, gamma}, 10, [](const Tensors& in) { return rms_norm(in[0], in[1]); });
      for (const bool keyed : {false, true}) {
        const auto options = [&](Generator& draws, const Tensor& row_keys) {
          return DropoutOptions{.p = 0.3, .generator = &draws, .row_keys = keyed ? row_keys : Tensor()};
        };
        expect_parity("dropout", {x, keys}, [&](const Tensors& in) {
          Generator draws(fresh_seed() + 1);
          return dropout(in[0], options(draws, in[1]));
        });
        if (width == 1) continue;
        expect_parity("dropout_residual_layer_norm", {x, residual, gamma, beta, keys}, 10, [&](const Tensors& in) {
          Generator draws(fresh_seed() + 2);
          return dropout_residual_layer_norm(in[0], in[1], in[2], in[3], 1e-5, options(draws, in[4]));
        });
        expect_parity("dropout_residual_sum_layer_norm", {x, residual, gamma, beta, keys}, 10, [&](const Tensors& in) {
          Generator draws(fresh_seed() + 2);
          const SumAndNorm both =
              dropout_residual_sum_layer_norm(in[0], in[1], in[2], in[3], 1e-5, options(draws, in[4]));
          return cat({both.sum, both.norm}, 1);
        });
      }
    }
}

/// By cuDNN and by Tern's kernels.
TEST_F(Parity, RecurrentLayers) {
  const bool before = kernels::cuda::cudnn_recurrent();
  for (const bool library : {true, false}) {
    kernels::cuda::set_cudnn_recurrent(library);
    for (const DType dtype : kFloats)
      for (const auto& [kind, gates] : {std::pair(RecurrentKind::kLstm, 4), std::pair(RecurrentKind::kGru, 3)})
        for (const bool reverse : {false, true})
          expect_parity("recurrent",
                        {normal({9, 5}, dtype), normal({gates * 6, 5}, dtype), normal({gates * 6, 6}, dtype),
                         normal({gates * 6}, dtype), normal({3, 6}, dtype)},
                        16, [kind = kind, reverse](const Tensors& in) {
                          const auto layout = RecurrentLayout::packed({2, 4, 3}, in[0].device());
                          return recurrent(kind, in[0], layout, {in[1], in[2], in[3]}, in[4], {}, reverse).output;
                        });
  }
  kernels::cuda::set_cudnn_recurrent(before);
}

TEST_F(Parity, Products) {
  for (const DType dtype : kFloats) {
    for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{5, 7}, {7, 3}},
                                                                   {{33}, {33, 9}},
                                                                   {{9, 33}, {33}},
                                                                   {{4, 5, 6}, {6, 8}},
                                                                   {{3, 1, 5, 6}, {2, 6, 4}},
                                                                   {{0, 5}, {5, 3}},
                                                                   {{3, 0}, {0, 4}}}) {
      expect_parity("matmul", {normal(a, dtype), normal(b, dtype)}, 4,
                    [](const Tensors& in) { return matmul(in[0], in[1]); });
      if (a.dims() == 2 && b.dims() == 2)
        expect_parity("matmul transposed", {normal({a[1], a[0]}, dtype), normal({b[1], b[0]}, dtype)}, 4,
                      [](const Tensors& in) { return matmul(in[0].t(), in[1].t()); });
    }
    for (const Activation activation : {Activation::kNone, Activation::kGelu, Activation::kRelu})
      for (const bool bias : {true, false})
        expect_parity("linear",
                      {normal({3, 11, 24}, dtype), normal({17, 24}, dtype), bias ? normal({17}, dtype) : Tensor()}, 4,
                      [&](const Tensors& in) { return linear(in[0], in[1], in[2], activation); });
    expect_parity("row_chain",
                  {normal({3, 11, 24}, dtype), normal({40, 24}, dtype), normal({41}, dtype), normal({17, 40}, dtype),
                   normal({18}, dtype)},
                  4, [](const Tensors& in) {
                    const NoGrad off;  // the biases lie where cuBLASLt does not take them: each product makes a copy
                    RowChain chain(in[0]);
                    chain.linear(in[1], in[2].slice(0, 1, 41), Activation::kGelu);
                    chain.linear(in[3], in[4].slice(0, 1, 18));
                    return chain.result();
                  });
  }
}

TEST_F(Parity, Indexing) {
  for (const DType dtype : kFloats) {
    const Tensor ids = indices({4, 19}, 50);
    expect_parity("embedding", {normal({50, 24}, dtype), ids},
                  [](const Tensors& in) { return embedding(in[0], in[1], 3); });
    expect_parity("embedding int32", {normal({50, 7}, dtype), ids.to(int32)},
                  [](const Tensors& in) { return embedding(in[0], in[1]); });
    for (const bool interleaved : {false, true})
      expect_parity("rotary", {normal({19, 6, 24}, dtype), indices({19}, 5000)}, [&](const Tensors& in) {
        return rotary(in[0].slice(1, 0, 5), in[1], {.rotary_dim = 16, .interleaved = interleaved});
      });
    expect_parity("index_select", {normal({6, 50, 3}, dtype), indices({9}, 50)},
                  [](const Tensors& in) { return index_select(in[0], 1, in[1]); });
    expect_parity("gather", {normal({6, 50}, dtype), indices({6, 9}, 50)},
                  [](const Tensors& in) { return gather(in[0], 1, in[1]); });
    expect_parity("cat", {normal({2, 5}, dtype), normal({2, 1}, dtype), normal({2, 7}, dtype)}, [](const Tensors& in) {
      return cat({in[0], in[1], in[2]}, 1);
    });
    expect_parity("stack", {normal({2, 5}, dtype), normal({2, 5}, dtype)}, [](const Tensors& in) {
      return stack({in[0], in[1]}, 1);
    });
    expect_parity("slices", {normal({9, 12}, dtype)}, [](const Tensors& in) {
      return in[0].slice(1, 1, 11, 3).t().contiguous().reshape({-1}).unsqueeze(0).expand({3, 36}).clone();
    });
  }
}

TEST_F(Parity, SortingSelectingAndRunningSums) {
  const auto check = [&](const Tensor& x) {
    const std::string dtype = name_of(x.dtype());
    for (const bool flag : {false, true})
      for (int d = 0; d < x.dim(); ++d) {
        const int64_t k = (x.size(d) + 1) / 2;
        const std::vector<std::pair<const char*, Op>> ops = {
            {"sort ", [&](const Tensors& in) { return sort(in[0], d, flag).values; }},
            {"sort's indices ", [&](const Tensors& in) { return sort(in[0], d, flag).indices; }},
            {"argsort ", [&](const Tensors& in) { return argsort(in[0], d, flag); }},
            {"topk ", [&](const Tensors& in) { return topk(in[0], k, d, flag).values; }},
            {"topk's indices ", [&](const Tensors& in) { return topk(in[0], k, d, true, flag).indices; }},
            {"topk, unsorted ", [&](const Tensors& in) { return topk(in[0], k, d, flag, false).values; }},
            {"cumsum ", [&](const Tensors& in) { return cumsum(in[0], d); }}};
        for (const auto& [name, op] : ops) expect_parity(name + dtype, {x}, op);
      }
    expect_parity("nonzero " + dtype, {x}, [](const Tensors& in) { return nonzero(in[0]); });
    expect_parity("masked_select " + dtype, {x, gt(x, zeros_like(x))},
                  [](const Tensors& in) { return masked_select(in[0], in[1]); });
    if (x.dim() > 1)
      expect_parity("masked_select, broadcast " + dtype, {x, gt(x, zeros_like(x)).select(0, 0)},
                    [](const Tensors& in) { return masked_select(in[0], in[1]); });
  };
  for (const Shape& shape : {Shape{1}, Shape{600}, Shape{5, 33}, Shape{2, 3, 4}}) {
    for (const DType dtype : kFloats) check(floor(mul(normal(shape, dtype), 4.0)));  // with ties
    for (const DType dtype : {int64, int32, uint8, boolean}) check(indices(shape, 9).to(dtype));
  }
  Tensor x = normal({3, 50}, float32);
  x.select(0, 1).slice(0, 7, 30, 5).fill_(NAN);
  expect_parity("sort NaN", {x}, [](const Tensors& in) { return sort(in[0], 1).values; });
  expect_parity("topk NaN", {x}, [](const Tensors& in) { return topk(in[0], 9).values; });
  expect_parity("cumsum NaN", {x}, [](const Tensors& in) { return cumsum(in[0], 1).detach(); });
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}}) {
    expect_parity("sort nothing", {zeros(shape)}, [](const Tensors& in) { return sort(in[0]).values; });
    expect_parity("cumsum of nothing", {zeros(shape)}, [](const Tensors& in) { return cumsum(in[0], 0); });
    expect_parity("nonzero of nothing", {zeros(shape)}, [](const Tensors& in) { return nonzero(in[0]); });
  }
}

TEST_F(Parity, OpsThatFollowFromOthers) {
  for (const DType dtype : kFloats)
    for (const Shape& shape : {Shape{5, 33}, Shape{1, 7}, Shape{4, 1}, Shape{0, 3}}) {
      const Tensor x = normal(shape, dtype), holes = where(gt(x, zeros_like(x)), x, full_like(x, NAN));
      for (const int d : {0, 1}) {
        expect_parity("cumprod", {x}, 8, [&](const Tensors& in) { return cumprod(in[0], d); });
        expect_parity("logcumsumexp", {x}, 8, [&](const Tensors& in) { return logcumsumexp(in[0], d); });
        expect_parity("cummax", {x}, [&](const Tensors& in) { return cummax(in[0], d).values; });
        expect_parity("cummin's indices", {x}, [&](const Tensors& in) { return cummin(in[0], d).indices; });
        expect_parity("nansum", {holes}, 4, [&](const Tensors& in) { return nansum(in[0], {d}).detach(); });
        expect_parity("trapezoid", {x}, 8, [&](const Tensors& in) { return trapezoid(in[0], 0.3, d); });
        if (x.size(d) == 0) continue;
        expect_parity("mode", {floor(x)}, [&](const Tensors& in) { return mode(in[0], d).values; });
        expect_parity("nanquantile", {holes}, 4,
                      [&](const Tensors& in) { return nanquantile(in[0], 0.4, d).detach(); });
      }
      expect_parity("unique slices", {floor(x)}, [](const Tensors& in) { return unique(in[0], 0).inverse; });
      expect_parity("cdist", {x, normal(shape, dtype)}, 8, [](const Tensors& in) { return cdist(in[0], in[1], 3); });
      expect_parity("cov", {x}, 8, [](const Tensors& in) { return cov(in[0], 0); });
      expect_parity("block_diag", {x, x}, [](const Tensors& in) { return block_diag({in[0], in[1]}); });
    }
}

TEST_F(Parity, Attention) {
  const std::vector<int64_t> lengths = {5, 0, 33, 1, 64};
  const int64_t tokens = 103;
  for (const DType dtype : kFloats)
    for (const int64_t head_dim : {32, 64, 40})
      for (const bool causal : {false, true})
        for (const double p : {0.0, 0.2}) {
          const Tensor qkv = normal({tokens, 3, 2, head_dim}, dtype);
          expect_parity("self_attention", {qkv}, 4, [&](const Tensors& in) {
            Generator draws(fresh_seed() + 3);
            return self_attention(in[0], packed_layout(lengths, in[0].device()),
                                  {.causal = causal, .dropout = p, .generator = &draws});
          });
        }
  // Grouped heads, a window, other lengths of keys, padding.
  Tensor mask = ones({3, 20}, {.dtype = boolean});
  mask.select(0, 1).slice(0, 12).fill_(0);
  for (const DType dtype : kFloats)
    expect_parity("attention",
                  {normal({15, 4, 32}, dtype), normal({60, 2, 32}, dtype), normal({60, 2, 32}, dtype), mask}, 4,
                  [&](const Tensors& in) {
                    return attention(in[0], in[1], in[2], packed_layout({5, 7, 3}, in[0].device()),
                                     padded_layout(3, 20, in[3], in[0].device()), {.window = 9});
                  });
  // All of it at once, and a bias of each head of each sequence.
  for (const DType dtype : kFloats)
    for (const bool causal : {false, true})
      expect_parity(
          "attention with all options",
          {normal({15, 4, 32}, dtype), normal({60, 2, 32}, dtype), normal({60, 2, 32}, dtype), mask,
           normal({3, 4, 7, 20}, dtype)},
          4, [&](const Tensors& in) {
            Generator draws(fresh_seed() + 4);
            return attention(
                in[0], in[1], in[2], packed_layout({5, 7, 3}, in[0].device()),
                padded_layout(3, 20, in[3], in[0].device()),
                {.scale = 0.3, .causal = causal, .window = 9, .dropout = 0.2, .generator = &draws, .bias = in[4]});
          });
  for (const DType dtype : {float32, bfloat16})
    expect_parity("attention with a bias", {normal({40, 3, 2, 32}, dtype), normal({1, 2, 20, 20}, dtype)}, 4,
                  [&](const Tensors& in) {
                    return self_attention(in[0], padded_layout(2, 20, {}, in[0].device()), {.bias = in[1]});
                  });
}

TEST_F(Parity, KeyValueCache) {
  // Sequences of different lengths, more memory at the third step, grouped heads, a window, rotated keys.
  const std::vector<std::vector<int64_t>> steps = {{9, 2, 5}, {1, 1, 1}, {30, 0, 1}, {1, 1, 1}};
  for (const DType dtype : kFloats)
    for (const int64_t window : {-1, 7}) {
      const auto tokens = [&](int64_t heads) { return normal({53, heads, 32}, dtype); };
      expect_parity("key_value_cache", {tokens(4), tokens(2), tokens(2)}, 4, [&](const Tensors& in) {
        const NoGrad off;
        nn::KeyValueCache cache(1, 3, {.device = in[0].device()});
        std::vector<Tensor> parts;
        for (int64_t begin = 0; const std::vector<int64_t>& counts : steps) {
          cache.extend(counts);
          const int64_t end = begin + counts[0] + counts[1] + counts[2];
          const auto part = [&](size_t i) { return in[i].slice(0, begin, end); };
          const Tensor k = rotary(part(1), cache.positions());
          parts.push_back(cache.attention(0, rotary(part(0), cache.positions()), k, part(2), {.window = window}));
          begin = end;
        }
        return cat(parts);
      });
    }
}

TEST_F(Parity, RandomNumbersAreTheSameBits) {
  for (const DType dtype : kFloats) {
    Generator a(fresh_seed()), b(fresh_seed());
    expect_same(rand({1003}, a, {.dtype = dtype}), rand({1003}, b, {.dtype = dtype, .device = kCuda}), 0, "rand");
    expect_same(randn({1003}, a, {.dtype = dtype}), randn({1003}, b, {.dtype = dtype, .device = kCuda}),
                std::max(2e-6, 2 * device_tolerance(dtype)), "randn");
  }
}

/// Every policy of autocast's table in one expression: low, fp32, widest, as is.
TEST_F(Parity, AutocastRegions) {
  for (const DType low : {bfloat16, float16})
    expect_parity("autocast",
                  {uniform({9, 13}, float32, -1, 1), uniform({13, 7}, float32, -1, 1), normal({5, 7}, float32)}, 4,
                  [&](const Tensors& in) {
                    return autocast(in[0].device(), low, [&] {
                      const Tensor y = matmul(tanh(in[0]), in[1]);
                      EXPECT_EQ(y.dtype(), low);
                      const Tensor normed = dropout_residual_layer_norm(y, exp(y), {}, {}, 1e-5);  // fp32 wins
                      EXPECT_EQ(normed.dtype(), float32);
                      return softmax(linear(normed, in[2]), 1);
                    });
                  });
}

/// Backward computes in the types that forward recorded, whatever region it is called in.
TEST_F(Parity, BackwardInAnAutocastRegion) {
  const Tensor x = normal({9, 13}, float32).to(kCuda), w = normal({13, 7}, float32).to(kCuda);
  const auto gradients = [&](DType around_backward) {
    const Tensors leaves = {x.clone().set_requires_grad(true), w.clone().set_requires_grad(true)};
    const Tensor loss = sum(pow(matmul(leaves[0], leaves[1]), 3.0));
    const Autocast region(kCuda, around_backward);
    loss.backward();
    EXPECT_EQ(autocast_active_dtype(kCuda), around_backward);
    return Tensors{leaves[0].grad(), leaves[1].grad()};
  };
  const Tensors expected = gradients(float32);
  for (const DType low : {bfloat16, float16}) {
    const Tensors actual = gradients(low);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(actual[i].to_vector<float>(), expected[i].to_vector<float>()) << low << ", gradient " << i;
  }
}

TEST_F(Parity, SecondDerivatives) {
  const Tensor x = uniform({5, 6}, float64, 0.2, 2), w = normal({6, 4}, float64);
  Tensors results;
  for (const Device device : {cpu, kCuda}) {
    const Tensor a = x.to(device).clone().set_requires_grad(true), b = w.to(device).clone().set_requires_grad(true);
    const Tensor y = sum(tanh(matmul(gelu(a), b)) * matmul(log(a), b));
    const Tensor g = grad({y}, {a}, {.create_graph = true})[0];
    results.push_back(grad({sum(square(g))}, {b})[0]);
  }
  expect_same(results[0], results[1], 1e-11, "second derivative");
}

}  // namespace
}  // namespace tern
