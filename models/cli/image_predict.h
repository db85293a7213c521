#pragma once

#include <string>
#include <vector>

#include "tern/core/device/device.h"

namespace tern::cli {

struct ImagePredictArguments {
  std::string dir;                 // model folder
  std::vector<std::string> files;  // images; empty: stdin has their names, or objects {"image": FILE}
  std::string attention;           // folder of attention maps; empty: none
  bool jsonl = false;
};

/// Writes one line per image to stdout, in input order; memory is bounded for endless input. Returns the exit status.
int predict_images(const ImagePredictArguments& arguments, Device device);

}  // namespace tern::cli
