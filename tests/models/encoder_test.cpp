// Inference uses other memory layouts than training in the encoder, with equal bits.

#include "tern/models/encoder/encoder.h"

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/core/tolerance.h"

namespace tern::models {
namespace {

EncoderInput input_of(const SequenceLayout& layout, const std::vector<int64_t>& first_rows) {
  return {{}, {}, from_vector(first_rows, {static_cast<int64_t>(first_rows.size())}), layout};
}

/// Equal lengths, for which attention uses blocks, and different ones.
std::vector<EncoderInput> inputs() {
  std::vector<int64_t> equal, unequal, lengths;
  for (int64_t i = 0, at = 0; i < 60; ++i, at += lengths.back()) {
    equal.push_back(20 * i);
    unequal.push_back(at);
    lengths.push_back(i % 2 ? 11 : 29);
  }
  return {input_of(packed_layout(std::vector<int64_t>(60, 20)), equal), input_of(packed_layout(lengths), unequal)};
}

TEST(Encoder, HasTheSameBitsWithoutGradients) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const bool norm_first : {true, false})
    for (const bool final_norm : {true, false}) {
      EncoderOptions options{.width = 48, .heads = 3, .hidden = 80, .layers = 3, .initializer_range = 0.2};
      options.norm_first = norm_first;
      options.final_norm = final_norm;
      options.attention_output_dropout = final_norm;
      Generator generator(seed);
      Encoder encoder(nn::Scope({.generator = generator}), options);
      const Tensor x = randn({1200, 48}, generator);
      for (const EncoderInput& input : inputs())
        for (const bool training : {false, true})
          for (const DType dtype : {float32, bfloat16}) {
            SCOPED_TRACE(testing::Message()
                         << "norm_first " << norm_first << ", training " << training << ", " << dtype);
            encoder.train(training);
            const Autocast region(cpu, dtype);
            const auto both = [&] {
              generator.set_offset(100);  // same dropout masks in each run
              const Tensor all = encoder.forward(x, input);
              return std::pair(all, encoder.forward_first(x, input));
            };
            const auto [all, first] = both();
            ASSERT_TRUE(all.requires_grad());
            encoder.set_recompute(2);
            const auto [all_in_parts, first_in_parts] = both();
            encoder.set_recompute(0);
            test::expect_equal(all_in_parts, all);
            test::expect_equal(first_in_parts, first);
            const NoGrad off;
            const auto [all_without, first_without] = both();
            test::expect_equal(all_without, all);
            test::expect_equal(first_without, first);
          }
    }
}

}  // namespace
}  // namespace tern::models
