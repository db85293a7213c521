// Members that are not in their parent's tree, in every form; and cases that must not be errors.

#include <array>
#include <list>
#include <memory>
#include <optional>

#include "tern/nn/nn.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

nn::Scope fresh() { return nn::Scope({.generator = fresh_generator()}); }

/// Every function that uses the tree reports the member's class and the remedy.
template <class M>
void expect_unknown(M& model, const std::string& owner, const std::string& member) {
  const std::vector<std::string> parts = {owner + " ", "member of type " + member + " ", "sub(\"name\")"};
  expect_error([&] { model.parameters(); }, parts);
  expect_error([&] { model.state_dict(); }, parts);
  expect_error([&] { model.buffers(); }, parts);
  expect_error([&] { model.train(); }, parts);
  expect_error([&] { model.eval(); }, parts);
  expect_error([&] { model.num_parameters(); }, parts);
  expect_error([&] { model.zero_grad(); }, parts);
  expect_error([&] { model.load_state_dict({}); }, parts);
  expect_error([&] { summary(model); }, parts);
}

template <class M>
void expect_unknown(const std::string& owner, const std::string& member) {
  {
    M model{fresh()};
    expect_unknown(model, owner, member);
  }
  {
    const auto model = std::make_unique<M>(fresh());
    expect_unknown(*model, owner, member);
  }
  std::optional<M> model;
  {
    const nn::Scope scope = fresh();
    model.emplace(scope);
  }
  expect_unknown(*model, owner, member);
}

/// Members in the object are found even while the scope, a variable, exists.
template <class M>
void expect_unknown_within(const std::string& owner, const std::string& member) {
  expect_unknown<M>(owner, member);
  const nn::Scope scope = fresh();
  M model{scope};
  expect_unknown(model, owner, member);
}

struct OwnScope final : nn::Module {
  nn::Linear a;
  explicit OwnScope(const nn::Scope& s) : Module(s), a(s, 2, 3) {}
};
struct OtherScope final : nn::Module {
  nn::Linear a;
  explicit OtherScope(const nn::Scope& s) : Module(s), a(nn::Scope(), 2, 3) {}
};
struct LastOfSeveral final : nn::Module {
  nn::Linear a, b;
  Tensor t;
  nn::LayerNorm c;
  explicit LastOfSeveral(const nn::Scope& s) : Module(s), a(sub("a"), 2, 3), b(sub("b"), 2, 3), c(s, 3) {}
};
struct InInitializer final : nn::Module {
  using Module::Module;
  nn::Dropout a{nn::Scope(), 0.5};
};
struct Base : nn::Module {
  nn::Embedding words;
  explicit Base(const nn::Scope& s) : Module(s), words(s, 5, 2) {}
};
struct Derived final : Base {
  nn::Linear head;
  explicit Derived(const nn::Scope& s) : Base(s), head(sub("head"), 2, 2) {}
};
struct KnowingBase : nn::Module {
  nn::Linear first;
  explicit KnowingBase(const nn::Scope& s) : Module(s), first(sub("first"), 2, 2) {}
};
struct ForgetfulDerived final : KnowingBase {
  nn::Linear second;
  explicit ForgetfulDerived(const nn::Scope& s) : KnowingBase(s), second(s, 2, 2) {}
};
struct Unrelated {
  virtual ~Unrelated() = default;
  double numbers[3] = {};
};
struct Optional final : nn::Module {
  std::optional<nn::Linear> a;
  explicit Optional(const nn::Scope& s) : Module(s) { a.emplace(s, 2, 3); }
};
struct Listed final : nn::Module {
  nn::ModuleList<nn::Linear> a;
  explicit Listed(const nn::Scope& s) : Module(s), a(s, 2, 3, 3) {}
};
struct Chained final : nn::Module {
  nn::Sequential a;
  explicit Chained(const nn::Scope& s) : Module(s), a(s, nn::make<nn::Linear>(2, 3), gelu) {}
};
struct Unique final : nn::Module {
  std::unique_ptr<nn::Linear> a;
  explicit Unique(const nn::Scope& s) : Module(s), a(std::make_unique<nn::Linear>(s, 2, 3)) {}
};
struct SharedPointer final : nn::Module {
  std::shared_ptr<nn::Linear> a;
  explicit SharedPointer(const nn::Scope& s) : Module(s) { a = std::make_shared<nn::Linear>(s, 2, 3); }
};
struct PlainPart {
  nn::Linear a;
  explicit PlainPart(const nn::Scope& s) : a(s, 2, 3) {}
};
struct WithPlainPart final : nn::Module {
  PlainPart part;
  explicit WithPlainPart(const nn::Scope& s) : Module(s), part(s) {}
};
template <class Inner>
struct Outer final : nn::Module {
  Inner inner;
  explicit Outer(const nn::Scope& s) : Module(s), inner(sub("inner")) {}
};

