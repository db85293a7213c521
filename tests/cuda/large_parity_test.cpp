// Shapes of real training, with many tiles, warpgroups and partial sums: 16-bit results against float64 on the CPU. The
// emulated device runs a subset, chosen at random in every run, that still uses every path through the kernels.

#include "tern/core/autograd/autocast.h"
#include "tern/optim/adam.h"
#include "tern/tests/cuda/large_attention.h"
#include "tern/tests/cuda/large_shapes.h"

namespace tern {
namespace {

// --- attention ---

class LargeAttention : public LargeParity {
 protected:
  void check(AttentionCase c) {
    c.fused = c.kv_heads == c.heads && whole_in(0, 1) == 0;
    SCOPED_TRACE(c);
    int64_t tokens = 0;
    for (const int64_t n : c.lengths) tokens += n;
    const int64_t queries = c.first_rows ? static_cast<int64_t>(c.lengths.size()) : tokens;

    std::vector<double> valid(static_cast<size_t>(tokens), 1);
    if (c.masked)
      for (double& v : valid) v = whole_in(0, 3) > 0;
    const Tensor q = normal({queries, c.heads, c.head_dim}, c.dtype), dout = normal(q.shape(), c.dtype);
    const Tensor k = normal({tokens, c.kv_heads, c.head_dim}, c.dtype), v = normal(k.shape(), c.dtype);
    const uint64_t seed = engine();
    const std::array<Bounded, 4> expected =
        attention_reference(c, q.to(float64), k.to(float64), v.to(float64), dout.to(float64), valid, seed);
    SequenceLayout layout = packed_layout(c.query_lengths(), kCuda), keys = packed_layout(c.lengths, kCuda);
    if (c.masked) keys.key_mask = from_vector(valid, {tokens}).to(boolean).to(kCuda);
    Generator draws(seed);
    const AttentionOptions options{.causal = c.causal, .window = c.window, .dropout = c.dropout, .generator = &draws};
    Tensors results;  // out, dq, dk, dv
    const auto backward = [&](const Tensor& out) {
      results.push_back(out.reshape(q.shape()));
      results[0].backward(dout.to(kCuda));
    };
    if (!c.fused) {
      const Tensors leaves = leaves_of({q, k, v});
      backward(attention(leaves[0], leaves[1], leaves[2], layout, keys, options));
      for (const Tensor& x : leaves) results.push_back(x.grad());
    } else if (c.first_rows) {
      const Tensor query = leaf(q), kv = leaf(stack({k, v}, 1));
      backward(cross_attention(query, kv, layout, keys, options));
      results.insert(results.end(), {query.grad(), kv.grad().select(1, 0), kv.grad().select(1, 1)});
    } else {
      const Tensor qkv = leaf(stack({q, k, v}, 1));
      backward(self_attention(qkv, keys, options));
      for (int64_t part = 0; part < 3; ++part) results.push_back(qkv.grad().select(1, part));
    }
    const char* const names[] = {"out", "dq", "dk", "dv"};
    for (size_t i = 0; i < 4; ++i) expect_within(expected[i].value, expected[i].bound, results[i], names[i]);
  }

