#pragma once
// The table of the ops that can be computed. Each file of ops/ adds the rows of a family.

#include <string>
#include <vector>

#include "tern/models/onnx/call.h"

namespace tern::onnx {

/// Computes a node: reads its inputs, sets its outputs.
using Evaluate = void (*)(Call& call);
/// What of a node is not supported; empty: nothing.
using Refuse = std::string (*)(const NodeDef& node, int64_t opset);

struct OpRow {
  const char* op;
  int64_t since;  // opset from which on the row holds, up to the next row of the op
  Evaluate run;
  Refuse refuse = nullptr;
  const char* domain = "";
};

/// The row of an op at an opset of its domain, or null.
const OpRow* find_op(const std::string& domain, const std::string& op, int64_t opset);
/// Whether the op is known at any opset.
bool knows_op(const std::string& domain, const std::string& op);

using Rows = std::vector<OpRow>;
void add_pointwise_ops(Rows& rows);
void add_cast_ops(Rows& rows);
void add_shape_ops(Rows& rows);
void add_index_ops(Rows& rows);
void add_reduce_ops(Rows& rows);
void add_matmul_ops(Rows& rows);
void add_convolution_ops(Rows& rows);
void add_pool_ops(Rows& rows);
void add_resize_ops(Rows& rows);
void add_norm_ops(Rows& rows);
void add_loss_ops(Rows& rows);
void add_attention_ops(Rows& rows);
void add_recurrent_ops(Rows& rows);
void add_quantize_ops(Rows& rows);
void add_control_ops(Rows& rows);
void add_signal_ops(Rows& rows);

}  // namespace tern::onnx
