#pragma once

#include <string>
#include <vector>

#include "tern/core/device.h"

namespace tern::cli {

struct ImagePredictArguments {
  std::string dir;                 // of the model
  std::vector<std::string> files;  // images; none: their names, or objects {"image": FILE}, come on stdin
  std::string attention;           // folder of attention maps; empty: none
  bool jsonl = false;
};

/// Writes a line for each image on stdout, in their order; bounded memory for endless input. Returns the exit status.
int predict_images(const ImagePredictArguments& arguments, Device device);

}  // namespace tern::cli
