#pragma once
// Labelled images, and where they come from.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/datasets/part.h"
#include "tern/data/images/image.h"

namespace tern::data {

/// Labelled images: in memory, all of one size, or files of any size that are decoded each time they are asked for.
struct ImageDataset {
  std::string name;                // "cifar10", "digits" or the path
  Tensor pixels;                   // uint8 [size(), height, width, 3] in memory; undefined for files
  std::vector<std::string> files;  // [size()] for files, otherwise empty
  std::vector<int32_t> labels;     // [size()], 0 .. label_names.size() - 1
  std::vector<std::string> label_names;
  std::vector<Part> parts;  // [size()] where the set has an official split, otherwise empty

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  bool in_memory() const { return pixels.defined(); }
  /// One image, 3 channels. From several threads at a time. Throws Error: no such row, or a file that cannot be read
  /// (the message names it).
  Image image(int64_t row, const DecodeOptions& options = {}) const;
};

struct LoadImagesOptions {
  /// The labels of a trained model, in the order of its outputs: as for texts (LoadTextOptions).
  std::vector<std::string> known_labels = {};
  bool allow_download = true;                        // of `cifar10`, when it is not found on this machine
  std::function<void(const std::string&)> log = {};  // one line each: what is fetched, skipped, or not as published
};

/// Loads `source`:
///   "cifar10"    CIFAR-10: see cifar10.h
///   "digits"     1,797 handwritten digits of 8 x 8 pixels, embedded in the library (data/assets/README.md); their
///                intensities 0..16 are scaled to 0..255 and repeated for red, green and blue
///   a folder     of CIFAR-10's files, binary or Python's pickles: as cifar10. Otherwise train/LABEL/... and optionally
///                test/LABEL, val/LABEL; or LABEL/...: .png, .jpg and .jpeg files in any case, at any depth below
///                LABEL; hidden names are left out
/// A folder's label ids follow its sorted names (by bytes, as torchvision's ImageFolder does, also for numbers); rows
/// are read as train, val, test, each sorted by label and path. Files are listed here and decoded later. Throws Error:
/// no images, a label without any.
ImageDataset load_images(const std::string& source, const LoadImagesOptions& options = {});

}  // namespace tern::data