TEST(UnknownMembers, InTheObject) {
  expect_unknown_within<OwnScope>("OwnScope", "Linear");
  expect_unknown_within<OtherScope>("OtherScope", "Linear");
  expect_unknown_within<LastOfSeveral>("LastOfSeveral", "LayerNorm");
  expect_unknown_within<InInitializer>("InInitializer", "Dropout");
  expect_unknown_within<Optional>("Optional", "Linear");
  expect_unknown_within<Listed>("Listed", "ModuleList");
  expect_unknown_within<Chained>("Chained", "Sequential");
  expect_unknown_within<WithPlainPart>("WithPlainPart", "Linear");
}

TEST(UnknownMembers, OfBaseClasses) {
  expect_unknown_within<Base>("Base", "Embedding");
  expect_unknown_within<Derived>("Derived", "Embedding");
  expect_unknown_within<ForgetfulDerived>("ForgetfulDerived", "Linear");
}

TEST(UnknownMembers, ThroughPointers) {
  expect_unknown<Unique>("Unique", "Linear");
  expect_unknown<SharedPointer>("SharedPointer", "Linear");
}

struct Vector final : nn::Module {
  int64_t before = 3;
  std::vector<std::unique_ptr<nn::Linear>> all;
  explicit Vector(const nn::Scope& s) : Module(s) {
    for (int i = 0; i < 3; ++i) all.push_back(std::make_unique<nn::Linear>(s, 2, 3));
  }
};
struct LastOfVector final : nn::Module {
  std::vector<std::shared_ptr<nn::Module>> all;
  explicit LastOfVector(const nn::Scope& s) : Module(s) {
    for (int i = 0; i < 40; ++i) all.push_back(std::make_shared<nn::Linear>(sub(std::to_string(i)), 2, 3));
    all.push_back(std::make_shared<nn::LayerNorm>(s, 3));
  }
};

TEST(UnknownMembers, InVectors) {
  expect_unknown<Vector>("Vector", "Linear");
  expect_unknown<LastOfVector>("LastOfVector", "LayerNorm");
}

TEST(UnknownMembers, BelowTheGivenModule) {
  Outer<OtherScope> model(fresh());
  expect_unknown(model, "OtherScope 'inner'", "Linear");
  expect_unknown(model.inner, "OtherScope 'inner'", "Linear");
  EXPECT_EQ(model.inner.a.parameters().size(), 2u);  // alone a model like any other
}

TEST(UnknownMembers, OfAnotherTree) {
  struct Wide final : nn::Module {
    explicit Wide(const nn::Scope& s) : Module(s) {}
    nn::Scope place(const std::string& name) { return sub(name); }
  };
  struct Guest final : nn::Module {
    nn::Linear a;
    Guest(const nn::Scope& s, const nn::Scope& elsewhere) : Module(s), a(elsewhere, 2, 3) {}
  };
  Wide host(fresh());
  Guest guest(fresh(), host.place("a"));
  expect_unknown(guest, "Guest", "Linear");
  EXPECT_EQ(host.parameters().size(), 2u);
  Guest known(host.place("guest"), host.place("b"));  // in the same tree, under another name
  EXPECT_EQ(host.parameters().size(), 4u);
  EXPECT_EQ(known.parameters().size(), 0u);
}

