// The tree of modules: registration, names, state, shared weights, summary.

#include "tern/nn/module.h"

#include <cmath>
#include <optional>

#include "tern/core/ops/ops.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/core/state.h"
#include "tern/tests/errors.h"

namespace tern::test {
namespace {

using Names = std::vector<std::string>;

class Block final : public nn::Module {
 public:
  Block(const nn::Scope& s, int64_t d)
      : Module(s),
        linear_(sub("linear"), d, d),
        positions_(this, "positions", arange(0, 4)),
        scratch_(this, "scratch", zeros({2}), false) {}
  Tensor forward(const Tensor& x) const { return gelu(linear_.forward(x)); }
  nn::Linear linear_;
  nn::Buffer positions_, scratch_;
};

class Net final : public nn::Module {
 public:
  explicit Net(const nn::Scope& s, bool with_scale = true)
      : Module(s), layer_(sub("layer"), 2, 3), head_(sub("head"), 3, 5, {.bias = false}) {
    if (with_scale) scale_.emplace(this, "scale", Shape{3}, nn::init::constant(2));
  }
  Tensor forward(const Tensor& x) const {
    Tensor y = x;
    for (const Block& block : layer_) y = block.forward(y);
    return head_.forward(scale_ ? y * *scale_ : y);
  }
  nn::ModuleList<Block> layer_;
  nn::Linear head_;
  std::optional<Parameter> scale_;
};

class Tied final : public nn::Module {
 public:
  explicit Tied(const nn::Scope& s)
      : Module(s),
        embedding_(sub("embedding"), 7, 3),
        head_(sub("head"), 3, 7, {.weight = share(embedding_.weight())}) {}
  nn::Embedding embedding_;
  nn::Linear head_;
};

/// Equal salts give equal numbers, different salts different ones; every run draws new numbers.
nn::Scope scope(uint64_t salt = 1, DType dtype = float32) {
  return nn::Scope({.dtype = dtype, .generator = fresh_generator(salt)});
}

static_assert(!std::is_copy_constructible_v<Net> && !std::is_move_constructible_v<Net>);
static_assert(!std::is_copy_assignable_v<Parameter> && !std::is_move_assignable_v<Parameter>);

TEST(Module, NamesFollowTheDeclaration) {
  const Net net(scope());
  EXPECT_EQ(names_of(net.parameters()), (Names{"scale", "layer.0.linear.weight", "layer.0.linear.bias",
                                               "layer.1.linear.weight", "layer.1.linear.bias", "head.weight"}));
  EXPECT_EQ(names_of(net.buffers()),
            (Names{"layer.0.positions", "layer.0.scratch", "layer.1.positions", "layer.1.scratch"}));
  EXPECT_EQ(names_of(net.state_dict()),
            (Names{"scale", "layer.0.positions", "layer.0.linear.weight", "layer.0.linear.bias", "layer.1.positions",
                   "layer.1.linear.weight", "layer.1.linear.bias", "head.weight"}));
  EXPECT_EQ(net.num_parameters(), 3 + 2 * (9 + 3) + 15);
}

TEST(Module, NamesAreRelativeToTheGivenModule) {
  const Net net(scope());
  EXPECT_EQ(net.layer_[1].name(), "layer.1");
  EXPECT_EQ(net.layer_[1].local_name(), "1");
  EXPECT_EQ(net.layer_[1].linear_.name(), "layer.1.linear");
  EXPECT_EQ(net.layer_[1].linear_.weight().name(), "layer.1.linear.weight");
  EXPECT_EQ(names_of(net.layer_[1].parameters()), (Names{"linear.weight", "linear.bias"}));
  EXPECT_EQ(net.layer_[1].type_name(), "Block");
  EXPECT_EQ(net.layer_.type_name(), "ModuleList");
  ASSERT_EQ(net.children().size(), 2u);
  EXPECT_EQ(net.children()[1]->type_name(), "Linear");
}

TEST(Module, ScopeDecidesTypeAndSeed) {
  const Net a(scope(5)), b(scope(5)), c(scope(6));
  EXPECT_EQ(values_of(a.head_.state_dict()), values_of(b.head_.state_dict()));
  EXPECT_NE(values_of(a.head_.state_dict()), values_of(c.head_.state_dict()));
  const Net wide(scope(5, float64));
  for (const NamedTensor& parameter : wide.parameters()) EXPECT_EQ(parameter.tensor.dtype(), float64);
  EXPECT_THROW(nn::Scope({.dtype = int64}), Error);
}

TEST(Module, DuplicateAndBadNamesThrow) {
  struct TwoMembers final : nn::Module {
    TwoMembers(const nn::Scope& s, const std::string& first, const std::string& second)
        : Module(s), a_(sub(first), 1, 1), b_(sub(second), 1, 1) {}
    nn::Linear a_, b_;
  };
  struct MixedMembers final : nn::Module {
    explicit MixedMembers(const nn::Scope& s) : Module(s), a_(sub("x"), 1, 1), b_(this, "x", Shape{1}) {}
    nn::Linear a_;
    Parameter b_;
  };
  EXPECT_NO_THROW(TwoMembers(scope(), "a", "b"));
  expect_error([] { TwoMembers(scope(), "a", "a"); }, {"'a'", "already"});
  expect_error([] { TwoMembers(scope(), "a", ""); }, {"''"});
  expect_error([] { TwoMembers(scope(), "a", "b.c"); }, {"'b.c'", "dots"});
  expect_error([] { MixedMembers{scope()}; }, {"'x'", "already"});
}

TEST(Module, OptionalMembersMayComeAndGo) {
  struct Late final : nn::Module {
    explicit Late(const nn::Scope& s) : Module(s) {}
    void add() { linear_.emplace(sub("linear"), 2, 2); }
    std::optional<nn::Linear> linear_;
  };
  Late late(scope());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(late.parameters().empty());
    late.add();
    EXPECT_EQ(late.parameters().size(), 2u);
    late.linear_.reset();
  }
}

TEST(Module, TrainingFlagReachesEveryone) {
  Net net(scope());
  EXPECT_TRUE(net.layer_[1].linear_.is_training());
  net.eval();
  EXPECT_FALSE(net.layer_[1].linear_.is_training());
  net.layer_.train();
  EXPECT_FALSE(net.is_training());
  EXPECT_TRUE(net.layer_[0].is_training());
}

TEST(Module, ZeroGradDropsGradients) {
  Net net(scope());
  sum(net.forward(ones({2, 3}))).backward();
  for (const NamedTensor& parameter : net.parameters()) EXPECT_TRUE(parameter.tensor.grad().defined());
  net.zero_grad();
  for (const NamedTensor& parameter : net.parameters()) EXPECT_FALSE(parameter.tensor.grad().defined());
}

TEST(Module, StateRoundTrip) {
  const Net from(scope(1));
  Net to(scope(2));
  const Tensor head = to.head_.weight();  // an earlier handle stays valid
  to.load_state_dict(from.state_dict());
  const Tensor x = from_vector<float>({1, 2, 3, -1, 0, 0.5f}, {2, 3});
  EXPECT_EQ(to.forward(x).to_vector<float>(), from.forward(x).to_vector<float>());
  EXPECT_EQ(head.to_vector<float>(), from.head_.weight().tensor().to_vector<float>());
  EXPECT_FALSE(same(head, from.head_.weight().tensor()));
  const Net wide(scope(3, float64));
  to.load_state_dict(wide.state_dict());  // converts
  EXPECT_EQ(head.dtype(), float32);
  EXPECT_EQ(head.to_vector<float>(), wide.head_.weight().tensor().to(float32).to_vector<float>());
}

TEST(Module, LoadListsEveryProblemAndWritesNothing) {
  Net net(scope(1));
  StateView state;
  for (const NamedTensor& entry : Net(scope(2)).state_dict()) {
    if (entry.name == "scale" || entry.name == "layer.0.linear.bias") continue;
    const bool reshaped = entry.name == "head.weight" || entry.name == "layer.1.linear.bias";
    state.push_back({entry.name, reshaped ? ones({2, 2}) : entry.tensor});
  }
  state.push_back({"surprise", ones({1})});
  state.push_back({"layer.2.linear.weight", ones({1})});
  state.push_back({"layer.0.scratch", zeros({2})});  // not persistent, so unexpected

  const auto before = values_of(net.state_dict());
  expect_error([&] { net.load_state_dict(state); },
               {"scale", "layer.0.linear.bias", "head.weight", "layer.1.linear.bias", "surprise",
                "layer.2.linear.weight", "layer.0.scratch", "[2, 2]", "[5, 3]"});
  expect_error([&] { net.load_state_dict(state, {.strict = false}); }, {"head.weight"});
  EXPECT_EQ(values_of(net.state_dict()), before);
}

TEST(Module, NotStrictTakesWhatIsThere) {
  Net net(scope(1));
  net.load_state_dict({{"scale", full({3}, 7)}, {"other", ones({1})}}, {.strict = false});
  EXPECT_EQ(net.scale_->tensor().to_vector<float>(), (std::vector<float>{7, 7, 7}));
}

TEST(Module, TiedWeightsAreOneEntryUnderEitherName) {
  const Tied tied(scope(1));
  EXPECT_TRUE(tied.head_.weight().is_shared());
  EXPECT_TRUE(same(tied.head_.weight().tensor(), tied.embedding_.weight().tensor()));
  EXPECT_EQ(names_of(tied.parameters()), (Names{"embedding.weight", "head.bias"}));
  EXPECT_EQ(names_of(tied.state_dict()), (Names{"embedding.weight", "head.bias"}));
  EXPECT_EQ(tied.num_parameters(), 28);
  EXPECT_EQ(names_of(tied.head_.state_dict()), (Names{"weight", "bias"}));

  for (const std::string name : {"embedding.weight", "head.weight"}) {
    Tied to(scope(2));
    to.load_state_dict({{name, full({7, 3}, 4)}, {"head.bias", ones({7})}});
    EXPECT_EQ(to.embedding_.weight().tensor().to_vector<float>(), std::vector<float>(21, 4)) << name;
  }
  Tied to(scope(2));
  to.load_state_dict(
      {{"head.weight", full({7, 3}, 9)}, {"head.bias", ones({7})}, {"embedding.weight", full({7, 3}, 4)}});
  EXPECT_EQ(to.head_.weight().tensor().to_vector<float>(), std::vector<float>(21, 4));
  expect_error([&] { to.load_state_dict({{"head.bias", ones({7})}}); }, {"missing", "embedding.weight"});
}

TEST(Module, TiedWeightsAddTheirGradients) {
  Tied tied(scope(1));
  const Tensor ids = from_vector<int64_t>({1, 1, 4}, {3});
  const Tensor hidden = tied.embedding_.forward(ids);
  sum(tied.head_.forward(hidden)).backward();
  // d/dw of sum(h w^T): every row of the head's weight gets the sum of h; looked-up rows also get the sum of all w.
  const auto w = tied.embedding_.weight().tensor().to_vector<double>();
  const auto grad = tied.embedding_.weight().grad().to_vector<double>();
  for (size_t row = 0; row < 7; ++row) {
    const double uses = row == 1 ? 2 : row == 4 ? 1 : 0;
    for (size_t j = 0; j < 3; ++j) {
      const double first = 2 * w[3 + j], second = w[12 + j];
      double column_sum = 0, magnitude = std::abs(first) + std::abs(second);
      for (size_t r = 0; r < 7; ++r) {
        column_sum += w[3 * r + j];
        magnitude += uses * std::abs(w[3 * r + j]);
      }
      // As many roundings as terms: 3 and at most 2 * 7.
      EXPECT_NEAR(grad[3 * row + j], first + second + uses * column_sum, 17 * 0x1p-24 * magnitude);
    }
  }
}

TEST(Module, SharedWeightOfWrongShapeThrows) {
  struct Wrong final : nn::Module {
    explicit Wrong(const nn::Scope& s)
        : Module(s), a_(sub("a"), 7, 3), b_(sub("b"), 7, 3, {.weight = share(a_.weight())}) {}
    nn::Embedding a_;
    nn::Linear b_;
  };
  expect_error([] { Wrong{scope()}; }, {"[3, 7]", "[7, 3]"});
}

TEST(Module, BuffersCopyInPlace) {
  Block block(scope(), 2);
  const Tensor handle = block.positions_;
  block.positions_.copy_(arange(4, 8));
  EXPECT_EQ(handle.to_vector<int64_t>(), (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_FALSE(handle.requires_grad());
  expect_error([&] { block.positions_.copy_(arange(0, 3)); }, {"[4]", "[3]"});
  struct Bad final : nn::Module {
    explicit Bad(const nn::Scope& s) : Module(s), buffer_(this, "b", Tensor()) {}
    nn::Buffer buffer_;
  };
  expect_error([] { Bad{scope()}; }, {"'b'", "undefined"});
}

TEST(Summary, Table) {
  Net net(scope());
  net.parameters()[0].tensor.set_requires_grad(false);
  EXPECT_EQ(summary(net, {.depth = 2}),
            "name             type            shape   parameters\n"
            "---------------------------------------------------\n"
            "(root)           Net                             42\n"
            "  scale          float32 frozen  [3]              3\n"
            "  layer          ModuleList                      24\n"
            "    0            Block                           12\n"
            "      positions  int64 buffer    [4]\n"
            "      scratch    float32 buffer  [2]\n"
            "    1            Block                           12\n"
            "      positions  int64 buffer    [4]\n"
            "      scratch    float32 buffer  [2]\n"
            "  head           Linear                          15\n"
            "    weight       float32         [5, 3]          15\n"
            "total: 42 parameters (39 trainable), 168 bytes\n");
  EXPECT_EQ(summary(net.layer_[1], {.depth = 0}),
            "name         type            shape  parameters\n"
            "----------------------------------------------\n"
            "1            Block                          12\n"
            "  positions  int64 buffer    [4]\n"
            "  scratch    float32 buffer  [2]\n"
            "total: 12 parameters (12 trainable), 48 bytes\n");
  expect_contains(summary(nn::Linear(scope(), 1000, 1000)), {"1,001,000", "4.0 MB"});
}

TEST(Summary, TiedWeightsCountOnce) {
  const std::string text = summary(Tied(scope()));
  expect_contains(text, {"float32 tied", "total: 28 parameters (28 trainable), 112 bytes"});
  EXPECT_THROW(summary(Tied(scope()), {.depth = -1}), Error);
}

}  // namespace
}  // namespace tern::test
