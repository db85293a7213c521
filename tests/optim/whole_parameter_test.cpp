// Optimizers whose rules need whole parameters, against loops in double and PyTorch: Lamb, Adafactor, Muon; LookAhead.

#include <map>

#include "tern/core/io/safetensors.h"
#include "tern/tests/optim/optim_test.h"
#include "tern/tests/places.h"

namespace tern::test {
namespace {

using Values = std::vector<double>;

/// A matrix [rows, columns] and what a rule keeps of it.
struct Reference {
  int rows = 1, columns = 1;
  Values weight;
  Values first = {}, second = {};
  int count = 0;
  double& at(Values& v, int r, int c) const { return v[static_cast<size_t>(r * columns + c)]; }
};

double length(const Values& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

void lamb_step(Reference& p, const Values& gradient, const optim::LambOptions& o) {
  ++p.count;
  p.first.resize(p.weight.size());
  p.second.resize(p.weight.size());
  Values change(p.weight.size());
  for (size_t i = 0; i < change.size(); ++i) {
    p.first[i] = o.beta1 * p.first[i] + (1 - o.beta1) * gradient[i];
    p.second[i] = o.beta2 * p.second[i] + (1 - o.beta2) * gradient[i] * gradient[i];
    const double mean = p.first[i] / (1 - std::pow(o.beta1, p.count));
    const double root = std::sqrt(p.second[i] / (1 - std::pow(o.beta2, p.count)));
    change[i] = mean / (root + o.eps) + o.weight_decay * p.weight[i];
  }
  const bool adapts = (o.weight_decay != 0 || o.always_adapt) && length(p.weight) > 0 && length(change) > 0;
  const double ratio = adapts ? length(p.weight) / length(change) : 1;
  for (size_t i = 0; i < change.size(); ++i) p.weight[i] -= o.lr * ratio * change[i];
}

/// rows == 1 stands for a vector, which is not factored.
void adafactor_step(Reference& p, const Values& gradient, const optim::AdafactorOptions& o) {
  ++p.count;
  const double share = std::pow(p.count, o.beta2_decay), elements = static_cast<double>(p.weight.size());
  const double rate = std::max(o.eps2, length(p.weight) / std::sqrt(elements)) *
                      std::min(o.lr, 1 / std::sqrt(static_cast<double>(p.count)));
  const double smallest = o.eps1 > 0 ? o.eps1 : 0x1p-52;
  Values change(p.weight.size());
  if (p.rows == 1) {
    p.first.resize(p.weight.size());
    for (size_t i = 0; i < change.size(); ++i) {
      p.first[i] += share * (gradient[i] * gradient[i] - p.first[i]);
      change[i] = gradient[i] / std::sqrt(std::max(p.first[i], smallest * smallest));
    }
  } else {
    p.first.resize(static_cast<size_t>(p.rows));
    p.second.resize(static_cast<size_t>(p.columns));
    Values by_row(p.first.size()), by_column(p.second.size());
    for (size_t i = 0; i < change.size(); ++i) {
      by_row[i / by_column.size()] += gradient[i] * gradient[i] / p.columns;
      by_column[i % by_column.size()] += gradient[i] * gradient[i] / p.rows;
    }
    double mean = 0;
    for (size_t r = 0; r < by_row.size(); ++r) mean += (p.first[r] += share * (by_row[r] - p.first[r])) / p.rows;
    for (size_t c = 0; c < by_column.size(); ++c) p.second[c] += share * (by_column[c] - p.second[c]);
    for (size_t i = 0; i < change.size(); ++i) {
      const double estimate = p.first[i / by_column.size()] * p.second[i % by_column.size()] / std::max(mean, smallest);
      change[i] = gradient[i] / std::sqrt(std::max(estimate, smallest * smallest));
    }
  }
  const double divisor = std::max(1.0, length(change) / std::sqrt(elements) / o.d);
  for (size_t i = 0; i < change.size(); ++i)
    p.weight[i] = p.weight[i] * (1 - o.lr * o.weight_decay) - rate / divisor * change[i];
}

/// a b^T, or a b with `plain`, of matrices [rows, inner].
Values product(const Values& a, const Values& b, int rows, int inner, int columns, bool plain) {
  Values result(static_cast<size_t>(rows * columns));
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      for (int k = 0; k < inner; ++k)
        result[static_cast<size_t>(i * columns + j)] +=
            a[static_cast<size_t>(i * inner + k)] * b[static_cast<size_t>(plain ? k * columns + j : j * inner + k)];
  return result;
}

void muon_step(Reference& p, const Values& gradient, const optim::MuonOptions& o) {
  p.first.resize(p.weight.size());
  const int m = std::min(p.rows, p.columns), n = std::max(p.rows, p.columns);
  const bool is_tall = p.rows > p.columns;
  const auto place = [&](size_t i) {  // in the wide matrix
    return is_tall ? i % static_cast<size_t>(m) * static_cast<size_t>(n) + i / static_cast<size_t>(m) : i;
  };
  Values x(p.weight.size());
  for (size_t i = 0; i < x.size(); ++i) {
    p.first[i] = o.momentum * p.first[i] + (1 - o.momentum) * gradient[i];
    x[place(i)] = o.nesterov ? (1 - o.momentum) * gradient[i] + o.momentum * p.first[i] : p.first[i];
  }
  const double norm = std::max(length(x), o.eps);
  for (double& v : x) v /= norm;
  for (int k = 0; k < o.iterations; ++k) {
    const Values gram = product(x, x, m, n, m, false), square = product(gram, gram, m, m, m, true);
    Values mixed(gram.size());
    for (size_t i = 0; i < gram.size(); ++i) mixed[i] = o.b * gram[i] + o.c * square[i];
    const Values more = product(mixed, x, m, m, n, true);
    for (size_t i = 0; i < x.size(); ++i) x[i] = o.a * x[i] + more[i];
  }
  const double ratio = static_cast<double>(p.rows) / p.columns;
  const double factor = o.scale == optim::MuonScale::kOriginal ? std::sqrt(std::max(1.0, ratio)) : 0.2 * std::sqrt(n);
  const double kept = o.fixed_norm ? std::sqrt(p.rows) / length(p.weight) : 1 - o.lr * o.weight_decay;
  for (size_t i = 0; i < x.size(); ++i) p.weight[i] = p.weight[i] * kept - o.lr * factor * x[place(i)];
}

/// Some steps of an optimizer and of its reference on one parameter.
template <class Options>
void follows(const Options& options, void (*reference)(Reference&, const Values&, const Options&), const Shape& shape) {
  for (const DType dtype : {float64, float32}) {
    SCOPED_TRACE(testing::Message() << Options::kName << " " << shape << " " << dtype);
    Tensor weight = leaf(fresh_normal(shape, 1, dtype));
    Reference expected{.rows = shape.dims() > 1 ? static_cast<int>(shape[0]) : 1,
                       .columns = static_cast<int>(shape.dims() > 1 ? shape.numel() / shape[0] : shape[0]),
                       .weight = weight.to_vector<double>()};
    optim::RuleOptimizer<Options> optimizer({{"w", weight}}, options);
    for (uint64_t step = 0; step < 7; ++step) {
      const Tensor gradient = fresh_normal(shape, 10 + step, dtype);
      weight.set_grad(gradient);
      optimizer.step();
      reference(expected, gradient.to_vector<double>(), options);
    }
    EXPECT_LE(relative_error(weight.to_vector<double>(), expected.weight), dtype == float64 ? 1e-12 : 1e-5);
  }
}

TEST(WholeParameters, FollowLoopsInDouble) {
  for (const Shape& shape : {Shape{5}, Shape{3, 7}, Shape{1}}) {
    follows<optim::LambOptions>({.lr = 0.03}, lamb_step, shape);
    follows<optim::LambOptions>({.lr = 0.03, .weight_decay = 0}, lamb_step, shape);
    follows<optim::LambOptions>({.lr = 0.03, .weight_decay = 0, .always_adapt = true}, lamb_step, shape);
  }
  for (const Shape& shape : {Shape{5}, Shape{3, 7}, Shape{8, 2}}) {
    follows<optim::AdafactorOptions>({}, adafactor_step, shape);
    follows<optim::AdafactorOptions>({.lr = 0.3, .beta2_decay = -0.5, .d = 2, .weight_decay = 0.1}, adafactor_step,
                                     shape);
  }
  for (const Shape& shape : {Shape{3, 7}, Shape{8, 3}, Shape{4, 4}}) {
    follows<optim::MuonOptions>({.lr = 0.02}, muon_step, shape);
    follows<optim::MuonOptions>({.lr = 0.02, .weight_decay = 0, .momentum = 0.8, .nesterov = false, .iterations = 3},
                                muon_step, shape);
    follows<optim::MuonOptions>({.lr = 0.02, .scale = optim::MuonScale::kMatchAdamRms}, muon_step, shape);
    follows<optim::MuonOptions>({.lr = 0.2, .fixed_norm = true}, muon_step, shape);
  }
  // Kernels of convolutions are matrices of their first dimension and all others.
  for (const Shape& shape : {Shape{3, 2, 2, 2}, Shape{7, 1, 3}})
    follows<optim::MuonOptions>({.lr = 0.02}, muon_step, shape);
}

/// tests/golden/make_optimizers.py.
TEST(WholeParameters, FollowPyTorch) {
  const StateView golden = load_safetensors(source_dir() + "/tests/golden/whole_optimizers.safetensors").tensors;
  const std::map<std::string, optim::Algorithm> algorithms = {
      {"adafactor", algorithm_of(optim::AdafactorOptions{})},
      {"adafactor_all",
       algorithm_of(optim::AdafactorOptions{
           .lr = 0.3, .beta2_decay = -0.5, .eps1 = 1e-8, .eps2 = 1e-2, .d = 2, .weight_decay = 0.1, .maximize = true})},
      {"muon", algorithm_of(optim::MuonOptions{})},
      {"muon_all", algorithm_of(optim::MuonOptions{.lr = 0.02,
                                                   .weight_decay = 0.05,
                                                   .momentum = 0.8,
                                                   .nesterov = false,
                                                   .a = 3,
                                                   .b = -3.2,
                                                   .c = 1.2,
                                                   .iterations = 3,
                                                   .eps = 1e-6})},
      {"muon_rms", algorithm_of(optim::MuonOptions{.lr = 0.02, .scale = optim::MuonScale::kMatchAdamRms})},
      {"muon_spectral", algorithm_of(optim::MuonOptions{.lr = 0.02, .scale = optim::MuonScale::kSpectral})}};
  int compared = 0;
  for (const std::string shape : {"wide", "tall", "square", "vector", "stack"})
    for (const auto& [name, algorithm] : algorithms)
      for (const DType dtype : {float64, float32}) {
        if (name.starts_with("muon") && find(golden, shape + "/weight").dim() != 2) continue;
        SCOPED_TRACE(testing::Message() << name << " " << shape << " " << dtype);
        const Tensor gradients = find(golden, shape + "/gradients").to(dtype);
        Tensor weight = leaf(find(golden, shape + "/weight").to(dtype));
        optim::Optimizer optimizer(std::vector<optim::ParameterGroup>{{.parameters = {{"w", weight}}}}, algorithm);
        for (int64_t step = 0; step < gradients.size(0); ++step) {
          weight.set_grad(gradients.select(0, step).contiguous());
          optimizer.step();
        }
        EXPECT_LE(relative_error(weight.to_vector<double>(), find(golden, shape + "/" + name).to_vector<double>()),
                  dtype == float64 ? 1e-12 : 2e-5);
        ++compared;
      }
  EXPECT_EQ(compared, 2 * (5 * 2 + 3 * 4));
}

TEST(WholeParameters, ZeroWeightsAndGradientsStayFinite) {
  Tensor weight = leaf(zeros({3, 4}));
  for (const optim::Algorithm& algorithm : {algorithm_of(optim::LambOptions{}), algorithm_of(optim::AdafactorOptions{}),
                                            algorithm_of(optim::MuonOptions{})}) {
    optim::Optimizer optimizer({{.parameters = {{"w", weight}}}}, algorithm);
    weight.set_grad(zeros({3, 4}));
    optimizer.step();
    EXPECT_EQ(weight.to_vector<float>(), std::vector<float>(12, 0.0f)) << algorithm.name;
  }
}

/// Clipping, the loss scale, the sign and groups are those of every optimizer.
TEST(WholeParameters, FactorsOfTheGradients) {
  const Tensor start = fresh_normal({3, 4}, 1), gradient = fresh_normal({3, 4}, 2);
  const double norm = length(gradient.to_vector<double>());
  const auto after = [&](const Tensor& given, const optim::MuonOptions& options, const optim::StepOptions& step) {
    Tensor weight = leaf(start.clone());
    optim::Muon optimizer({{.parameters = {{"w", weight}}, .lr = 0.25, .weight_decay = 0.5}}, options);
    for (int i = 0; i < 2; ++i) {
      weight.set_grad(given * (1.0 + i));
      optimizer.step(step);
    }
    return weight.to_vector<double>();
  };
  const Values expected = after(gradient, {.lr = 0.25, .weight_decay = 0.5, .eps = norm}, {});
  const Tensor inverse = tensor({0.125});
  EXPECT_LE(relative_error(after(gradient * 8.0, {.eps = norm}, {.inverse_scale = inverse}), expected), 1e-6);
  EXPECT_LE(relative_error(after(neg(gradient), {.eps = norm, .maximize = true}, {}), expected), 1e-6);
  const Values clipped = after(gradient, {.eps = norm}, {.max_norm = norm / 2});
  Tensor weight = leaf(start.clone());
  optim::Muon by_hand({{"w", weight}}, {.lr = 0.25, .weight_decay = 0.5, .eps = norm});
  for (int i = 0; i < 2; ++i) {
    weight.set_grad(gradient * 0.5);
    by_hand.step();
  }
  EXPECT_LE(relative_error(clipped, weight.to_vector<double>()), 1e-5);
  const Values scaled = after(gradient * 8.0, {.eps = norm}, {.max_norm = norm / 2, .inverse_scale = inverse});
  EXPECT_LE(relative_error(scaled, clipped), 1e-6);
}

TEST(WholeParameters, ASkippedStepChangesNothing) {
  for (const optim::Algorithm& algorithm : {algorithm_of(optim::LambOptions{}), algorithm_of(optim::AdafactorOptions{}),
                                            algorithm_of(optim::MuonOptions{})}) {
    SCOPED_TRACE(algorithm.name);
    Tensor weight = leaf(fresh_normal({3, 4}, 1));
    optim::Optimizer optimizer({{.parameters = {{"w", weight}}}}, algorithm);
    uint64_t salt = 2;
    for (const bool bad : {false, true, false}) {
      const Values before = weight.to_vector<double>();
      std::vector<Values> state;
      for (const NamedTensor& entry : optimizer.state_dict()) state.push_back(entry.tensor.to_vector<double>());
      Tensor gradient = fresh_normal({3, 4}, salt++);
      if (bad) gradient.data<float>()[11] = NAN;
      weight.set_grad(gradient);
      EXPECT_EQ(optimizer.step({.max_norm = 1, .skip_non_finite = true}).skipped(), bad);
      size_t i = 0;
      for (const NamedTensor& entry : optimizer.state_dict())
        EXPECT_EQ(entry.tensor.to_vector<double>() == state[i++], bad) << entry.name;
      EXPECT_EQ(weight.to_vector<double>() == before, bad);
    }
  }
}

TEST(WholeParameters, StatesAreSavedAndLoaded) {
  for (const DType dtype : {float32, bfloat16})
    for (const optim::Algorithm& algorithm :
         {algorithm_of(optim::LambOptions{.lr = 0.1}), algorithm_of(optim::AdafactorOptions{.lr = 0.1}),
          algorithm_of(optim::MuonOptions{.lr = 0.1})}) {
      SCOPED_TRACE(testing::Message() << algorithm.name << " " << dtype);
      const bool matrices = std::string(algorithm.name) == "muon";
      const Shape second = matrices ? Shape{2, 3} : Shape{5};
      const auto make = [&](std::vector<Tensor>& weights) {
        weights = {leaf(fresh_normal({3, 4}, 1).to(dtype)), leaf(fresh_normal(second, 2).to(dtype))};
        return std::make_unique<optim::Optimizer>(
            std::vector<optim::ParameterGroup>{{.parameters = {{"a", weights[0]}, {"b", weights[1]}}}}, algorithm);
      };
      const auto step = [&](optim::Optimizer& optimizer, std::vector<Tensor>& weights, uint64_t salt) {
        for (Tensor& weight : weights) weight.set_grad(fresh_normal(weight.shape(), salt).to(dtype));
        optimizer.step();
      };
      std::vector<Tensor> weights, others;
      const auto whole = make(weights), resumed = make(others);
      for (uint64_t salt = 10; salt < 13; ++salt) step(*whole, weights, salt);
      resumed->load_state_dict(whole->state_dict());
      NoGrad off;
      for (size_t i = 0; i < 2; ++i) others[i].detach().copy_(weights[i]);
      const int64_t bytes = whole->state_bytes();
      EXPECT_EQ(bytes, whole->state_bytes_of(weights[0]) + whole->state_bytes_of(weights[1]));
      for (uint64_t salt = 20; salt < 22; ++salt) {
        step(*whole, weights, salt);
        step(*resumed, others, salt);
      }
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(weights[i].to_vector<float>(), others[i].to_vector<float>());
    }
  Tensor matrix = leaf(ones({30, 40}));
  EXPECT_EQ(optim::Adafactor({{"w", matrix}}).state_bytes_of(matrix), 70 * 4);
}

/// Rules that need whole parameters.
std::vector<optim::Algorithm> whole_rules() {
  return {algorithm_of(optim::LambOptions{.lr = 0.1}), algorithm_of(optim::AdafactorOptions{.lr = 0.1}),
          algorithm_of(optim::MuonOptions{.lr = 0.1})};
}

/// Parameters of many shapes in one optimizer, and each in its own: the same bits, with any number of threads.
TEST(WholeParameters, DoNotDependOnOneAnother) {
  for (const optim::Algorithm& algorithm : whole_rules())
    for (const DType dtype : {float32, float64, bfloat16}) {
      SCOPED_TRACE(testing::Message() << algorithm.name << " " << dtype);
      const bool matrices = std::string(algorithm.name) == "muon";
      std::vector<Shape> shapes = {{37, 19}, {3, 5}, {37, 19}, {19, 37}, {64, 65}, {37, 19}, {1, 8}, {0, 4}, {4, 0}};
      if (!matrices) shapes.insert(shapes.end(), {{}, {0}, {1}, {517}, {20001}, {3, 7, 5}, {2, 3, 1, 4}, {2, 0, 3}});
      const auto run = [&](bool together, int threads) {
        kernels::set_num_threads(threads);
        std::vector<NamedTensor> parameters;
        for (size_t i = 0; i < shapes.size(); ++i)
          parameters.push_back({std::to_string(i), leaf(fresh_normal(shapes[i], i).to(dtype))});
        std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
        const auto add = [&](const std::vector<NamedTensor>& of) {
          optimizers.push_back(
              std::make_unique<optim::Optimizer>(std::vector<optim::ParameterGroup>{{.parameters = of}}, algorithm));
        };
        if (together)
          add(parameters);
        else
          for (const NamedTensor& parameter : parameters) add({parameter});
        for (uint64_t step = 0; step < 3; ++step) {
          for (size_t i = 0; i < shapes.size(); ++i)
            parameters[i].tensor.set_grad(fresh_normal(shapes[i], 100 * step + i).to(dtype));
          for (const auto& optimizer : optimizers) optimizer->step();
        }
        std::vector<Values> results;
        for (const NamedTensor& parameter : parameters) results.push_back(parameter.tensor.to_vector<double>());
        for (const auto& optimizer : optimizers)
          for (const NamedTensor& entry : optimizer->state_dict()) results.push_back(entry.tensor.to_vector<double>());
        return results;
      };
      const std::vector<Values> expected = run(true, 1);
      EXPECT_EQ(run(true, 3), expected);
      EXPECT_EQ(run(false, 2), expected);
      for (const Values& values : expected)
        for (const double value : values) ASSERT_TRUE(std::isfinite(value));
    }
  kernels::set_num_threads(2);
}

/// A stack of matrices is updated as loops say: averages of each matrix, one length of all.
TEST(WholeParameters, AdafactorOfThreeDimensions) {
  const Tensor start = fresh_normal({2, 3, 4}, 1, float64), gradient = fresh_normal({2, 3, 4}, 2, float64);
  Tensor weight = leaf(start.clone());
  optim::Adafactor optimizer({{"w", weight}}, {.lr = 0.1});
  weight.set_grad(gradient);
  optimizer.step();
  const Values g = gradient.to_vector<double>(), w = start.to_vector<double>();
  Values change(24), expected(24);
  for (size_t k = 0; k < 2; ++k) {
    double rows[3] = {}, columns[4] = {}, mean = 0;
    for (size_t r = 0; r < 3; ++r)
      for (size_t c = 0; c < 4; ++c) {
        const double square = g[k * 12 + r * 4 + c] * g[k * 12 + r * 4 + c];
        rows[r] += square / 4;
        columns[c] += square / 3;
        mean += square / 12;
      }
    for (size_t i = 0; i < 12; ++i) change[k * 12 + i] = g[k * 12 + i] / std::sqrt(rows[i / 4] * columns[i % 4] / mean);
  }
  const double rate = 0.1 * length(w) / std::sqrt(24) / std::max(1.0, length(change) / std::sqrt(24));
  for (size_t i = 0; i < 24; ++i) expected[i] = w[i] - rate * change[i];
  EXPECT_LE(relative_error(weight.to_vector<double>(), expected), 1e-13);
  const StateView state = optimizer.state_dict();
  ASSERT_EQ(state.size(), 3u);
  EXPECT_EQ(state[1].tensor.shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(state[2].tensor.shape(), (Shape{2, 1, 4}));
}

/// bf16 weights with a compensation go where fp32 weights go; plain ones do not.
TEST(WholeParameters, KahanFollowsFp32) {
  const Tensor start = fresh_normal({16, 24}, 1).to(bfloat16);
  const auto after = [&](const optim::Algorithm& algorithm, DType dtype) {
    Tensor weight = leaf(start.to(dtype));
    optim::Optimizer optimizer({{.parameters = {{"w", weight}}}}, algorithm);
    for (uint64_t step = 0; step < 200; ++step) {
      weight.set_grad(fresh_normal({16, 24}, 10 + step % 7).to(bfloat16).to(dtype));
      optimizer.step();
    }
    Values values = weight.to_vector<double>();
    for (const NamedTensor& entry : optimizer.state_dict())
      if (entry.name == "compensation.w") {
        const Values rest = entry.tensor.to_vector<double>();
        for (size_t i = 0; i < rest.size(); ++i) values[i] += rest[i];
      }
    return values;
  };
  const auto check = [&](auto options, double lr) {
    options.lr = lr;
    const Values full = after(algorithm_of(options), float32);
    options.master_weights = false;
    const double plain = relative_error(after(algorithm_of(options), bfloat16), full);
    options.kahan = true;
    const double kahan = relative_error(after(algorithm_of(options), bfloat16), full);
    EXPECT_LT(kahan, 0.02 * plain) << options.kName;
  };
  check(optim::LambOptions{}, 2e-4);
  check(optim::AdafactorOptions{}, 2e-4);
}

TEST(WholeParameters, Errors) {
  Tensor vector = leaf(ones({3}));
  const std::vector<NamedTensor> p = {{"bias", vector}};
  vector.set_grad(ones({3}));
  optim::Muon muon(p);
  expect_error([&] { muon.step(); }, {"muon: 'bias'", "[3]", "AdamW"});
  expect_error([&] { optim::Muon(p, {.iterations = 0}); }, {"muon: iterations must be in 1 to 100, got 0"});
  expect_error([&] { optim::Muon(p, {.product_dtype = float16}); }, {"product_dtype", "float16"});
  expect_error([&] { optim::Lamb(p, {.beta1 = 1}); }, {"lamb: beta1 must be in [0, 1), got 1"});
  expect_error([&] { optim::Adafactor(p, {.d = 0.5}); }, {"adafactor: d must be", "0.5"});
  expect_error([&] { optim::Adafactor(p, {.beta2_decay = 0.8}); }, {"beta2_decay must be a finite number <= 0"});
}

TEST(LookAhead, FollowsItsFormulaAndResumes) {
  for (const DType dtype : {float32, bfloat16}) {
    SCOPED_TRACE(dtype);
    const Tensor start = fresh_normal({3, 4}, 1).to(dtype);
    Tensor weight = leaf(start.clone()), plain = leaf(start.clone().to(float32));
    const optim::SGDOptions options{.lr = 0.1};
    optim::SGD inner({{"w", weight}}, options), alone({{"w", plain}}, options);
    optim::LookAhead optimizer(inner, {.steps = 3, .alpha = 0.25});
    Values slow = start.to_vector<double>();
    Tensor again = leaf(start.clone());
    optim::SGD again_inner({{"w", again}}, options);
    optim::LookAhead resumed(again_inner, {.steps = 3, .alpha = 0.25});
    for (uint64_t step = 1; step <= 7; ++step) {
      const Tensor gradient = fresh_normal({3, 4}, 10 + step).to(dtype);
      weight.set_grad(gradient);
      plain.set_grad(gradient.to(float32));
      optimizer.step();
      alone.step();
      if (step % 3 == 0) {
        const Values fast = plain.to_vector<double>();
        for (size_t i = 0; i < slow.size(); ++i) slow[i] += 0.25 * (fast[i] - slow[i]);
        NoGrad off;
        plain.detach().copy_(from_vector(slow, {3, 4}));
      }
      EXPECT_LE(relative_error(weight.to_vector<double>(), plain.to_vector<double>()),
                dtype == float32 ? 1e-6 : 0x1p-8);
      if (step > 5) {
        again.set_grad(gradient);
        resumed.step();
        EXPECT_EQ(again.to_vector<float>(), weight.to_vector<float>()) << "resumed, step " << step;
      }
      if (step == 5) {
        resumed.load_state_dict(optimizer.state_dict());
        NoGrad off;
        again.detach().copy_(weight);
      }
    }
    StateView state = optimizer.state_dict();
    state.pop_back();
    expect_error([&] { optimizer.load_state_dict(state); }, {"steps_done"});
    expect_error([&] { optim::LookAhead(inner, {.steps = 0}); }, {"look_ahead: steps must be >= 1, got 0"});
    expect_error([&] { optim::LookAhead(inner, {.alpha = 2}); }, {"look_ahead: alpha must be in [0, 1], got 2"});
  }
}

/// Weight and compensation together follow the formula to 16 bits of mantissa.
TEST(LookAhead, CompensatedWeights) {
  const Tensor start = fresh_normal({5, 3}, 2).to(bfloat16);
  Tensor weight = leaf(start.clone()), plain = leaf(start.to(float32));
  optim::SGD inner({{"w", weight}}, {.lr = 0.01, .master_weights = false, .kahan = true});
  optim::SGD alone({{"w", plain}}, {.lr = 0.01});
  optim::LookAhead optimizer(inner, {.steps = 2, .alpha = 0.25});
  Values slow = start.to_vector<double>();
  for (uint64_t step = 1; step <= 8; ++step) {
    const Tensor gradient = fresh_normal({5, 3}, 20 + step).to(bfloat16);
    weight.set_grad(gradient);
    plain.set_grad(gradient.to(float32));
    optimizer.step();
    alone.step();
    if (step % 2 != 0) continue;
    const Values fast = plain.to_vector<double>();
    for (size_t i = 0; i < slow.size(); ++i) slow[i] += 0.25 * (fast[i] - slow[i]);
    NoGrad off;
    plain.detach().copy_(from_vector(slow, {5, 3}));
  }
  const Tensor sum = weight.detach().to(float32) + find(inner.state_dict(), "compensation.w").to(float32);
  EXPECT_LE(relative_error(sum.to_vector<double>(), slow), 16 * 0x1p-16);
}

TEST(LookAhead, PartsOfWeights) {
  Tensor weight = leaf(fresh_normal({4}, 3)), part = leaf(fresh_normal({2}, 4));
  optim::SGD inner({{"w", part}}, {.lr = 0.1});
  optim::LookAhead whole(inner, {{"w", weight}}, {.steps = 1, .alpha = 0.5});
  const Tensor before = weight.detach().clone();
  NoGrad off;
  weight.detach().add_(ones({4}));  // as an exchange of the parts does
  whole.after_step();
  EXPECT_LE(max(abs(weight.detach() - (before + 0.5))).item<double>(), 1e-6);
  expect_error(
      [&] {
        optim::LookAhead(inner, {{"w", leaf(weight.to(bfloat16))}}, {});
      },
      {"parts of the weight 'w'", "float32 or float64, got bfloat16"});
}

}  // namespace
}  // namespace tern::test
