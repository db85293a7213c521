#pragma once
// CIFAR-10, its binary or its Python version: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images",
// 2009. 50,000 images of 32 x 32 pixels for training and 10,000 for testing, ten classes.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tern/data/datasets/image_set.h"

namespace tern::data {

/// The folder of CIFAR-10 on this machine: cifar-10-batches-bin in $TERN_DATA or the cache, otherwise
/// cifar-10-batches-py in $TERN_DATA or the cache. Fetches nothing.
std::optional<std::string> find_cifar10();

/// find_cifar10(); otherwise fetches the official archive (170 MB) to the cache, checks its SHA-256 and unpacks it.
/// Throws Error in one line when that fails.
std::string fetch_cifar10(const std::function<void(const std::string&)>& log = {});

/// True when it holds data_batch_1.bin (the binary version) or data_batch_1 (the Python version).
bool is_cifar10(const std::string& folder);

/// data_batch_1.bin .. data_batch_5.bin (Part::kTrain), then test_batch.bin (Part::kTest), in the order of their
/// records, with the class names of batches.meta.txt (the official ones where it is missing). Without data_batch_1.bin
/// the Python version's pickles: data_batch_1 .. data_batch_5, test_batch, batches.meta. Throws Error with file and
/// byte: a file that is missing or does not hold exactly 10,000 images, a label above 9; also the errors of
/// load_pickle.
ImageSet read_cifar10(const std::string& folder);

/// How a set of read_cifar10 differs from the published one, which has 5,000 images of each class for training and
/// 1,000 for testing, in one line. Empty when it does not differ.
std::string cifar10_difference(const ImageSet& set);

/// Records of 3,073 bytes: the label, then 1,024 bytes each of red, green and blue, rows from the top. `bytes` must
/// hold exactly `records` of them. Writes pixels [records, 32, 32, 3] and labels [records]. Throws Error that begins
/// with `name` and says at which byte.
void read_cifar10_records(std::string_view bytes, const std::string& name, int64_t records, uint8_t* pixels,
                          int32_t* labels);

/// A pickled dict of "data", a numpy array of uint8 [images, 3072] whose rows are as above without the label, and
/// "labels", a list. Other entries are ignored. Writes and throws like read_cifar10_records.
void read_cifar10_batch(const std::string& path, int64_t images, uint8_t* pixels, int32_t* labels);

}  // namespace tern::data
