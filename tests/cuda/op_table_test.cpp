// docs/ops.md, the table of all ops: made by calling each of them (op_table_rows.h, op_table_images.h) with every dtype
// on both devices, and compared with the committed file. TERN_WRITE_OPS=1 writes the file. An op of the headers without
// a row is a failure.

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tern/tests/cuda/op_table_images.h"
#include "tern/tests/cuda/op_table_rows.h"
#include "tern/tests/places.h"

namespace tern::test {
namespace {

/// Members of Tensor that are no ops, what takes no tensor, and what is internal.
const std::set<std::string> kNoOps = {"grad", "detach", "sequence_positions", "dropout_of", "integer_beside"};

std::vector<OpRow> op_rows() {
  OpRows table;
  for (const auto add :
       {pointwise_rows, reduction_rows, order_rows, index_rows, product_rows, image_rows, loss_rows, view_rows})
    add(table);
  return table.rows();
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(source_dir() + "/" + path).rdbuf();
  return text.str();
}

/// The headers of ops, without "core/". The steps of a row chain are methods, each of them an op of another header.
std::vector<std::string> headers() {
  std::vector<std::string> names = {"tensor.h"};
  const std::string text = text_of("core/ops/ops.h");
  const std::regex pattern(R"(tern/core/(ops/(?!row_chain)\S+\.h))");
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) names.push_back((*it)[1]);
  return names;
}

/// The ops that a header declares, in its order: functions, and in tensor.h members.
std::vector<std::string> declared_in(const std::string& header) {
  const std::string start = header == "tensor.h" ? "\n  " : "\n", text = text_of("core/" + header);
  const std::string types =
      "Tensor|SortResult|UniqueResult|SumAndNorm|Extremes|VarMean|StdMean|Histogram|MaxPoolResult|RecurrentResult";
  const std::regex pattern(start + "(?:" + types + R"(|std::vector<Tensor>) (\w+)\()");
  std::vector<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    const std::string name = (*it)[1];
    if (!kNoOps.count(name) && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

/// [4, 4] of numbers between 0 and 1, or integers from 0 to 3.
Tensor input(DType dtype, Device device) {
  std::vector<double> values;
  for (int i = 0; i < 16; ++i) values.push_back(is_floating(dtype) ? 0.05 + 0.055 * (i * 7 % 16) : i * 7 % 16 % 4);
  return tensor(values).reshape({4, 4}).to(dtype).to(device);
}

/// The dtypes with which the op gives a result on the device.
std::set<DType> accepted(const OpRow& row, Device device) {
  std::set<DType> result;
  const auto gives_result = [&](DType dtype) {
    try {
      row.call(input(dtype, device));
      synchronize(device);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  for (const DType dtype : {float64, float32, bfloat16, float16, int64, int32, uint8, boolean})
    if (gives_result(dtype)) result.insert(dtype);
  return result;
}

std::string describe(const std::set<DType>& dtypes) {
  const std::set<DType> floats = {float64, float32, bfloat16, float16}, integers = {int64, int32, uint8};
  std::vector<std::string> parts;
  const auto has = [&](const std::set<DType>& all) {
    return std::includes(dtypes.begin(), dtypes.end(), all.begin(), all.end());
  };
  if (dtypes.size() == 8) return "all";
  std::set<DType> rest = dtypes;
  const auto take = [&](const std::set<DType>& all, const std::string& name) {
    if (!has(all)) return;
    parts.push_back(name);
    for (const DType dtype : all) rest.erase(dtype);
  };
  take(floats, "floats");
  take(integers, "integers");
  for (const DType dtype : rest) parts.push_back(name_of(dtype));
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

/// Whether a float64 input gets a gradient, and whether this has one.
std::string differentiable(const OpRow& row) {
  const Tensor x = input(float64, {}).set_requires_grad(true);
  const Tensor y = row.call(x);
  if (!is_floating(y.dtype()) || !y.requires_grad()) return "no";
  const Tensor first = grad({sum(square(y))}, {x}, {.create_graph = true})[0];
  try {
    grad({sum(square(first))}, {x}, {.allow_unused = true});
    return "twice";
  } catch (const Error&) {
    return "once";
  }
}

std::string line_of(const OpRow& row, const std::string& header, bool in_place) {
  const std::set<DType> cpu = accepted(row, {}), cuda = accepted(row, kCuda);
  EXPECT_FALSE(cpu.empty()) << row.name << " takes no dtype";
  const std::string devices = cpu == cuda ? "CPU, CUDA" : cuda.empty() ? "CPU" : "CPU; CUDA: " + describe(cuda);
  return "| `" + row.name + "` | " + (row.torch == "none" ? "" : "`" + row.torch + "`") + " | core/" + header + " | " +
         describe(cpu) + " | " + devices + " | " + (cpu.count(float64) ? differentiable(row) : "no") + " | " +
         (in_place ? "`" + row.name + "_`" : "") + " |\n";
}

const char* const kIntroduction = R"(# Ops

All ops of Tern, with the names that they have in PyTorch (`F` is `torch.nn.functional`). The headers say what they do.

- **dtypes**: what the first tensor may be; floats are float64, float32, bfloat16 and float16, integers int64, int32 and
  uint8. Functions such as `exp` give float32 for integers.
- **differentiable**: a second derivative is taken with `create_graph` (core/autograd/engine.h).
- **in place**: the member of Tensor that replaces its contents. There are also `copy_`, `fill_` and `zero_`.

The test `cuda_op_table_test` makes this table by calling every op and compares it with this file; with
`TERN_WRITE_OPS=1` it writes the file.

| op | PyTorch | header | dtypes | devices | differentiable | in place |
|---|---|---|---|---|---|---|
)";

class OpTable : public DeviceTest {};

TEST_F(OpTable, IsCurrent) {
  const std::vector<OpRow> rows = op_rows();
  const std::string members = text_of("core/tensor.h");
  std::string table = kIntroduction;
  std::set<std::string> seen;
  for (const std::string& header : headers()) {
    const std::vector<std::string> names = declared_in(header);
    EXPECT_FALSE(names.empty()) << header;
    for (const std::string& name : names) {
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const OpRow& r) { return r.name == name; });
      if (row == rows.end()) {
        ADD_FAILURE() << header << " declares " << name << ", which has no row in op_table_rows.h";
        continue;
      }
      if (!seen.insert(name).second) continue;
      const bool in_place = members.find("Tensor& " + name + "_(") != std::string::npos;
      table += line_of(*row, header, in_place);
    }
  }
  for (const OpRow& row : rows) EXPECT_TRUE(seen.count(row.name)) << row.name << " is declared in no header";
  if (std::getenv("TERN_WRITE_OPS")) std::ofstream(source_dir() + "/docs/ops.md") << table;
  EXPECT_TRUE(table == text_of("docs/ops.md"))
      << "docs/ops.md is not current: run this test with TERN_WRITE_OPS=1 and commit the file";
}

}  // namespace
}  // namespace tern::test
