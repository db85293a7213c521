#include "tern/models/onnx/registry.h"

namespace tern::onnx {

void add_resize_ops(Rows&) {}

}  // namespace tern::onnx
