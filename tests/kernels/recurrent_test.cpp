// Recurrent layers and their gradients, against loops in double precision.

#include "tern/tests/kernels/contracts/recurrent.h"

namespace tern::kernels {
namespace {

using recurrent_test::Case, recurrent_test::Inputs, recurrent_test::Layout, recurrent_test::Numbers,
    recurrent_test::Sizes;

class Recurrent : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Recurrent, testing::ValuesIn(library_targets()), name_of_target);

constexpr RecurrentKind kKinds[] = {RecurrentKind::kLstm, RecurrentKind::kGru, RecurrentKind::kTanh,
                                    RecurrentKind::kRelu};

/// body(case): sizes around those of registers and threads, all layouts.
template <class Body>
void for_each_case(std::mt19937_64& random, const std::vector<Sizes>& all, const Body& body) {
  for (const RecurrentKind kind : kKinds)
    for (Sizes sizes : all)
      for (const DType dtype : kFloatTypes) {
        if (!takes_case(40 * sizes.batch * sizes.longest * sizes.hidden, random)) continue;
        if (kind != RecurrentKind::kLstm) sizes.projected = 0;
        sizes.with_state = random() % 2;
        sizes.with_bias = random() % 4 != 0;
        sizes.layout = static_cast<Layout>(random() % 3);
        Case of(dtype, kind, sizes, random);
        for (Array* array : {&of.output, &of.dgates, &of.previous}) array->fill(1e4);  // kept in rows of no sequence
        SCOPED_TRACE(describe(of));
        body(of);
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST_P(Recurrent, Forward) {
  const std::vector<Sizes> all = {{1, 1, 1, 0},   {3, 4, 5, 2},   {7, 6, 16, 0},   {13, 5, 33, 0}, {25, 3, 64, 0},
                                  {2, 40, 17, 0}, {6, 3, 70, 35}, {17, 2, 130, 0}, {0, 3, 4, 0},   {5, 1, 65, 64}};
  for_each_case(random, all, [&](Case& of) {
    of.run(true);
    const recurrent_test::Results expected = of.definition(of.numbers());
    for (const std::vector<int64_t>& own : of.sequences.rows)
      for (const int64_t row : own)
        for (int64_t k = row * of.state(); k < (row + 1) * of.state(); ++k)
          ASSERT_TRUE(std::fabs(of.output.at(k) - expected.output[k]) <=
                      error_of(of) * (1 + std::fabs(expected.output[k])))
              << "row " << row << ": " << of.output.at(k) << " and " << expected.output[k];
    recurrent_test::expect_close("last", of.last.values(), expected.last, error_of(of));
    if (of.is_lstm())
      recurrent_test::expect_close("last_cell", of.last_cell.values(), expected.last_cell, error_of(of));
    // Without what backward needs, the same.
    const Numbers last = of.last.values(), output = of.output.values();
    of.run(false);
    EXPECT_EQ(of.last.values(), last);
    EXPECT_EQ(of.output.values(), output);
    EXPECT_EQ(of.gates.values(), of.inputs.values());
    // With a weight that was packed before, the same.
    of.packs = true;
    of.run(false);
    EXPECT_EQ(of.last.values(), last);
    EXPECT_EQ(of.output.values(), output);
  });
}

TEST_P(Recurrent, Gradients) {
  const std::vector<Sizes> all = {{1, 1, 1, 0}, {3, 4, 5, 2}, {7, 3, 6, 0}, {2, 9, 3, 0}, {0, 3, 4, 0}, {14, 2, 3, 2}};
  for_each_case(random, all, [&](Case& of) {
    of.run(true);
    of.packs = random() % 2;
    run_kernel([&](Call& on) { of.backward(on); });
    const Numbers dgates = of.dgates.values(), dinitial = of.dinitial.values();
    of.packs = !of.packs;  // with a weight that was packed before and without, the same
    run_kernel([&](Call& on) { of.backward(on); });
    EXPECT_EQ(of.dgates.values(), dgates);
    EXPECT_EQ(of.dinitial.values(), dinitial);
    const double error = 4 * error_of(of) + 1e-7;  // of the differences
    of.definition(of.numbers());
    if (of.definition.nearest < error + 1e-4) return;
    const Numbers gates = of.slopes(&Inputs::gates);
    for (const std::vector<int64_t>& own : of.sequences.rows)
      for (const int64_t row : own)
        for (int64_t k = row * of.width(); k < (row + 1) * of.width(); ++k)
          ASSERT_TRUE(std::fabs(of.dgates.at(k) - gates[k]) <= error * 4) << of.dgates.at(k) << " and " << gates[k];
    recurrent_test::expect_close("weight",
                                 product_over_rows(of, of.is_gru() ? of.dstate_gates : of.dgates, of.previous),
                                 of.slopes(&Inputs::weight), error);
    if (of.projects())
      recurrent_test::expect_close("projection", product_over_rows(of, of.dprojected, of.unprojected),
                                   of.slopes(&Inputs::projection), error);
    recurrent_test::expect_close("initial", of.dinitial.values(), of.slopes(&Inputs::initial), error);
    if (of.is_lstm())
      recurrent_test::expect_close("cell", of.dinitial_cell.values(), of.slopes(&Inputs::initial_cell), error);
  });
}

/// Any number of threads, on the CPU, gives the same bits.
TEST_P(Recurrent, EveryRunGivesTheSameBits) {
  for_each_case(random, {{29, 4, 37, 20}, {5, 7, 20, 0}}, [&](Case& of) {
    expect_same_in_every_run({&of.output, &of.last, &of.dgates, &of.previous, &of.dinitial}, [&](Call& on) {
      // Rows of no sequence are not written.
      for (Array* array : {&of.output, &of.dgates, &of.previous}) array->fill(0);
      of.gates.set(of.inputs.values());
      of.forward(on, true);
      of.backward(on);
    });
  });
}

}  // namespace
}  // namespace tern::kernels
