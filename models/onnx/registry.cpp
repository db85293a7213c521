#include "tern/models/onnx/registry.h"

#include <algorithm>
#include <unordered_map>

namespace tern::onnx {
namespace {

using Table = std::unordered_map<std::string, std::vector<OpRow>>;

const Table& op_table() {
  static const Table table = [] {
    Rows rows;
    for (const auto add :
         {add_pointwise_ops, add_cast_ops, add_shape_ops, add_index_ops, add_reduce_ops, add_matmul_ops,
          add_convolution_ops, add_pool_ops, add_resize_ops, add_norm_ops, add_loss_ops, add_attention_ops,
          add_recurrent_ops, add_quantize_ops, add_control_ops, add_signal_ops})
      add(rows);
    Table result;
    for (const OpRow& row : rows) result[std::string(row.domain) + ":" + row.op].push_back(row);
    for (auto& [name, versions] : result)
      std::sort(versions.begin(), versions.end(), [](const OpRow& a, const OpRow& b) { return a.since < b.since; });
    return result;
  }();
  return table;
}

}  // namespace

const OpRow* find_op(const std::string& domain, const std::string& op, int64_t opset) {
  const auto found = op_table().find(domain + ":" + op);
  if (found == op_table().end()) return nullptr;
  const OpRow* best = nullptr;
  for (const OpRow& row : found->second)
    if (row.since <= opset) best = &row;
  return best;
}

bool knows_op(const std::string& domain, const std::string& op) { return op_table().contains(domain + ":" + op); }

}  // namespace tern::onnx
