#pragma once
// Labelled images and their sources.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/datasets/labelled_set.h"
#include "tern/data/images/image.h"

namespace tern::data {

/// Labelled images: in memory and all of one size, or files of any size that are decoded on each access.
struct ImageSet : LabelledSet {
  Tensor pixels = {};                   // uint8 [size(), height, width, 3] in memory; undefined for files
  std::vector<std::string> files = {};  // [size()] for files, otherwise empty

  bool in_memory() const { return pixels.defined(); }
  /// One image, 3 channels. May be called from several threads. Throws Error if the row does not exist, or if the file
  /// cannot be read (the message names the file).
  Image image(int64_t row, const DecodeOptions& options = {}) const;
  /// What an error calls an image: its file, or "digits: image 12".
  std::string name_of(int64_t row) const;
  /// SHA-256 of the labels and of the pixels, or of the files: their paths within the set's folder, sizes and contents.
  /// Files of more than `most_bytes` together are hashed in part: of each the first and the last bytes, most_bytes
  /// divided by the number of files, but at least 4 KiB; so a change in the middle of a file may not be seen there.
  /// `check` is called every few thousand files and may throw. A file that cannot be read counts as one without bytes.
  std::string content_hash(const std::function<void()>& check = nullptr, uint64_t most_bytes = uint64_t{1} << 30) const;
};

/// The sets that load_images finds by name. Without --data the program takes the first that is embedded or found.
const std::vector<NamedSet<ImageSet>>& named_image_sets();

/// Loads `source`:
///   "cifar10"    CIFAR-10: see cifar10.h
///   "digits"     1,797 handwritten digits of 8 x 8 pixels, embedded in the library (data/assets/README.md); their
///                intensities 0..16 are scaled to 0..255 and repeated for red, green and blue
///   "mnist", "fashion-mnist"  see mnist.h; they are not fetched
///   a folder     of CIFAR-10's files (binary or Python pickles): as "cifar10". Of MNIST's files: as "mnist", or as
///                "fashion-mnist" where its path has the word fashion. Otherwise train/LABEL/... and
///                optionally test/LABEL, val/LABEL; or LABEL/...: .png, .jpg, .jpeg, .jpe and .jfif files (any letter
///                case) at any depth below LABEL, also PNG and JPEG images without an extension or with another
///                format's; images of other formats are counted in one line of the log; hidden files and folders are
///                skipped
/// A folder's label ids follow its names sorted by bytes (as torchvision's ImageFolder does, also for numbers). Rows
/// are read as train, val, test, each sorted by label and path. This call lists the files; they are decoded later.
/// Throws Error if there are no images or if a label has none.
ImageSet load_images(const std::string& source, const LoadOptions& options = {});

}  // namespace tern::data
