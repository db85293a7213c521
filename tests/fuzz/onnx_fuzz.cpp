// ONNX files: read, described, and run with zeros where their inputs are small.

#include "tern/core/autograd/grad_mode.h"
#include "tern/models/onnx/onnx.h"
#include "tern/tests/fuzz/fuzz.h"

void tern::fuzz::try_input(std::string_view input) {
  const std::string path = write_file("input.onnx", input);
  read([&] { onnx::describe(path); });
  read([&] {
    NoGrad off;
    const auto model = onnx::load(path);
    std::vector<std::vector<Tensor>> inputs;
    for (const onnx::ValueInfo& info : model->inputs()) {
      std::vector<int64_t> sizes;
      for (const onnx::Dimension& dimension : info.shape) sizes.push_back(dimension.size < 0 ? 1 : dimension.size);
      const Shape shape(sizes);
      if (shape.numel() > 4096) return;
      inputs.push_back({zeros(shape, {.dtype = info.dtype})});
    }
    model->forward_lists(inputs);
    model->save(path);
  });
}
