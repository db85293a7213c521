#pragma once
// Labelled images and their sources.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/datasets/part.h"
#include "tern/data/images/image.h"

namespace tern::data {

/// Labelled images: in memory and all of one size, or files of any size that are decoded on each access.
struct ImageDataset {
  std::string name;                // "cifar10", "digits" or the path
  Tensor pixels;                   // uint8 [size(), height, width, 3] in memory; undefined for files
  std::vector<std::string> files;  // [size()] for files, otherwise empty
  std::vector<int32_t> labels;     // [size()], 0 .. label_names.size() - 1
  std::vector<std::string> label_names;
  std::vector<Part> parts;  // [size()] where the set has an official split, otherwise empty

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  bool in_memory() const { return pixels.defined(); }
  /// One image, 3 channels. May be called from several threads. Throws Error if the row does not exist, or if the file
  /// cannot be read (the message names the file).
  Image image(int64_t row, const DecodeOptions& options = {}) const;
};

struct LoadImagesOptions {
  /// The labels of a trained model, in the order of its outputs; same rules as LoadTextOptions::known_labels.
  std::vector<std::string> known_labels = {};
  bool allow_download = true;                        // of "cifar10", if it is not on this machine
  std::function<void(const std::string&)> log = {};  // one line per fetched, skipped or unexpected file
};

/// Loads `source`:
///   "cifar10"    CIFAR-10: see cifar10.h
///   "digits"     1,797 handwritten digits of 8 x 8 pixels, embedded in the library (data/assets/README.md); their
///                intensities 0..16 are scaled to 0..255 and repeated for red, green and blue
///   a folder     of CIFAR-10's files (binary or Python pickles): as "cifar10". Otherwise train/LABEL/... and
///                optionally test/LABEL, val/LABEL; or LABEL/...: .png, .jpg and .jpeg files (any letter case) at any
///                depth below LABEL; hidden files and folders are skipped
/// A folder's label ids follow its names sorted by bytes (as torchvision's ImageFolder does, also for numbers). Rows
/// are read as train, val, test, each sorted by label and path. This call lists the files; they are decoded later.
/// Throws Error if there are no images or if a label has none.
ImageDataset load_images(const std::string& source, const LoadImagesOptions& options = {});

}  // namespace tern::data
