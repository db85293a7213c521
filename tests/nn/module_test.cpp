// The tree of modules: registration, names, state, shared weights, summary.

#include "tern/nn/module.h"

#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include "tern/core/ops/ops.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/core_test.h"
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
  DType forward_dtype(const Tensor& ids) const { return head_.forward(embedding_.forward(ids)).dtype(); }
  nn::Embedding embedding_;
  nn::Linear head_;
};

Tensor linear_of(const nn::Linear& layer, const Tensor& x) { return linear(x, layer.weight(), layer.bias()); }

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

TEST(Module, PatternsFreezeAndFilter) {
  Net net(scope());
  EXPECT_EQ(names_of(net.parameters("layer.*.weight")), (Names{"layer.0.linear.weight", "layer.1.linear.weight"}));
  EXPECT_EQ(names_of(net.parameters("layer.[1-9].*")), (Names{"layer.1.linear.weight", "layer.1.linear.bias"}));
  EXPECT_EQ(names_of(net.state_dict({.prefix = "a.", .pattern = "layer.0.*"})),
            (Names{"a.layer.0.positions", "a.layer.0.linear.weight", "a.layer.0.linear.bias"}));
  EXPECT_EQ(names_of(nn::without_prefix(net.state_dict(), "layer.0.")),
            (Names{"positions", "linear.weight", "linear.bias"}));

  sum(net.forward(ones({1, 3}))).backward();
  EXPECT_EQ(net.freeze(), 6);
  for (const NamedTensor& entry : net.parameters()) {
    EXPECT_FALSE(entry.tensor.requires_grad()) << entry.name;
    EXPECT_FALSE(entry.tensor.grad().defined()) << entry.name;
  }
  EXPECT_EQ(net.unfreeze("head.?eight"), 1);
  EXPECT_TRUE(net.head_.weight().tensor().requires_grad());
  EXPECT_FALSE(net.scale_->tensor().requires_grad());
  expect_error([&] { net.freeze("hade.*"); }, {"no parameter of the root module matches 'hade.*'"});
  Tied tied(scope());
  EXPECT_EQ(tied.freeze("head.weight"), 1);  // under its second name
  EXPECT_FALSE(tied.embedding_.weight().tensor().requires_grad());

  Names visited;
  net.apply([&](nn::Module& module) { visited.push_back(module.name()); });
  EXPECT_EQ(visited, (Names{"layer.0.linear", "layer.0", "layer.1.linear", "layer.1", "layer", "head", ""}));
}

TEST(Module, LayerDecayGroups) {
  Net net(scope());
  net.freeze("layer.1.linear.bias");
  const auto groups = nn::layer_decay_groups(net, {.blocks = "layer", .below = {"scale"}, .decay = 0.5});
  std::vector<std::tuple<int64_t, double, bool, Names>> found;
  for (const nn::LayerGroup& group : groups)
    found.emplace_back(group.layer, group.lr_scale, group.decays, names_of(group.parameters));
  const decltype(found) expected = {{0, 0.125, false, {"scale"}},
                                    {1, 0.25, true, {"layer.0.linear.weight"}},
                                    {1, 0.25, false, {"layer.0.linear.bias"}},
                                    {2, 0.5, true, {"layer.1.linear.weight"}},
                                    {3, 1, true, {"head.weight"}}};
  EXPECT_EQ(found, expected);
  expect_error([&] { nn::layer_decay_groups(net, {.blocks = "head"}); }, {"'head.0'"});
  expect_error([&] { nn::layer_decay_groups(net, {.blocks = "layer", .below = {"x"}}); }, {"'x'"});
  expect_error([&] { nn::layer_decay_groups(net, {.blocks = "layer", .decay = 0}); }, {"(0, 1]"});
}

