// Every op with whatever tensors: each call gives a result or an Error, and what it gave can be differentiated. What a
// kernel reads or writes beyond its tensors shows under AddressSanitizer.

#include "tern/tests/core/op_inputs.h"

#include <map>

#include "tern/core/autocast.h"
#include "tern/tests/core/core_test.h"

namespace tern {
namespace {

TEST(OpInputs, GiveAResultOrAnError) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  test::Inputs in(seed, cpu, true);
  std::map<std::string, int> results;
  for (int round = 0; round < 400; ++round) {
    for (const auto& [name, call] : test::calls()) {
      in.begin();
      const Autocast region(cpu, in.one_in(4) ? (in.one_in(2) ? bfloat16 : float16) : float32);
      try {
        const Tensor y = call(in);
        ASSERT_TRUE(y.defined()) << name;
        y.to_vector<double>();
        ++results[name];
        if (in.one_in(2)) in.keep(y);
        if (y.requires_grad() && in.one_in(2)) sum(y.to(float32)).backward();
      } catch (const Error& error) {
        ASSERT_GT(std::string(error.what()).size(), 10u) << name << ": " << error.what();
      }
    }
  }
  for (const auto& [name, call] : test::calls()) EXPECT_GT(results[name], 0) << name << " never got what it takes";
}

}  // namespace
}  // namespace tern
