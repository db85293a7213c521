// The operations that summary() counts for modules that compute something besides their children.

#include "tern/core/profiler/profiler.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

/// Applies a layer to x [n, 3] and multiplies the result by a matrix [3, 4], which no child module does.
struct Mixed final : nn::Module {
  explicit Mixed(const nn::Scope& s)
      : Module(s), layer(sub("layer"), 3, 3, {.bias = false}), matrix(this, "matrix", ones({3, 4})) {}
  Tensor forward(const Tensor& x) const {
    const ProfileRange range(name());
    return matmul(layer.forward(x), matrix.tensor());
  }
  nn::Linear layer;
  nn::Buffer matrix;
};

struct Root final : nn::Module {
  explicit Root(const nn::Scope& s) : Module(s), mixed(sub("mixed")), last(sub("last"), 4, 2, {.bias = false}) {}
  Tensor forward(const Tensor& x) const { return last.forward(mixed.forward(x)) + matmul(x, ones({3, 2})); }
  Mixed mixed;
  nn::Linear last;
};

TEST(Summary, CountsAModulesOwnOperations) {
  const nn::Scope scope;
  Root root(scope);
  const std::string text = summary(root, [&] { root.forward(ones({10, 3})); }, {.depth = 2});
  const auto operations_of = [&](const std::string& name) {
    const size_t line = text.find("\n" + name + " "), end = text.find('\n', line + 1);
    return std::stoll(text.substr(text.rfind(' ', end), end));
  };
  EXPECT_EQ(operations_of("    layer"), 2 * 10 * 3 * 3) << text;
  EXPECT_EQ(operations_of("  mixed"), 2 * 10 * 3 * (3 + 4));
  EXPECT_EQ(operations_of("  last"), 2 * 10 * 4 * 2);
  EXPECT_GE(operations_of("(root)"), 2 * 10 * (3 * (3 + 4 + 2) + 4 * 2));  // and the addition
}

}  // namespace
}  // namespace tern::test
