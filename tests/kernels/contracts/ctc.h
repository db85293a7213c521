#pragma once
// The contract of CTC: cases, and the definition by sums of products of probabilities.

#include "tern/kernels/ctc.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels::ctc_test {

/// Sequences of different lengths, some of which no alignment fits.
struct Batch {
  int64_t frames, batch, states;
  Array x, lengths, skips, dlosses, alpha, losses, dx;

  Batch(DType dtype, int64_t most_frames, int64_t sequences, int64_t labels, std::mt19937_64& random)
      : frames(most_frames),
        batch(sequences),
        states(2 * labels + 1),
        x(random_array(random, dtype, {frames, batch, states}, -3, 0, Order::kMisaligned)),
        lengths(int64, {batch, 2}),
        skips(boolean, {batch, states}),
        dlosses(random_array(random, dtype, {batch}, -2, 2)),
        alpha(dtype, {frames, batch, states}),
        losses(dtype, {batch}),
        dx(dtype, {frames, batch, states}) {
    for (int64_t b = 0; b < batch; ++b) {
      const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1)); };
      lengths.set(2 * b, static_cast<double>(b % 3 == 0 ? frames : up_to(frames)));
      lengths.set(2 * b + 1, static_cast<double>(2 * (b % 3 == 1 ? labels : up_to(labels)) + 1));
      for (int64_t s = 0; s < states; ++s) skips.set(b * states + s, s % 2 == 1 && s > 1 && random() % 3 > 0);
    }
    if (batch > 2) dlosses.set(2, 0);
    if (x.numel() > 0) x.set(0, -INFINITY);
  }
  void run() {
    expect_same_in_every_run({&losses, &dx}, [&](Call& on) {
      ctc_forward(on.stream(), on(x), on(lengths), on(skips), on(alpha), on(losses));
      void* const workspace = on.workspace(ctc_backward_workspace(on.stream(), batch, states, x.dtype()));
      ctc_backward(on.stream(), on(x), on(lengths), on(skips), on(alpha), on(losses), on(dlosses), workspace, on(dx));
    });
  }
};

/// The summed probabilities of the alignments that reach each state, from the start and to the end of a sequence. The
/// range of long double replaces logarithms.
struct Sums {
  int64_t frames, states;
  std::vector<long double> before, after;
  long double total = 0;

  Sums(const Batch& of, int64_t b)
      : frames(static_cast<int64_t>(of.lengths.at(2 * b))), states(static_cast<int64_t>(of.lengths.at(2 * b + 1))) {
    before.assign(static_cast<size_t>(frames * states), 0);
    after = before;
    const auto p = [&](int64_t t, int64_t s) {
      return std::exp(static_cast<long double>(of.x.at((t * of.batch + b) * of.states + s)));
    };
    const auto may_follow = [&](int64_t to, int64_t from) {
      return to == from || to == from + 1 || (to == from + 2 && of.skips.at(b * of.states + to) != 0);
    };
    for (int64_t t = 0; t < frames; ++t)
      for (int64_t to = 0; to < states; ++to) {
        long double& sum = before[static_cast<size_t>(t * states + to)];
        if (t == 0) sum = to < 2;
        for (int64_t from = std::max<int64_t>(0, to - 2); t > 0 && from <= to; ++from)
          if (may_follow(to, from)) sum += before[static_cast<size_t>((t - 1) * states + from)];
        sum *= p(t, to);
      }
    for (int64_t t = frames - 1; t >= 0; --t)
      for (int64_t from = 0; from < states; ++from) {
        long double& sum = after[static_cast<size_t>(t * states + from)];
        if (t == frames - 1) sum = from >= states - 2;
        for (int64_t to = from; t < frames - 1 && to < std::min(states, from + 3); ++to)
          if (may_follow(to, from)) sum += after[static_cast<size_t>((t + 1) * states + to)] * p(t + 1, to);
      }
    if (frames == 0) total = states == 1;
    for (int64_t s = std::max<int64_t>(0, states - 2); frames > 0 && s < states; ++s)
      total += before[static_cast<size_t>((frames - 1) * states + s)];
  }
};

inline void check(Batch& of) {
  SCOPED_TRACE(testing::Message() << name_of(of.x.dtype()) << " " << of.frames << " x " << of.batch << " x "
                                  << of.states);
  of.run();
  // Each frame rounds logarithms of up to 4 per frame, a few times.
  const double unit = epsilon_of(of.x.dtype()), bound = 20 * unit * static_cast<double>(of.frames * of.frames + 2);
  for (int64_t b = 0; b < of.batch; ++b) {
    const Sums sums(of, b);
    const double loss = static_cast<double>(-std::log(sums.total)), dloss = of.dlosses.at(b);
    ASSERT_TRUE(std::isinf(loss) ? of.losses.at(b) == loss : near(of.losses.at(b), loss, unit, bound))
        << "sequence " << b << ": " << of.losses.at(b) << " for " << loss;
    for (int64_t t = 0; t < of.frames; ++t)
      for (int64_t s = 0; s < of.states; ++s) {
        const double got = of.dx.at((t * of.batch + b) * of.states + s);
        const bool inside = t < sums.frames && s < sums.states && dloss != 0;
        const auto at = static_cast<size_t>(t * sums.states + s);
        const double want = inside ? static_cast<double>(-dloss * sums.before[at] * sums.after[at] / sums.total) : 0;
        ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : near(got, want, unit, 2 * std::abs(dloss) * bound))
            << "sequence " << b << ", frame " << t << ", state " << s << ": " << got << " for " << want;
      }
  }
}

}  // namespace tern::kernels::ctc_test