TEST(UnknownMembers, AddedLater) {
  struct Late final : nn::Module {
    std::optional<nn::Linear> a;
    explicit Late(const nn::Scope& s) : Module(s) {}
  };
  Late late(fresh());
  EXPECT_TRUE(late.parameters().empty());
  late.a.emplace(fresh(), 2, 3);
  expect_unknown(late, "Late", "Linear");
  late.a.reset();
  EXPECT_NO_THROW(late.parameters());
}

TEST(UnknownMembers, OfAModuleThatIsAMemberClashByName) {
  expect_error([] { Outer<OwnScope>{fresh()}; }, {"'inner'", "sub(\"name\")"});
}

TEST(UnknownMembers, SeveralBasesAndAlignment) {
  struct Second final : Unrelated, nn::Module {
    double numbers[7] = {};
    nn::Linear a;
    explicit Second(const nn::Scope& s) : Module(s), a(s, 2, 3) {}
  };
  struct alignas(64) Aligned final : nn::Module {
    double numbers[9] = {};
    nn::Linear a;
    explicit Aligned(const nn::Scope& s) : Module(s), a(s, 2, 3) {}
  };
  expect_unknown<Second>("Second", "Linear");
  expect_unknown<Aligned>("Aligned", "Linear");
  std::unique_ptr<Unrelated> owner = std::make_unique<Second>(fresh());
  owner.reset();
  std::unique_ptr<ParameterOwner> aligned = std::make_unique<Aligned>(fresh());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned.get()) % 64, 0u);
}