  /// All lengths; or three in random order, one with a second warpgroup and one with a third tile of keys.
  std::vector<int64_t> lengths() {
    if (kWhole) return {1, 63, 65, 127, 129, 197, 512, 600};
    std::vector<int64_t> some = {one_of<int64_t>({1, 63, 65}), one_of<int64_t>({127, 129}),
                                 one_of<int64_t>({197, 260})};
    std::shuffle(some.begin(), some.end(), engine);
    return some;
  }
};

struct Variant {
  const char* name;
  void (*set)(AttentionCase& c);
};

const Variant kVariants[] = {
    {"plain", [](AttentionCase&) {}},
    {"causal", [](AttentionCase& c) { c.causal = true; }},
    {"window", [](AttentionCase& c) { c.window = 70; }},
    {"grouped", [](AttentionCase& c) { c.heads = 2 * c.kv_heads; }},
    {"mask", [](AttentionCase& c) { c.masked = true; }},
    {"dropout", [](AttentionCase& c) { c.dropout = 0.125; }},       // a multiple of 1 / 65536
    {"first rows", [](AttentionCase& c) { c.first_rows = true; }},  // the last layer of a classifier
};

TEST_F(LargeAttention, EveryVariant) {
  for (const Variant& variant : kVariants)
    for (const DType dtype : kHalves)
      for (const int64_t head_dim : {64, 96, 128}) {
        if (!kWhole && whole_in(0, 2) > 0) continue;  // run a third of them
        AttentionCase c{.dtype = dtype, .head_dim = head_dim};
        variant.set(c);
        c.lengths = lengths();
        check(c);
      }
}

/// Random combinations of variants.
TEST_F(LargeAttention, VariantsTogether) {
  for (int i = 0; i < (kWhole ? 6 : 1); ++i) {
    AttentionCase c{.dtype = one_of(kHalves), .head_dim = one_of<int64_t>({64, 96, 128})};
    for (const Variant& variant : kVariants)
      if (whole_in(0, 1)) variant.set(c);
    if (!kWhole && c.heads > 2) {
      c.heads = 2;
      c.kv_heads = 1;
    }
    if (c.first_rows) {
      c.causal = false;
      c.window = -1;
    }
    if (c.window >= 0) c.window = whole_in(1, 200);
    c.lengths = lengths();
    check(c);
  }
}

// --- products: whole numbers ---

/// One layer of a training step: rows, inputs, outputs. ReLU also replaces GELU, which is not exact.
struct Layer {
  const char* name;
  int64_t rows, in, out;
  bool relu = false;
};

class LargeProducts : public LargeParity {
 protected:
  /// Forward in 16 bits with fp32 weights, whose gradients are fp32, like the bias's. The bias gradient is computed by
  /// the product of the weight gradient or, for frozen weights, by column sums.
  void check(const Layer& layer, DType dtype, Activation activation) {
    SCOPED_TRACE(std::string(layer.name) + " " + name_of(dtype) + (activation == Activation::kRelu ? ", relu" : ""));
    const Tensor x = integers({layer.rows, layer.in}, 2, dtype), w = integers({layer.out, layer.in}, 2, float32);
    const Tensor b = integers({layer.out}, 100, float32), dy = integers({layer.rows, layer.out}, 1, dtype);
    const Tensor x32 = x.to(float32), z = add(matmul(x32, w.t()), b);
    const bool active = activation == Activation::kRelu;
    const Tensor dz = active ? mul(dy.to(float32), gt(z, zeros({})).to(float32)) : dy.to(float32);
    const Tensor value = (active ? relu(z) : z).to(dtype), dx = matmul(dz, w).to(dtype), dw = matmul(dz.t(), x32);
    for (const bool frozen : {false, true}) {
      Tensors leaves = leaves_of({x, w, b});
      leaves[1].set_requires_grad(!frozen);
      const Tensor y = autocast(kCuda, dtype, [&] { return linear(leaves[0], leaves[1], leaves[2], activation); });
      y.backward(dy.to(kCuda));
      expect_equal(value, y, "y");
      expect_equal(dx, leaves[0].grad(), "dx");
      if (!frozen) expect_equal(dw, leaves[1].grad(), "dw");
      expect_equal(sum(dz, {0}), leaves[2].grad(), "db");
    }
  }
  void check_all(const std::vector<Layer>& layers) {
    for (Layer layer : layers)
      for (const DType dtype : kHalves) {
        if (!kWhole) {
          layer.rows = whole_in(1, 200);
          layer.in = 8 * whole_in(1, 20);
          layer.out = std::min<int64_t>(layer.out, whole_in(1, 150));
        }
        check(layer, dtype, Activation::kNone);
        if (layer.relu) check(layer, dtype, Activation::kRelu);
      }
  }
};

TEST_F(LargeProducts, OfDistilBert) {
  check_all({{"query, key, value", 16384, 768, 2304},
             {"attention's projection", 16384, 768, 768},
             {"first feed-forward", 16384, 768, 3072, true},
             {"second feed-forward", 16384, 3072, 768},
             {"last layer's projection", 64, 768, 768},
             {"last layer's first feed-forward", 64, 768, 3072, true},
             {"last layer's second feed-forward", 64, 3072, 768},
             {"pre_classifier", 64, 768, 768, true},
             {"classifier", 64, 768, 2}});
}

TEST_F(LargeProducts, OfViT) {
  check_all({{"patches", 64 * 196, 768, 768},
             {"query, key, value", 64 * 197, 768, 2304},
             {"attention's projection", 64 * 197, 768, 768},
             {"first feed-forward", 64 * 197, 768, 3072, true},
             {"second feed-forward", 64 * 197, 3072, 768},
             {"head", 64, 768, 10}});  // as many rows as in DistilBERT's last layer
}

/// The last layer of a classifier: one query row per sequence, keys and values of all rows, with one weight's rows.
TEST_F(LargeProducts, OfTheLastLayersQueries) {
  for (const DType dtype : kHalves)
    for (const int64_t tokens : {int64_t{16384}, int64_t{64 * 197}}) {
      const int64_t query = size(64, 1, 9), key_value = size(tokens, 1, 200), width = kWhole ? 768 : 8 * whole_in(1, 8);
      SCOPED_TRACE(testing::Message() << dtype << ", " << query << " and " << key_value << " rows of " << width);
      const Tensor inputs[] = {integers({query, width}, 2, dtype), integers({key_value, width}, 2, dtype)};
      const Tensor gradients[] = {integers({query, width}, 1, dtype), integers({key_value, 2 * width}, 1, dtype)};
      const Tensor w = integers({3 * width, width}, 2, float32), b = integers({3 * width}, 100, float32);
      const Tensor x[] = {leaf(inputs[0]), leaf(inputs[1])}, weight = leaf(w), bias = leaf(b);
      const auto [q, kv] = autocast(kCuda, dtype, [&] { return linear_pair(x[0], x[1], weight, bias, width); });
      const Tensor y[] = {q, kv};
      backward({q, kv}, {gradients[0].to(kCuda), gradients[1].to(kCuda)});
      Tensors dw, db;
      for (size_t i = 0; i < 2; ++i) {
        const int64_t begin = i == 0 ? 0 : width, end = i == 0 ? width : 3 * width;
        const Tensor part = w.slice(0, begin, end), dy = gradients[i].to(float32);
        expect_equal(add(matmul(inputs[i].to(float32), part.t()), b.slice(0, begin, end)).to(dtype), y[i], "y");
        expect_equal(matmul(dy, part).to(dtype), x[i].grad(), "dx");
        dw.push_back(matmul(dy.t(), inputs[i].to(float32)));
        db.push_back(sum(dy, {0}));
      }
      expect_equal(cat(dw), weight.grad(), "dw");
      expect_equal(cat(db), bias.grad(), "db");
    }
}

/// The first feed-forward layer with GELU. Pre-activations are multiples of 1/64, exact in float32, and are stored
/// rounded to 16 bits; inputs and gradients are not negative, so that column sums are far from 0.
TEST_F(LargeProducts, WithGelu) {
  for (const DType dtype : kHalves)
    for (const bool frozen : {false, true}) {
      const int64_t rows = size(frozen ? 64 * 197 : 16384, 1, 200), in = kWhole ? 768 : 8 * whole_in(1, 20),
                    out = size(3072, 1, 150);
      SCOPED_TRACE(testing::Message() << dtype << " of " << rows << " x " << in << " to " << out
                                      << (frozen ? ", frozen weight" : ""));
      const Tensor x = abs(integers({rows, in}, 2, dtype)), w = mul(integers({out, in}, 2, float32), 0x1p-6);
      const Tensor b = mul(integers({out}, 64, float32), 0x1p-6), dy = abs(integers({rows, out}, 2, dtype));
      Tensors leaves = leaves_of({x, w, b});
      leaves[1].set_requires_grad(!frozen);
      const Tensor y =
          autocast(kCuda, dtype, [&] { return linear(leaves[0], leaves[1], leaves[2], Activation::kGelu); });
      y.backward(dy.to(kCuda));

      const double u = unit_of(dtype);
      const Tensor z = add(matmul(x.to(float32), w.t()), b).to(dtype).to(float64);
      // exp and erf in float32: errors of a few 2^-24 for results up to 1.
      const Tensor phi = 0.5 * (erf(z * std::sqrt(0.5)) + 1.0), value = z * phi;
      expect_rounded(value, 16 * kSum * abs(z), y, "y");
      const Tensor slope = phi + z * exp(square(z) * -0.5) * (1 / std::sqrt(2 * M_PI));
      const Tensor dz = dy.to(float64) * slope;
      const Tensor exact = 16 * kSum * dy.to(float64) * (abs(z) + 1.0),
                   error = u * abs(dz) + exact + smallest_of(dtype);
      const auto product = [](const Tensor& a, const Tensor& c) {
        return matmul(a.to(float32), c.to(float32)).to(float64);
      };
      const auto of_sums = [&](const Tensor& terms, const Tensor& errors, int64_t count) {
        return (1 + u) * (errors + static_cast<double>(count) * 2 * kSum * (terms + errors));
      };
      const Tensor aw = abs(w);
      expect_rounded(matmul(dz, w.to(float64)), of_sums(product(abs(dz), aw), product(error, aw), out),
                     leaves[0].grad(), "dx");
      const Tensor db = sum(dz, {0});
      expect_within(db, of_sums(sum(abs(dz), {0}), sum(frozen ? exact : error, {0}), rows), leaves[2].grad(), "db");
      if (frozen) continue;
      const Tensor dw = matmul(dz.t(), x.to(float64));
      expect_within(dw, of_sums(product(abs(dz).t(), x), product(error.t(), x), rows), leaves[1].grad(), "dw");
    }
}

// --- norms, softmax, loss ---

class LargeRows : public LargeParity {
 protected:
  /// The norm of x, or of residual + dropout(x) with multiples of 1/16, so that the sum is exact.
  void check_layer_norm(DType dtype, int64_t rows, int64_t cols, bool residual) {
    SCOPED_TRACE(testing::Message() << dtype << " of " << rows << " x " << cols
                                    << (residual ? ", residual and dropout" : ""));
    const Tensor x = residual ? mul(integers({rows, cols}, 32, dtype), 0x1p-4) : normal({rows, cols}, dtype);
    const Tensor other =
        residual ? mul(integers({rows, cols}, 32, dtype), 0x1p-4) : zeros({rows, cols}, {.dtype = dtype});
    const Tensor gamma = add(rand({cols}, generator), 0.5), beta = normal({cols}, float32);
    const Tensor dy = integers({rows, cols}, 2, dtype);
    const uint64_t seed = engine();
    constexpr double kDropout = 0.5, kEps = 1e-5;
    const Tensors leaves = leaves_of({x, gamma, beta, other});
    Generator draws(seed), same_draws(seed);
    const Tensor y = residual ? dropout_residual_layer_norm(leaves[0], leaves[3], leaves[1], leaves[2], kEps,
                                                            {.p = kDropout, .generator = &draws})
                              : layer_norm(leaves[0], leaves[1], leaves[2], kEps);
    y.backward(dy.to(kCuda));
    const Tensor keep =
        residual ? dropout(ones({rows, cols}), {.p = kDropout, .generator = &same_draws}).to(float64) : Tensor();

    const Tensor x64 = residual ? x.to(float64) * keep + other.to(float64) : x.to(float64), g64 = gamma.to(float64);
    const Tensor dy64 = dy.to(float64), centred = x64 - mean(x64, {1}, true);
    const Tensor rstd = rsqrt(mean(square(centred), {1}, true) + kEps), xhat = centred * rstd;
    // Means over a row are sums of at most 32 numbers per thread and a tree over threads.
    constexpr double kMean = 64 * kSum;
    const Tensor size_of_terms = g64 * (abs(xhat) + 1.0) + abs(beta).to(float64);
    expect_rounded(xhat * g64 + beta.to(float64), kMean * size_of_terms, y, "y");

    const Tensor gdy = g64 * dy64, a = mean(gdy, {1}, true), b = mean(gdy * xhat, {1}, true);
    const Tensor dz = rstd * (gdy - a - xhat * b);
    const Tensor terms = rstd * (abs(gdy) + mean(abs(gdy), {1}, true) +
                                 (abs(xhat) + 1.0) * (mean(abs(gdy * xhat), {1}, true) + mean(abs(gdy), {1}, true)));
    const Tensor error = 2 * kMean * terms;
    if (residual) expect_rounded(dz, error, leaves[3].grad(), "dresidual");
    expect_rounded(residual ? dz * keep : dz, residual ? error * keep : error, leaves[0].grad(), "dx");

    // Column sums: at most 64 rows in a run, totals of runs, and totals of blocks. With whole numbers all are exact.
    const double joins = 64 + 64 + static_cast<double>(rows) / 64;
    const Tensor dgamma = sum(dy64 * xhat, {0}), sizes = sum(abs(dy64) * (abs(xhat) + 1.0), {0});
    expect_within(dgamma, (joins * kSum + kMean) * sizes, leaves[1].grad(), "dgamma");
    expect_equal(sum(dy64, {0}).to(float32), leaves[2].grad(), "dbeta");
  }

