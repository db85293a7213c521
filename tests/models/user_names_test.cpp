// A program with `using namespace tern` may define types of these names, because internal names are in tern::detail.
// This file would not compile otherwise.

#include <gtest/gtest.h>

#include "tern/tern.h"

struct Block {};
struct Node {};
struct Edge {};
struct FreeList {};
struct Roofline {};
struct MemorySource {};
struct Kept {};
struct GradHooks {};
struct PointwiseOp {};
struct CastPolicy {};
struct GeneratorTrace {};
struct ProfileThread {};
int alias(const tern::Tensor&) { return 13; }
int draw(const tern::DropoutOptions&, const char*, tern::Device) { return 14; }
int size_class(int64_t) { return 15; }
int printable(std::string_view, size_t) { return 16; }

namespace {

using namespace tern;

template <class... Types>
constexpr size_t count = sizeof...(Types);

TEST(UserNames, AreFree) {
  EXPECT_EQ((count<Block, Node, Edge, FreeList, Roofline, MemorySource>), 6u);
  EXPECT_EQ((count<Kept, GradHooks, PointwiseOp, CastPolicy, GeneratorTrace, ProfileThread>), 6u);
  EXPECT_EQ(alias(ones({1})) + draw({}, "", cpu) + size_class(1) + printable("", 0), 58);
  const Tensor x = Tensor(ones({2})).set_requires_grad(true);
  EXPECT_STREQ((x * 2.0).grad_fn()->name(), "mul_scalar");  // results need no type names of the library
}

}  // namespace
