#include "tern/models/onnx/registry.h"

namespace tern::onnx {

void add_attention_ops(Rows&) {}

}  // namespace tern::onnx
