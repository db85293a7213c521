#pragma once
// CIFAR-10 in its binary records: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. 50,000
// images of 32 x 32 pixels for training and 10,000 for testing, ten classes.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tern/data/datasets/image_dataset.h"

namespace tern::data {

/// The cifar-10-batches-bin folder on this machine: $TERN_DATA/cifar-10-batches-bin, otherwise the cache's. Nothing is
/// fetched. A folder counts when it holds data_batch_1.bin.
std::optional<std::filesystem::path> find_cifar10();

/// find_cifar10(), or the official archive (170 MB) fetched to the cache, checked by its SHA-256 and unpacked. Throws
/// Error in one line when it cannot be had.
std::filesystem::path fetch_cifar10(const std::function<void(const std::string&)>& log = {});

/// data_batch_1.bin .. data_batch_5.bin (Part::kTrain), then test_batch.bin (Part::kTest), in the order of their
/// records, with the class names of batches.meta.txt (the official ones where it is missing). Throws Error with file
/// and byte: a file that is missing or has not exactly 10,000 records, a label above 9.
ImageDataset read_cifar10(const std::filesystem::path& folder);

/// Records of 3,073 bytes: the label, then 1,024 bytes each of red, green and blue, rows from the top. `bytes` must
/// hold exactly `records` of them. Writes pixels [records, 32, 32, 3] and labels [records]. Throws Error that begins
/// with `name` and says at which byte.
void read_cifar10_records(std::string_view bytes, const std::string& name, int64_t records, uint8_t* pixels,
                          int32_t* labels);

}  // namespace tern::data
