#include "tern/models/onnx/registry.h"

namespace tern::onnx {

void add_recurrent_ops(Rows&) {}

}  // namespace tern::onnx