TEST(Module, HooksRunInOrderAndCanBeRemoved) {
  Net net(scope());
  const Tensor x = fresh_normal({2, 3}, 1), plain = net.forward(x);
  std::vector<std::string> calls;
  nn::Linear& linear = net.layer_[1].linear_;
  const auto note = [&](const std::string& text) {
    return [&calls, text](const nn::Module& module, const Tensor&, const Tensor&) {
      calls.push_back(text + " " + module.name());
      return Tensor();
    };
  };
  const int64_t first = linear.register_forward_hook(note("a"));
  linear.register_forward_hook(note("b"));
  const int64_t before = linear.register_forward_pre_hook([&](const nn::Module&, const Tensor& given) {
    calls.push_back("pre");
    EXPECT_EQ(given.shape(), x.shape());
    return Tensor();
  });
  for (const bool recorded : {true, false}) {  // without gradients layers are steps of one pass
    calls.clear();
    GradMode on(recorded);
    EXPECT_EQ(net.forward(x).to_vector<float>(), plain.to_vector<float>());
    EXPECT_EQ(calls, (std::vector<std::string>{"pre", "a layer.1.linear", "b layer.1.linear"}));
  }
  calls.clear();
  linear.remove_hook(first);
  linear.remove_hook(before);
  linear.remove_hook(before);
  net.forward(x);
  EXPECT_EQ(calls, (std::vector<std::string>{"b layer.1.linear"}));

  // What they return replaces input and result, one after the other.
  nn::Linear lone(scope(2), 3, 3);
  const auto times = [](double factor) { return [factor](const nn::Module&, const Tensor& v) { return v * factor; }; };
  lone.register_forward_pre_hook(times(2));
  lone.register_forward_pre_hook(times(4));
  lone.register_forward_hook([&](const nn::Module&, const Tensor& given, const Tensor& y) {
    EXPECT_EQ(given.to_vector<float>(), (x * 8.0).to_vector<float>());
    return y * 0.5;
  });
  lone.register_forward_hook([](const nn::Module&, const Tensor&, const Tensor& y) { return y + 1.0; });
  const Tensor expected = linear_of(lone, x * 8.0) * 0.5 + 1.0;
  EXPECT_EQ(lone.forward(x).to_vector<float>(), expected.to_vector<float>());
  expect_error([&] { lone.register_forward_hook({}); }, {"empty function"});
}

TEST(Module, ErrorsNameTheModule) {
  const nn::Scope s({.generator = fresh_generator(1)});
  nn::Sequential net(s, nn::make<nn::Linear>(4, 3), nn::make<nn::Linear>(4, 2));
  const Tensor x = fresh_normal({2, 4}, 1);
  expect_error([&] { net.forward(x); }, {"linear: x is [2, 3]", "weight [2, 4]; in Linear '1'"});
  nn::LayerNorm root(s, 3);
  expect_error([&] { root.forward(x); }, {"nn::LayerNorm", "got [2, 4]; in LayerNorm"});
  root.register_forward_pre_hook([](const nn::Module&, const Tensor&) -> Tensor { fail("stop"); });
  expect_error([&] { root.forward(x); }, {"stop; in LayerNorm"});
  // The innermost one alone; other types pass unchanged.
  try {
    net.forward(x);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("Sequential"), std::string::npos) << error.what();
  }
  nn::Linear full(s, 4, 4);
  full.register_forward_pre_hook([](const nn::Module&, const Tensor&) -> Tensor { throw OutOfMemoryError("full"); });
  try {
    full.forward(x);
    ADD_FAILURE() << "no error";
  } catch (const OutOfMemoryError& error) {
    EXPECT_STREQ(error.what(), "full");
  }
}

/// With hooks nothing changes but that they run: in every layer, alone and in a chain.
TEST(Module, HooksOfEveryLayer) {
  const Tensor x = fresh_normal({1, 6, 4}, 1);
  const nn::Scope s = scope();
  nn::Sequential layers(s, nn::make<nn::LayerNorm>(4), nn::make<nn::RMSNorm>(4), nn::make<nn::PackedAttention>(4, 2),
                        nn::make<nn::FeedForward>(4, 8), nn::make<nn::GatedFeedForward>(4, 8), nn::make<nn::GELU>(),
                        nn::make<nn::PReLU>(), nn::make<nn::Dropout>(0.0), nn::make<nn::DropPath>(0.0),
                        nn::make<nn::Linear>(4, 4), nn::make<nn::GLU>(), nn::make<nn::Flatten>(),
                        nn::make<nn::Unflatten>(1, std::vector<int64_t>{6, 2}), nn::make<nn::Identity>(),
                        nn::make<nn::Sequential>());
  const auto plain = layers.forward(x).to_vector<float>();
  std::set<std::string> called;
  layers.apply([&](nn::Module& module) {
    module.register_forward_hook([&](const nn::Module& each, const Tensor&, const Tensor&) {
      called.insert(each.name());
      return Tensor();
    });
  });
  for (const bool recorded : {true, false}) {
    GradMode on(recorded);
    called.clear();
    EXPECT_EQ(layers.forward(x).to_vector<float>(), plain);
    size_t modules = 0;
    layers.apply([&](nn::Module& module) {
      ++modules;
      EXPECT_TRUE(called.contains(module.name())) << module.name() << " " << module.type_name();
    });
    EXPECT_EQ(called.size(), modules);
  }
}

