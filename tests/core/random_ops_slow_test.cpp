// Random calls of ops against PyTorch. TERN_RANDOM_OPS names the folder that tests/golden/random_ops.py wrote.
//
// What differs on purpose, and is reported all the same where a case meets it (PyTorch 2.15):
//   fmod, remainder        exact where PyTorch's vectorised loop gives NaN, because the quotient overflows
//   i0, ndtr, polygamma    more digits in the tails; i0(-inf) is infinite
//   quantile, nanquantile  an infinite element that is picked is the result, not NaN; of equal elements another one may
//                          take the gradient
//   nll_loss               the mean is 0 where all weights are (docs: cross_entropy.h)
//   gcd, remainder, ...    integers are computed in 64 bits and the result is wrapped: a uint8 tensor beside a
//                          0-dimensional int64 of 300 sees 300, where PyTorch sees 44
//   var of 0 dimensions    without degrees of freedom: the formula of the other shapes, not NaN
//   normalize              the norm of one number is the root of its square, which overflows
//   div                    fp64 with a denominator below the normal numbers: its reciprocal overflows

#include <cstdlib>
#include <filesystem>
#include <set>

#include "tern/tests/core/random_ops_index_rows.h"
#include "tern/tests/core/random_ops_layer_rows.h"
#include "tern/tests/core/random_ops_rows.h"

namespace tern::test::random_ops {
namespace {

TEST(RandomOps, GiveTheResultsOfPyTorch) {
  const char* const folder = std::getenv("TERN_RANDOM_OPS");
  if (folder == nullptr)
    GTEST_SKIP() << "pytorch: TERN_RANDOM_OPS does not name a folder of tests/golden/random_ops.py";
  Table table = rows();
  table.merge(index_rows());
  table.merge(layer_rows());
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.insert(entry.path());
  std::map<std::string, int> run, failed;
  for (const std::filesystem::path& file : files) {
    for (const Case& c : load_cases(file)) {
      ++run[c.family];
      const auto row = table.find(c.op);
      ASSERT_NE(row, table.end()) << c.op;
      const std::string found = difference(c, row->second);
      if (found.empty()) continue;
      std::ostringstream inputs;
      for (size_t i = 0; i < c.inputs.size(); ++i)
        if (c.inputs[i].defined()) inputs << ", " << c.inputs[i].describe() << " " << c.layouts[i].get<std::string>();
      if (++failed[c.op] <= 5)
        ADD_FAILURE() << c.op << ", case " << c.number << " of " << file.filename().string() << ", " << c.arguments
                      << inputs.str() << ": " << found;
    }
  }
  int all = 0;
  for (const auto& [family, count] : run) {
    std::cout << family << ": " << count << " cases\n";
    all += count;
  }
  for (const auto& [op, count] : failed) ADD_FAILURE() << op << ": " << count << " cases differ";
  EXPECT_GT(all, 0) << folder << " has no cases";
}

}  // namespace
}  // namespace tern::test::random_ops
