#pragma once
// The rows that read and augment images: a folder of JPEG files, and CIFAR-10 in memory.

#include <cstdint>
#include <functional>

namespace tern::bench {

/// One pass over images; returns the number of images produced.
using ImagePass = std::function<int64_t()>;

/// Passes over the folder $TERN_BENCH_JPEGS (train/LABEL/*.jpg): decodes every file, resizes a random crop to 224 x
/// 224, flips, normalises; batches of 32; reshuffled in each pass. Throws Error without the folder.
ImagePass jpeg_folder(int workers);

/// Passes over the first 10,000 images of $TERN_DATA/cifar-10-batches-bin: padded by 4, cropped to 32 x 32, flipped,
/// normalised; batches of 128; shuffled. Runs in the calling thread. Throws Error without the folder.
ImagePass cifar_augment();

}  // namespace tern::bench
