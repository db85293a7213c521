#include "tern/models/onnx/registry.h"

namespace tern::onnx {

void add_signal_ops(Rows&) {}

}  // namespace tern::onnx
