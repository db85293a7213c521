// TERN_ONNX=OFF.

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/export/exporter.h"
#include "tern/models/onnx/model_file.h"
#include "tern/models/onnx/weights.h"

namespace tern::onnx {

ModelDef read_model(const std::string& path) {
  fail("cannot read ", path, ": this build of Tern has no protobuf; configure Tern with -DTERN_ONNX=ON");
}

void rewrite_file(const MappedFile&, const std::string& target, const std::vector<SavedTensor>&, const FileChanges&) {
  write_model({}, target, 0);
}

void write_model(const ModelDef&, const std::string& path, int64_t) {
  fail("cannot write ", path, ": this build of Tern has no protobuf; configure Tern with -DTERN_ONNX=ON");
}

}  // namespace tern::onnx
