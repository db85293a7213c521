// TERN_ONNX=OFF.

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/model_file.h"

namespace tern::onnx {

ModelDef read_model(const std::string& path) {
  fail("cannot read ", path, ": this build of Tern has no protobuf; configure Tern with -DTERN_ONNX=ON");
}

}  // namespace tern::onnx
