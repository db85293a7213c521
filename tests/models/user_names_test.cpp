// A program with `using namespace tern` may define types of these names, because internal names are in tern::detail.
// This file would not compile otherwise.

#include <gtest/gtest.h>

#include "tern/tern.h"

struct Block {
  int value = 1;
};
struct Node {
  int value = 2;
};
struct Edge {
  int value = 3;
};
struct FreeList {
  int value = 4;
};
struct Roofline {
  int value = 5;
};
struct MemorySource {
  int value = 6;
};
struct Kept {
  int value = 7;
};
struct GradHooks {
  int value = 8;
};
struct PointwiseOp {
  int value = 9;
};
struct CastPolicy {
  int value = 10;
};
struct GeneratorTrace {
  int value = 11;
};
struct ProfileThread {
  int value = 12;
};
int alias(const tern::Tensor&) { return 13; }
int draw(const tern::DropoutOptions&, const char*, tern::Device) { return 14; }
int size_class(int64_t) { return 15; }
int printable(std::string_view, size_t) { return 16; }

namespace {

using namespace tern;

TEST(UserNames, AreFree) {
  EXPECT_EQ(Block().value + Node().value + Edge().value + FreeList().value + Roofline().value + MemorySource().value,
            21);
  EXPECT_EQ(Kept().value + GradHooks().value + PointwiseOp().value + CastPolicy().value + GeneratorTrace().value +
                ProfileThread().value,
            57);
  EXPECT_EQ(alias(ones({1})) + draw({}, "", cpu) + size_class(1) + printable("", 0), 58);
  const Tensor x = Tensor(ones({2})).set_requires_grad(true);
  EXPECT_STREQ((x * 2.0).grad_fn()->name(), "mul_scalar");  // results need no type names of the library
}

}  // namespace
