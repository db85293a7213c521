// Memory shared with other libraries, and NumPy's files.

#include <tern/tern.h>

#include <filesystem>
#include <iostream>

using namespace tern;

/// Doubles the numbers of a tensor that comes from another library, and hands it back.
DLManagedTensorVersioned* doubled_in_place(DLManagedTensorVersioned* given) {
  Tensor x = from_dlpack(given);  // the other library's memory
  x.mul_(2);
  return to_dlpack(x);  // keeps it, also when x is gone
}

int main() {
  auto* const numbers = new float[6]{0, 1, 2, 3, 4, 5};
  const Tensor x = from_blob(numbers, {2, 3}, float32, [numbers] { delete[] numbers; });
  const Tensor turned = from_blob(numbers, {3, 2}, {1, 3}, float32);  // with strides, in elements

  const Tensor y = from_dlpack(doubled_in_place(to_dlpack(x)));
  std::cout << y << "\n" << turned << "\none memory: " << (y.raw_data() == numbers ? "yes" : "no") << "\n";

  save_npy(x, "x.npy");  // numpy.load("x.npy")
  save_npz({{"x", x}, {"layer/weight", turned.to(bfloat16)}}, "several.npz");
  const Tensor back = load_npy("x.npy");
  const NumpyFile several = load_npz("several.npz");
  for (const NamedTensor& entry : several.tensors) std::cout << entry.name << ": " << entry.tensor.describe() << "\n";
  const bool right = allclose(back, y) && allclose(find(several.tensors, "layer/weight").to(float32), x.t());
  for (const char* file : {"x.npy", "several.npz"}) std::filesystem::remove(file);
  return right && numbers[5] == 10 ? 0 : 1;
}
