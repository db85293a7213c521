#include "tern/models/onnx/registry.h"

namespace tern::onnx {

void add_pool_ops(Rows&) {}

}  // namespace tern::onnx
