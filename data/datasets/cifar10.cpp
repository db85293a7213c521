#include "tern/data/datasets/cifar10.h"

#include <array>

#include "tern/core/check.h"
#include "tern/data/datasets/fetched_folder.h"
#include "tern/data/datasets/files.h"
#include "tern/data/datasets/label_index.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kSide = 32, kPlane = kSide * kSide, kPixelBytes = 3 * kPlane, kRecordBytes = 1 + kPixelBytes;
constexpr int64_t kFileRecords = 10000;
constexpr int kClasses = 10;
const std::array<std::pair<const char*, Part>, 6> kFiles = {{{"data_batch_1.bin", Part::kTrain},
                                                             {"data_batch_2.bin", Part::kTrain},
                                                             {"data_batch_3.bin", Part::kTrain},
                                                             {"data_batch_4.bin", Part::kTrain},
                                                             {"data_batch_5.bin", Part::kTrain},
                                                             {"test_batch.bin", Part::kTest}}};

const Download kArchive = {
    .url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    .bytes = 170052171,
    .sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
};
const FetchedFolder kCifar10 = {
    .name = "cifar10",
    .folder = "cifar-10-batches-bin",
    .archive = kArchive,
    .most_unpacked_bytes = int64_t{1} << 29,
    .contents = "cifar-10-batches-bin/data_batch_1.bin",
    .is_complete =
        [](const fs::path& folder) {
          std::error_code ignored;
          return fs::exists(folder / kFiles[0].first, ignored);
        },
};

/// Three planes to pixels.
void interleave(const uint8_t* __restrict in, uint8_t* __restrict out) {
  for (int64_t i = 0; i < kPlane; ++i) {
    out[i * 3] = in[i];
    out[i * 3 + 1] = in[kPlane + i];
    out[i * 3 + 2] = in[2 * kPlane + i];
  }
}

std::vector<std::string> class_names(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    return {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  std::string text;
  read_file(path, text);
  std::vector<std::string> names;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view name = trim(std::string_view(text).substr(at, end - at));
    if (!name.empty()) names.emplace_back(name);
    at = end + 1;
  }
  TERN_CHECK(names.size() == kClasses, path.string(), ": expected ", kClasses, " class names, one a line, got ",
             names.size());
  return names;
}

}  // namespace

std::optional<fs::path> find_cifar10() { return find_folder(kCifar10); }

fs::path fetch_cifar10(const std::function<void(const std::string&)>& log) { return fetch_folder(kCifar10, log); }

void read_cifar10_records(std::string_view bytes, const std::string& name, int64_t records, uint8_t* pixels,
                          int32_t* labels) {
  const int64_t size = static_cast<int64_t>(bytes.size()), expected = records * kRecordBytes;
  TERN_CHECK(size >= expected, name, ": expected ", expected, " bytes (", records, " records of ", kRecordBytes,
             "), but it ends at byte ", size, ", in record ", size / kRecordBytes);
  TERN_CHECK(size == expected, name, ": expected ", expected, " bytes (", records, " records of ", kRecordBytes,
             "), got ", size, ": more follows at byte ", expected);
  for (int64_t record = 0; record < records; ++record) {
    const auto* in = reinterpret_cast<const uint8_t*>(bytes.data()) + record * kRecordBytes;
    TERN_CHECK(*in < kClasses, name, ": label ", int{*in}, " at byte ", record * kRecordBytes, " (record ", record,
               "); expected 0 to ", kClasses - 1);
    labels[record] = *in++;
    interleave(in, pixels + record * kPixelBytes);
  }
}

ImageDataset read_cifar10(const fs::path& folder) {
  ImageDataset set;
  set.name = folder.string();
  set.label_names = class_names(folder / "batches.meta.txt");
  const int64_t rows = static_cast<int64_t>(kFiles.size()) * kFileRecords;
  set.pixels = empty({rows, kSide, kSide, 3}, {.dtype = DType::kUInt8});
  set.labels.resize(static_cast<size_t>(rows));
  std::string bytes;
  for (int64_t i = 0; i < static_cast<int64_t>(kFiles.size()); ++i) {
    const fs::path path = folder / kFiles[i].first;
    bytes.clear();
    read_file(path, bytes);
    read_cifar10_records(bytes, path.string(), kFileRecords,
                         set.pixels.data<uint8_t>() + i * kFileRecords * kPixelBytes,
                         set.labels.data() + i * kFileRecords);
    set.parts.insert(set.parts.end(), kFileRecords, kFiles[i].second);
  }
  return set;
}

}  // namespace tern::data