TEST(UnknownMembers, AThrowingConstructorLeavesNothing) {
  struct Throws final : nn::Module {
    nn::Linear a;
    explicit Throws(const nn::Scope& s) : Module(s), a(sub("a"), 2, 3) { fail("no"); }
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(error_of([] { std::make_unique<Throws>(fresh()); }), "no");
  const nn::Linear after(fresh(), 2, 3);
  EXPECT_EQ(after.parameters().size(), 2u);
}

// Cases that must stay legal.

TEST(UnknownMembers, SeveralRoots) {
  const nn::Scope scope = fresh();
  nn::Linear a(scope, 2, 3), b(scope, 2, 3);
  nn::Linear c(fresh(), 2, 3), d(nn::Scope(), 2, 3);
  const auto e = std::make_unique<nn::Linear>(scope, 2, 3), f = std::make_unique<nn::Linear>(scope, 2, 3);
  std::array<nn::Linear, 2> both{nn::Linear(scope, 2, 3), nn::Linear(fresh(), 2, 3)};
  std::vector<std::unique_ptr<nn::Linear>> many;
  for (int i = 0; i < 5; ++i) many.push_back(std::make_unique<nn::Linear>(i % 2 ? scope : fresh(), 2, 3));
  for (nn::Linear* model : {&a, &b, &c, &d, e.get(), f.get(), &both[0], &both[1], many[0].get(), many[4].get()}) {
    model->train(false);
    EXPECT_EQ(model->parameters().size(), 2u);
  }
}

struct Pair {  // not a module: two models
  nn::Linear generator, discriminator;
  std::optional<nn::LayerNorm> norm;
  explicit Pair(const nn::Scope& s) : generator(s, 2, 3), discriminator(s, 3, 1) { norm.emplace(s, 3); }
};

TEST(UnknownMembers, PlainStructsOfRoots) {
  Pair pair(fresh());
  EXPECT_EQ(pair.generator.parameters().size(), 2u);
  EXPECT_EQ(pair.discriminator.parameters().size(), 2u);
  EXPECT_EQ(pair.norm->parameters().size(), 2u);
  const auto on_heap = std::make_unique<Pair>(fresh());
  EXPECT_EQ(on_heap->generator.parameters().size(), 2u);
  EXPECT_EQ(on_heap->discriminator.parameters().size(), 2u);
}

TEST(UnknownMembers, ModelsOfOneFunction) {
  const auto make = [] {
    const nn::Scope scope = fresh();
    return std::make_pair(std::make_unique<nn::Linear>(scope, 2, 3), std::make_unique<nn::Linear>(scope, 3, 1));
  };
  const auto [first, second] = make();
  EXPECT_EQ(first->parameters().size(), 2u);
  EXPECT_EQ(second->parameters().size(), 2u);
  const auto train = [](const nn::Module& a, const nn::Module& b) {
    return a.parameters().size() + b.parameters().size();
  };
  EXPECT_EQ(train(nn::Linear(fresh(), 2, 3), nn::Linear(fresh(), 3, 1)), 4u);
  EXPECT_EQ(train(*std::make_unique<nn::Linear>(fresh(), 2, 3), *std::make_unique<nn::Linear>(fresh(), 3, 1)), 4u);
}

TEST(UnknownMembers, ReferencesToOtherModels) {
  struct Student final : nn::Module {
    const nn::Linear* teacher = nullptr;
    std::shared_ptr<nn::Linear> shared;
    nn::Linear body;
    explicit Student(const nn::Scope& s) : Module(s), body(sub("body"), 2, 3) {}
    Student(const nn::Scope& s, const nn::Linear& t) : Module(s), teacher(&t), body(sub("body"), 2, 3) {}
  };
  const nn::Scope scope = fresh();
  nn::Linear earlier(scope, 2, 3);
  const Student student(scope, earlier);
  EXPECT_EQ(student.parameters().size(), 2u);
  Student other(fresh());
  const auto later = std::make_shared<nn::Linear>(fresh(), 2, 3);
  other.teacher = later.get();
  other.shared = later;
  EXPECT_EQ(other.parameters().size(), 2u);
  EXPECT_NO_THROW(other.eval());
  const Student in_one_line(fresh(), nn::Linear(fresh(), 2, 3));
  EXPECT_EQ(in_one_line.parameters().size(), 2u);
}

struct Student final : nn::Module {
  nn::Linear body;
  const nn::Module* teacher = nullptr;
  std::shared_ptr<nn::Module> shared;
  std::vector<const nn::Module*> others;
  explicit Student(const nn::Scope& s) : Module(s), body(sub("body"), 2, 3) {}
  void refer_to(const std::shared_ptr<nn::Linear>& model) {
    teacher = model.get();
    shared = model;
    others.push_back(model.get());
  }
};

TEST(UnknownMembers, ReferencesToModelsMadeLater) {
  std::optional<nn::Scope> scope(fresh());
  Student of_same(*scope), of_other(*scope), of_both(*scope);
  const auto same = std::make_shared<nn::Linear>(*scope, 2, 3), other = std::make_shared<nn::Linear>(fresh(), 2, 3);
  of_same.refer_to(same);
  of_other.refer_to(other);
  nn::Linear on_stack(*scope, 2, 3);
  of_both.refer_to(same);
  of_both.others = {same.get(), other.get(), &on_stack};
  for (int repetition = 0; repetition < 2; ++repetition) {
    for (Student* student : {&of_same, &of_other, &of_both}) {
      EXPECT_EQ(student->parameters().size(), 2u);
      EXPECT_NO_THROW(student->eval());
      EXPECT_EQ(student->body.parameters().size(), 2u);
    }
    scope.reset();  // a pointer that was no member stays none
    const nn::Linear another(fresh(), 2, 3);
  }
}

TEST(UnknownMembers, LinkedModelsOfAFactory) {
  struct Linked {
    std::shared_ptr<nn::Linear> teacher;
    std::unique_ptr<Student> student;
  };
  const auto build = [](const nn::Scope& s, bool teacher_first) {
    Linked linked;
    if (teacher_first) linked.teacher = std::make_shared<nn::Linear>(s, 2, 3);
    linked.student = std::make_unique<Student>(s);
    if (!teacher_first) linked.teacher = std::make_shared<nn::Linear>(fresh(), 2, 3);
    linked.student->refer_to(linked.teacher);
    return linked;
  };
  for (const bool teacher_first : {false, true}) {
    const Linked linked = build(fresh(), teacher_first);
    EXPECT_EQ(linked.student->parameters().size(), 2u);
    EXPECT_EQ(linked.teacher->parameters().size(), 2u);
  }
}

/// Two neighbouring models, one of them on the heap, from one scope that no longer exists.
TEST(UnknownMembers, NeighboursOnTheStackAndTheHeap) {
  struct Models {
    nn::Linear first;
    std::unique_ptr<nn::Linear> second;
    std::list<nn::Linear> more;
    explicit Models(const nn::Scope& s) : first(s, 2, 3), second(std::make_unique<nn::Linear>(s, 2, 3)) {
      more.emplace_back(s, 2, 3);
    }
  };
  const Models models(fresh());
  EXPECT_EQ(models.first.parameters().size(), 2u);
  EXPECT_EQ(models.second->parameters().size(), 2u);
  EXPECT_EQ(models.more.front().parameters().size(), 2u);
}

TEST(UnknownMembers, KnownMembersOfEveryKind) {
  struct All final : nn::Module {
    nn::ModuleList<nn::Linear> list;
    nn::Sequential chain;
    std::optional<nn::Linear> optional;
    std::unique_ptr<nn::Linear> unique;
    std::vector<std::unique_ptr<nn::Linear>> vector;
    PlainPart part;
    KnowingBase known;
    explicit All(const nn::Scope& s)
        : Module(s),
          list(sub("list"), 2, 3, 3),
          chain(sub("chain"), nn::make<nn::Linear>(2, 3), gelu),
          unique(std::make_unique<nn::Linear>(sub("unique"), 2, 3)),
          part(sub("part")),
          known(sub("known")) {
      optional.emplace(sub("optional"), 2, 3);
      for (int i = 0; i < 3; ++i) vector.push_back(std::make_unique<nn::Linear>(sub(std::to_string(i)), 2, 3));
      const nn::Linear temporary(s, 2, 3);  // destroyed before the first check
      const nn::Linear other(fresh(), 2, 3);
      EXPECT_EQ(temporary.parameters().size(), 2u);
    }
  };
  All all(fresh());
  EXPECT_EQ(all.parameters().size(), 2u * 10);
  EXPECT_EQ(std::make_unique<All>(fresh())->parameters().size(), 2u * 10);
  all.optional.reset();
  EXPECT_EQ(all.parameters().size(), 2u * 9);
  std::unique_ptr<nn::Linear> survivor;
  {
    All short_lived(fresh());
    survivor = std::move(short_lived.unique);
  }
  EXPECT_EQ(survivor->parameters().size(), 2u);  // it outlives its parent
}

TEST(UnknownMembers, ASubclassHandsOnItsScope) {
  struct My final : nn::Module {
    using Module::Module;
  };
  struct Own : KnowingBase {
    explicit Own(const nn::Scope& s) : KnowingBase(s) {}
  };
  EXPECT_EQ(Own(fresh()).parameters().size(), 2u);
  EXPECT_TRUE(My(fresh()).parameters().empty());
}

TEST(UnknownMembers, ThreadsMakeAndAskModels) {
  in_threads(4, [](size_t) {
    for (int i = 0; i < 50; ++i) {
      const nn::Sequential net(fresh(), nn::make<nn::Linear>(2, 3), gelu, nn::make<nn::Linear>(3, 1));
      EXPECT_EQ(net.parameters().size(), 4u);
      OwnScope wrong(fresh());
      EXPECT_THROW(wrong.parameters(), Error);
    }
  });
}

}  // namespace
}  // namespace tern::test
