// CTC against sums over alignments in long double, and the sum over all alignments one by one.

#include "tern/tests/kernels/contracts/ctc.h"

namespace tern::kernels {
namespace {

class Ctc : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Ctc, testing::ValuesIn(all_targets()), name_of_target);

TEST_P(Ctc, LossesAndGradients) {
  for (const DType dtype : {float32, float64})
    for (const auto& [frames, batch, labels] : std::vector<std::array<int64_t, 3>>{
             {1, 1, 0}, {1, 4, 1}, {2, 3, 1}, {7, 5, 3}, {40, 6, 8}, {30, 3, 40}, {9, 2, 150}, {0, 3, 1}, {5, 0, 2}}) {
      if (!takes_case(frames * batch * (2 * labels + 1), random)) continue;
      ctc_test::Batch of(dtype, frames, batch, labels, random);
      ctc_test::check(of);
    }
}

/// What an alignment is, without any recursion: every sequence of states is enumerated.
TEST_P(Ctc, SumsOverAllAlignments) {
  ctc_test::Batch of(float64, 5, 3, 2, random);
  of.run();
  for (int64_t b = 0; b < of.batch; ++b) {
    const auto frames = static_cast<int64_t>(of.lengths.at(2 * b)),
               states = static_cast<int64_t>(of.lengths.at(2 * b + 1));
    int64_t count = 1;
    for (int64_t t = 0; t < frames; ++t) count *= states;
    double total = 0;
    for (int64_t number = 0; number < count; ++number) {
      double log_p = 0;
      bool valid = frames > 0 || states == 1;
      int64_t rest = number, last = -1;
      for (int64_t t = 0; t < frames; ++t, rest /= states) {
        const int64_t s = rest % states, step = s - last;
        const bool follows =
            last < 0 ? s < 2 : step == 0 || step == 1 || (step == 2 && of.skips.at(b * of.states + s) != 0);
        valid = valid && follows;
        log_p += of.x.at((t * of.batch + b) * of.states + s);
        last = s;
      }
      if (frames > 0) valid = valid && last >= states - 2;
      if (valid) total += std::exp(log_p);
    }
    const double loss = -std::log(total);
    EXPECT_TRUE(std::isinf(loss) ? of.losses.at(b) == loss : near(of.losses.at(b), loss, 1e-15, 1e-13))
        << "sequence " << b << ": " << of.losses.at(b) << " for " << loss;
  }
}

}  // namespace
}  // namespace tern::kernels
