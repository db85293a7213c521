// What anomaly mode says of the place: the module, and the functions of the program that called it.

#include <cmath>

#include "tern/nn/nn.h"
#include "tern/tests/core/core_test.h"

// Outside of the library's namespace, as the functions of a user are, and with names that are in no other place.
__attribute__((noinline)) tern::Tensor root_of_what_the_user_has(const tern::Tensor& x) { return tern::sqrt(x); }
__attribute__((noinline)) tern::Tensor loss_that_the_user_wrote(const tern::nn::Module& net, const tern::Tensor& x);

namespace {

using namespace tern;

struct Roots final : nn::Module {
  explicit Roots(const nn::Scope& scope) : Module(scope) {}
  Tensor forward(const Tensor& x) const {
    return hooked(x, [](const Tensor& given) { return root_of_what_the_user_has(given); });
  }
};

struct Block final : nn::Module {
  explicit Block(const nn::Scope& scope) : Module(scope), roots(sub("roots")), after(sub("after"), 2, 2) {}
  Tensor forward(const Tensor& x) const { return after.forward(roots.forward(x)); }
  Roots roots;
  nn::Linear after;
};

struct Net final : nn::Module {
  explicit Net(const nn::Scope& scope) : Module(scope), block(sub("block")) {}
  Block block;
};

}  // namespace

tern::Tensor loss_that_the_user_wrote(const tern::nn::Module& net, const tern::Tensor& x) {
  return tern::sum(static_cast<const Net&>(net).block.forward(x));
}

namespace {

TEST(AnomalyPlace, OfAForward) {
  const Net net{nn::Scope()};
  const Tensor bad = from_vector<float>({-1, 1}, {1, 2});
  const DetectAnomaly on;
  test::expect_error([&] { loss_that_the_user_wrote(net, bad); },
                     {"sqrt made the first NaN", " in block.roots, called from root_of_what_the_user_has",
                      "loss_that_the_user_wrote"});
  test::expect_error([&] { sqrt(bad); }, {"sqrt made the first NaN"});
}

/// The place of the op's forward, also when backward is called elsewhere, and after it.
TEST(AnomalyPlace, OfABackward) {
  const Net net{nn::Scope()};
  const Tensor x = from_vector<float>({0, 1}, {1, 2}).set_requires_grad(true);
  const auto text = [&](bool with_forward) {
    Tensor loss;
    {
      const DetectAnomaly on(with_forward ? Anomaly::kNonFinite : Anomaly::kOff);
      loss = loss_that_the_user_wrote(net, x);
    }
    const DetectAnomaly on(Anomaly::kNonFinite);
    return test::error_of([&] { loss.backward(); });
  };
  test::expect_contains(text(true), {"the backward of sqrt made the first non-finite value",
                                     "the op was computed in "
                                     "block.roots, called from root_of_what_the_user_has",
                                     "loss_that_the_user_wrote"});
  test::expect_contains(text(false), {"the backward of sqrt", "a DetectAnomaly around it, too"});
}

/// After an Error and after a module has returned, ops are outside of it.
TEST(AnomalyPlace, ModulesAreLeft) {
  const Net net{nn::Scope()};
  const Tensor bad = from_vector<float>({-1, 1}, {1, 2});
  const DetectAnomaly on;
  EXPECT_NE(test::error_of([&] { net.block.forward(bad); }).find(" in block.roots"), std::string::npos);
  EXPECT_EQ(test::error_of([&] { sqrt(bad); }).find(" in block"), std::string::npos);
  net.block.forward(ones({1, 2}));
  EXPECT_EQ(test::error_of([&] { sqrt(bad); }).find(" in block"), std::string::npos);
}

}  // namespace
