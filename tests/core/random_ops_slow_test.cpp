// Random calls of ops against PyTorch. TERN_RANDOM_OPS names the folder that tests/golden/random_ops.py wrote.

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
