#pragma once
// The images of tests/golden/transforms.safetensors, which transforms_test.cpp describes.

#include <algorithm>
#include <string>

#include "tern/core/io/safetensors.h"
#include "tern/data/images/image.h"
#include "tern/tests/data/support.h"
#include "tern/tests/places.h"

namespace tern::data {

inline const StateView& golden() {
  static const StateView tensors =
      load_safetensors(test::source_dir() + "/tests/golden/transforms.safetensors").tensors;
  return tensors;
}

inline Image image_of(const Tensor& tensor) {
  Image image(tensor.size(0), tensor.size(1), tensor.size(2));
  std::copy_n(tensor.data<uint8_t>(), image.pixels.size(), image.pixels.begin());
  return image;
}
inline Image golden_image(const std::string& name) { return image_of(find(golden(), name)); }

}  // namespace tern::data
