#pragma once
// The rows that read and augment images: a folder of JPEG files, and CIFAR-10 in memory.

#include <cstdint>
#include <functional>

namespace tern::bench {

/// A pass over images: calls it once, returns how many images came out.
using ImagePass = std::function<int64_t()>;

/// Passes over the folder $TERN_BENCH_JPEGS (train/LABEL/*.jpg): every file decoded anew, a random part of it resized
/// to 224 x 224, flipped, normalised, in batches of 32; shuffled anew in each pass. Throws Error without the folder.
ImagePass jpeg_folder(int workers);

/// Passes over the first 10,000 images of $TERN_DATA/cifar-10-batches-bin: padded by 4, cropped to 32 x 32, flipped,
/// normalised, in batches of 128; shuffled. All in the calling thread. Throws Error without the folder.
ImagePass cifar_augment();

}  // namespace tern::bench