TEST(Module, ConversionKeepsEveryHandle) {
  Tied net(scope());
  const nn::Buffer buffer(&net, "count", arange(0, 3));
  const Tensor weight = net.head_.weight(), before = weight.detach().clone(), ids = from_vector<int64_t>({1, 4}, {2});
  const auto loss = [&] { return sum(square(net.head_.forward(net.embedding_.forward(ids)))); };
  loss().backward();
  const auto gradient = weight.grad().to_vector<double>();
  const Tensor old_loss = loss();
  net.to(float64);
  EXPECT_EQ(net.dtype(), float64);
  EXPECT_EQ(net.head_.dtype(), float64);
  EXPECT_EQ(weight.dtype(), float64);
  EXPECT_TRUE(same(net.embedding_.weight().tensor(), net.head_.weight().tensor()));
  EXPECT_EQ(weight.to_vector<double>(), before.to_vector<double>());
  EXPECT_EQ(weight.grad().dtype(), float64);
  EXPECT_EQ(weight.grad().to_vector<double>(), gradient);
  EXPECT_EQ(buffer.tensor().dtype(), int64);
  EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
  EXPECT_THROW(old_loss.backward(), Error);  // recorded with the earlier weights
  net.zero_grad();
  loss().backward();
  EXPECT_EQ(weight.grad().dtype(), float64);
  EXPECT_LE(relative_error(weight.grad().to_vector<double>(), gradient), 1e-5);
  net.to(bfloat16);
  EXPECT_EQ(net.forward_dtype(ids), bfloat16);
  net.to(cpu);
  EXPECT_EQ(net.device(), Device(cpu));
  expect_error([&] { net.to(int64); }, {"floating dtype", "int64"});
}

TEST(Module, CloneSharesNothing) {
  Net net(scope(1, float64), false);
  net.layer_[0].eval();
  net.freeze("head.*");
  sum(net.forward(ones({1, 3}, {.dtype = float64}))).backward();
  int calls = 0;
  net.head_.register_forward_hook([&](const nn::Module&, const Tensor&, const Tensor&) {
    ++calls;
    return Tensor();
  });
  net.layer_[0].scratch_.copy_(tensor({7, 8}));  // not persistent
  const std::unique_ptr<Net> copy = nn::clone(net, false);
  const auto lists = [](const Net& of) {
    std::vector<NamedTensor> all = of.parameters();
    for (const NamedTensor& buffer : of.buffers()) all.push_back(buffer);
    return all;
  };
  const auto own = lists(*copy), theirs = lists(net);
  ASSERT_EQ(names_of(own), names_of(theirs));
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(own[i].tensor.to_vector<double>(), theirs[i].tensor.to_vector<double>()) << own[i].name;
    EXPECT_NE(own[i].tensor.storage(), theirs[i].tensor.storage()) << own[i].name;
    EXPECT_EQ(own[i].tensor.requires_grad(), theirs[i].tensor.requires_grad()) << own[i].name;
    EXPECT_EQ(own[i].tensor.grad().defined(), theirs[i].tensor.grad().defined()) << own[i].name;
  }
  EXPECT_FALSE(copy->layer_[0].linear_.is_training());
  EXPECT_TRUE(copy->is_training());
  copy->head_.forward(ones({1, 3}, {.dtype = float64}));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(copy->generator().offset(), net.generator().offset());
  EXPECT_FALSE(copy->generator() == net.generator());
  expect_error([&] { nn::clone(net, true); }, {"same structure", "'scale' (float64 [3] on cpu)"});
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

TEST(Summary, ShapesAndOperationsOfARun) {
  Net net(scope(), false);
  const std::string text = summary(net, [&] { net.forward(ones({10, 3})); }, {.depth = 3});
  expect_contains(
      text, {"parameters  output   flops\n", "  head           Linear                          15  [10, 5]    300\n",
             "      linear     Linear                          12  [10, 3]    180\n", "39             660\n"});
  EXPECT_FALSE(net.head_.has_hooks());
  EXPECT_THROW(summary(net, [] { fail("no"); }), Error);
  EXPECT_FALSE(net.head_.has_hooks());
}

TEST(Summary, TiedWeightsCountOnce) {
  const std::string text = summary(Tied(scope()));
  expect_contains(text, {"float32 tied  [7, 3]\n", "total: 28 parameters (28 trainable), 112 bytes"});
  EXPECT_THROW(summary(Tied(scope()), {.depth = -1}), Error);
}

}  // namespace
}  // namespace tern::test
