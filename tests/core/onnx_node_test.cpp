// ONNX's node tests (tests/golden/make_onnx.py) through the ops of core: results, and that no case is forgotten.

#include <iterator>
#include <sstream>

#include "tern/tests/core/onnx_rows.h"

namespace tern::test::onnx {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

TEST(OnnxNode, GivesTheOutputs) {
  for (const Case& c : cases_to_run(cpu)) expect_outputs(c, rows().at(c.op));
}

TEST(OnnxNode, OfViewsGivesTheOutputs) {
  for (Case& c : cases_to_run(cpu)) {
    for (Tensor& x : c.inputs) x = strided(x);
    expect_outputs(c, rows().at(c.op));
  }
}

/// Each case has one row, or one reason to be left out; each row and each reason has a case.
TEST(OnnxNode, EveryCaseIsRunOrLeftOut) {
  std::map<std::string, int> reasons, ops;  // of ops that are left out; how often each entry is used
  for (const auto& [reason, names] : kLeftOutOps)
    for (const std::string& name : words_of(names)) EXPECT_TRUE(reasons.emplace(name, 0).second) << name << " twice";
  std::set<std::string> named;
  int run = 0, all = 0;
  for (const Case& c : load_cases(cpu)) {
    SCOPED_TRACE(testing::Message() << c.name << ", " << c.op << ": " << c.missing);
    ++all;
    if (kLeftOutCases.contains(c.name)) {
      EXPECT_TRUE(c.missing != "op" && !c.missing.starts_with("type "));
      named.insert(c.name);
    } else if (c.missing.starts_with("type ")) {
      for (int dtype = 0; dtype <= static_cast<int>(boolean); ++dtype)
        EXPECT_NE(c.missing, std::string("type ") + name_of(static_cast<DType>(dtype)));
    } else if (c.missing == "op") {
      EXPECT_TRUE(reasons.contains(c.op));
      ++reasons[c.op];
    } else {
      EXPECT_TRUE(c.missing.empty());
      EXPECT_EQ(rows().contains(c.op) + kOptimizers.contains(c.op), 1);
      ++ops[c.op];
      ++run;
    }
  }
  for (const auto& [op, uses] : reasons) EXPECT_GT(uses, 0) << op << " has no case";
  for (const auto& [name, reason] : kLeftOutCases) EXPECT_TRUE(named.contains(name)) << "no case " << name;
  for (const auto& [op, row] : rows()) EXPECT_GT(ops[op], 0) << op << " has no case";
  for (const std::string& op : kOptimizers) EXPECT_GT(ops[op], 0) << op << " has no case";
  EXPECT_EQ(run, 928);  // as CONTRIBUTING.md says
  EXPECT_EQ(all, 1404);
}

}  // namespace
}  // namespace tern::test::onnx