  /// Scores of all words for each row, and the relative error of a sum of a row's exponentials.
  struct Vocabulary {
    int64_t rows, classes;
    Tensor scores;
    double error;
  };
  Vocabulary vocabulary(int64_t rows, DType dtype) {
    const int64_t classes = kWhole ? 30522 : whole_in(3000, 4000);
    return {rows, classes, mul(normal({rows, classes}, float32), 2.0).to(dtype),
            (64 + static_cast<double>(classes) / 128) * kSum};
  }
};

TEST_F(LargeRows, LayerNorm) {
  for (const DType dtype : kHalves)
    for (const int64_t wide : {768, 1024, 4096})
      for (const bool residual : {false, true}) {
        const int64_t cols = kWhole || wide < 4096 ? size(wide, 64, 200) : whole_in(1025, 1100);
        check_layer_norm(dtype, size(16384, 65, 300), cols, residual);
      }
}

TEST_F(LargeRows, SoftmaxOfAVocabulary) {
  for (const DType dtype : kHalves) {
    const auto [rows, classes, x, e] = vocabulary(size(512, 2, 4), dtype);
    SCOPED_TRACE(testing::Message() << dtype << " of " << rows << " x " << classes);
    const Tensor dy = normal({rows, classes}, dtype), scores = leaf(x), y = softmax(scores);
    y.backward(dy.to(kCuda));

    const double u = unit_of(dtype);
    const Tensor p = softmax(x.to(float64)), dy64 = dy.to(float64);
    const Tensor p_error = (u + e) * p + smallest_of(dtype);
    expect_within(p, p_error, y, "y");
    // From the rounded result.
    const Tensor s = sum(dy64 * p, {1}, true);
    const Tensor s_error = sum(abs(dy64) * p_error, {1}, true) + e * sum(abs(dy64) * p, {1}, true);
    const Tensor dx = p * (dy64 - s);
    const Tensor before =
        p_error * (abs(dy64) + abs(s)) + (p + p_error) * s_error + 4 * kSum * p * (abs(dy64) + abs(s));
    expect_rounded(dx, (1 + u) * before, scores.grad(), "dx");
  }
}

TEST_F(LargeRows, CrossEntropyOfAVocabulary) {
  for (const DType dtype : kHalves) {
    const auto [rows, classes, x, e] = vocabulary(size(1024, 3, 9), dtype);
    SCOPED_TRACE(testing::Message() << dtype << " of " << rows << " x " << classes);
    std::vector<int64_t> targets(static_cast<size_t>(rows));
    std::vector<double> hot(static_cast<size_t>(rows * classes));
    for (int64_t i = 0; i < rows; ++i) {
      targets[static_cast<size_t>(i)] = whole_in(0, classes - 1);
      hot[static_cast<size_t>(i * classes + targets[static_cast<size_t>(i)])] = 1;
    }
    const Tensor target = from_vector(targets, {rows}), one = from_vector(hot, {rows, classes}, {.dtype = float64});
    const Tensor seed = integers({rows}, 8, float32);
    const Tensor scores = leaf(x);
    const Tensor loss = cross_entropy(scores, target.to(kCuda), {.reduction = LossReduction::kNone});
    loss.backward(seed.to(kCuda));

    const Tensor x64 = x.to(float64), p = softmax(x64), chosen = sum(x64 * one, {1});
    const Tensor top = max(x64, {1}), lse = top + log(sum(exp(x64 - top.unsqueeze(1)), {1}));
    expect_within(lse - chosen, e * (abs(lse) + abs(chosen) + abs(top) + 1.0), loss, "loss");
    const Tensor g = seed.to(float64).unsqueeze(1), dx = (p - one) * g;
    // The probability is exp(x - lse), with lse in fp32.
    const Tensor before = abs(g) * (p * (2 * e + (abs(x64) + abs(lse).unsqueeze(1)) * kSum) + 4 * kSum * one);
    expect_rounded(dx, (1 + unit_of(dtype)) * before, scores.grad(), "dx");
  }
}

// --- look-ups, reductions, copies, updates ---

using LargeMemory = LargeParity;

/// One id is a twentieth of all, like a common word: its row's gradient is a sum of many.
TEST_F(LargeMemory, EmbeddingWithACommonId) {
  for (const DType dtype : {float32, bfloat16, float16}) {
    const int64_t ids = size(16384, 500, 900), count = kWhole ? 30522 : 97, width = size(768, 20, 90);
    SCOPED_TRACE(testing::Message() << dtype << ", " << ids << " ids, width " << width);
    const int64_t common = whole_in(0, count - 1);
    std::vector<int64_t> chosen(static_cast<size_t>(ids));
    for (int64_t& id : chosen) id = whole_in(0, 19) == 0 ? common : whole_in(0, count - 1);
    const Tensor weight = normal({count, width}, dtype), dy = integers({ids, width}, 2, dtype);
    const Tensor table = leaf(weight), y = embedding(table, from_vector(chosen, {ids}).to(kCuda));
    y.backward(dy.to(kCuda));

    const std::vector<double> w = weight.to_vector<double>(), d = dy.to_vector<double>();
    std::vector<double> rows(static_cast<size_t>(ids * width)), sums(static_cast<size_t>(count * width));
    for (int64_t i = 0; i < ids; ++i)
      for (int64_t c = 0; c < width; ++c) {
        const auto from = static_cast<size_t>(chosen[static_cast<size_t>(i)] * width + c),
                   to = static_cast<size_t>(i * width + c);
        rows[to] = w[from];
        sums[from] += d[to];
      }
    expect_equal(from_vector(rows, {ids, width}, {.dtype = float64}).to(dtype), y, "y");
    expect_equal(from_vector(sums, {count, width}, {.dtype = float64}).to(dtype), table.grad(), "dweight");
  }
}

TEST_F(LargeMemory, Reductions) {
  for (const DType dtype : {float32, bfloat16, float16}) {
    const int64_t outer = kWhole ? 1 << 17 : whole_in(300, 400), inner = kWhole ? 1 << 10 : whole_in(90, 200);
    SCOPED_TRACE(testing::Message() << dtype << " of " << outer << " x " << inner);
    Tensor x = integers({outer, inner}, 1, dtype);
    const int64_t row = whole_in(0, outer - 1), col = whole_in(0, inner - 1);
    x.select(0, row).slice(0, col, col + 1).fill_(3);
    x.select(0, outer - 1).slice(0, inner - 1).fill_(-2);  // the last element
    const bool replaced = row == outer - 1 && col == inner - 1;
    const Tensor device = x.to(kCuda), x64 = x.to(float64);
    expect_equal(sum(x64).to(dtype), sum(device), "sum");
    expect_equal(sum(x64, {0}).to(dtype), sum(device, {0}), "sum down the columns");
    expect_equal(sum(x64, {1}).to(dtype), sum(device, {1}), "sum along the rows");
    EXPECT_EQ(max(device).item<double>(), replaced ? 1 : 3);
    EXPECT_EQ(min(device).item<double>(), -2);
    if (!replaced) {
      EXPECT_EQ(argmax(device.reshape({-1}), 0).item<int64_t>(), row * inner + col);
    }
    EXPECT_EQ(argmin(device.reshape({-1}), 0).item<int64_t>(), outer * inner - 1);
    expect_equal(max(x64, {0}).to(dtype), max(device, {0}), "max down the columns");
  }
}

/// Offsets beyond 2^31 bytes and 2^31 elements, in both directions of transfer and between strides.
TEST_F(LargeMemory, Copies) {
  const int64_t rows = kWhole ? (int64_t{1} << 16) + 3 : whole_in(200, 300),
                cols = kWhole ? (1 << 15) + 5 : whole_in(100, 200);
  const Tensor row = integers({rows, 1}, 60, float32).to(uint8), col = integers({1, cols}, 60, float32).to(uint8);
  const Tensor x = add(row, col);  // sum of row and column number, which wraps at 256
  const Tensor there = x.to(kCuda);
  ASSERT_TRUE(!kWhole || there.nbytes() > int64_t{1} << 31);
  EXPECT_TRUE(all(eq(there.to(cpu), x)).item<bool>()) << "to the device and back";
  EXPECT_TRUE(all(eq(there.clone().to(cpu), x)).item<bool>()) << "on the device";
  const Tensor turned = there.t().contiguous();
  EXPECT_TRUE(all(eq(turned, add(row.to(kCuda), col.to(kCuda)).t())).item<bool>()) << "between strides, on the device";
  EXPECT_TRUE(all(eq(turned.to(cpu), x.t())).item<bool>()) << "between strides";
  for (int i = 0; i < 8; ++i) {
    const int64_t r = i == 0 ? rows - 1 : whole_in(0, rows - 1), c = i == 0 ? cols - 1 : whole_in(0, cols - 1);
    EXPECT_EQ(there.select(0, r).select(0, c).item<int64_t>(), x.select(0, r).select(0, c).item<int64_t>());
  }
}

/// The large parameters of DistilBERT-base.
std::vector<Shape> parameters_of_distilbert(int64_t words, int64_t width) {
  std::vector<Shape> shapes = {{words, width}, {512, width}};
  for (int layer = 0; layer < 6; ++layer)
    for (const Shape& shape : {Shape{3 * width, width}, Shape{width, width}, Shape{4 * width, width},
                               Shape{width, 4 * width}, Shape{4 * width}, Shape{width}, Shape{width}})
      shapes.push_back(shape);
  return shapes;
}

/// In fp32, as in autocast training, and for bf16 weights with fp32 copies.
TEST_F(LargeMemory, AdamWOfDistilBert) {
  const std::vector<Shape> shapes = parameters_of_distilbert(kWhole ? 30522 : 61, size(768, 20, 50));
  constexpr double kLr = 1e-2, kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8, kDecay = 0.1;
  for (const DType dtype : {float32, bfloat16}) {
    SCOPED_TRACE(dtype);
    std::vector<NamedTensor> parameters;
    Tensors expected, first, second;
    int64_t elements = 0;
    for (const Shape& shape : shapes) {
      const Tensor start = normal(shape, dtype);
      elements += shape.numel();
      parameters.push_back({std::to_string(parameters.size()), leaf(start)});
      expected.push_back(start.to(float64));
      first.push_back(zeros(shape, {.dtype = float64}));
      second.push_back(zeros(shape, {.dtype = float64}));
    }
    ASSERT_TRUE(!kWhole || elements > 66'000'000);
    optim::AdamW optimizer(parameters,
                           {.lr = kLr, .beta1 = kBeta1, .beta2 = kBeta2, .eps = kEps, .weight_decay = kDecay});
    constexpr int kSteps = 2;
    for (int step = 1; step <= kSteps; ++step) {
      for (size_t i = 0; i < shapes.size(); ++i) {
        const Tensor g = normal(shapes[i], dtype);
        parameters[i].tensor.set_grad(g.to(kCuda));
        const Tensor g64 = g.to(float64);
        first[i] = first[i] * kBeta1 + g64 * (1 - kBeta1);
        second[i] = second[i] * kBeta2 + square(g64) * (1 - kBeta2);
        const Tensor m = first[i] / (1 - std::pow(kBeta1, step)), v = second[i] / (1 - std::pow(kBeta2, step));
        expected[i] = expected[i] * (1 - kLr * kDecay) - m / (sqrt(v) + kEps) * kLr;
      }
      optimizer.step();
    }
    // A step rounds the fp32 weight three times, and its update by a few units of the maximum of m: sums of gradients
    // of either sign, at most the largest gradient of all steps. The stored weight is rounded to dtype.
    for (size_t i = 0; i < shapes.size(); ++i) {
      Tensor bound = kSteps * (3 * unit_of(float32) * (abs(expected[i]) + 3 * kLr * 4) +
                               full(shapes[i], kLr * 128 * 0x1p-24, {.dtype = float64}));
      if (dtype != float32) bound = (1 + unit_of(dtype)) * bound + unit_of(dtype) * abs(expected[i]);
      expect_within(expected[i], bound, parameters[i].tensor.detach(), "parameter " + std::to_string(i));
    }
  }
}

}  // namespace
}  // namespace tern
