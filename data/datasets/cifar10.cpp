#include "tern/data/datasets/cifar10.h"

#include <array>
#include <filesystem>
#include <tuple>

#include "tern/core/io/pickle.h"
#include "tern/core/memory/file_fault.h"
#include "tern/data/files/fetched_folder.h"
#include "tern/data/files/files.h"
#include "tern/data/files/text.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kSide = 32, kPlane = kSide * kSide, kPixelBytes = 3 * kPlane, kRecordBytes = 1 + kPixelBytes;
constexpr int64_t kFileRecords = 10000;
constexpr int kClasses = 10;
// In the binary version ".bin" follows, in the Python version nothing.
const std::array<std::pair<const char*, Part>, 6> kFiles = {{{"data_batch_1", Part::kTrain},
                                                             {"data_batch_2", Part::kTrain},
                                                             {"data_batch_3", Part::kTrain},
                                                             {"data_batch_4", Part::kTrain},
                                                             {"data_batch_5", Part::kTrain},
                                                             {"test_batch", Part::kTest}}};
const std::vector<std::string> kClassNames = {"airplane", "automobile", "bird",  "cat",  "deer",
                                              "dog",      "frog",       "horse", "ship", "truck"};
constexpr const char* kBinary = ".bin";
constexpr const char* kPythonFolder = "cifar-10-batches-py";

bool holds_first_batch(const fs::path& folder, const std::string& ending) {
  std::error_code ignored;
  return fs::is_regular_file(folder / (kFiles[0].first + ending), ignored);
}

const Download kCifar10Archive = {
    .url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    .bytes = 170052171,
    .sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
};
const FetchedFolder kCifar10 = {
    .name = "cifar10",
    .folder = "cifar-10-batches-bin",
    .archive = kCifar10Archive,
    .max_unpacked_bytes = int64_t{1} << 29,
    .contents = "cifar-10-batches-bin/data_batch_1.bin",
    .is_complete = [](const fs::path& folder) { return holds_first_batch(folder, kBinary); },
};
const FetchedFolder kCifar10Python = {
    .name = "cifar10",
    .folder = kPythonFolder,
    .is_complete = [](const fs::path& folder) { return holds_first_batch(folder, ""); },
};

/// Three planes to pixels.
void interleave(const uint8_t* __restrict in, uint8_t* __restrict out) {
  for (int64_t i = 0; i < kPlane; ++i) {
    out[i * 3] = in[i];
    out[i * 3 + 1] = in[kPlane + i];
    out[i * 3 + 2] = in[2 * kPlane + i];
  }
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::string text;
  read_file(path, text);
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view name = trim(std::string_view(text).substr(at, end - at));
    if (!name.empty()) lines.emplace_back(name);
    at = end + 1;
  }
  return lines;
}

/// The entry of a pickled dict, which must be a list.
PickleValue list_in(const PickleValue& dict, const char* key, const fs::path& path) {
  TERN_CHECK(dict.is(PickleKind::kDict), path.string(), ": expected a pickled dict, got ", dict.describe());
  const PickleValue list = dict.find(key);
  TERN_CHECK(list.is(PickleKind::kList), path.string(), ": expected a list under '", key, "', got ",
             list.defined() ? list.describe() : "no such entry");
  return list;
}

/// batches.meta.txt, or batches.meta, a pickled dict.
std::vector<std::string> class_names(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return kClassNames;
  std::vector<std::string> names;
  if (path.extension() == ".txt") {
    names = lines_of(path);
  } else {
    const PickleValue meta = load_pickle(path.string()), list = list_in(meta, "label_names", path);
    for (size_t i = 0; i < list.size(); ++i) names.emplace_back(list[i].as_text());
  }
  TERN_CHECK(names.size() == kClasses, path.string(), ": expected ", kClasses, " class names, got ", names.size());
  return names;
}

}  // namespace

std::optional<std::string> find_cifar10() {
  const auto binary = find_folder(kCifar10);
  return binary ? binary : find_folder(kCifar10Python);
}

std::string fetch_cifar10(const std::function<void(const std::string&)>& log) { return fetch_folder(kCifar10, log); }

bool is_cifar10(const std::string& folder) {
  return holds_first_batch(folder, kBinary) || holds_first_batch(folder, "");
}

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

void read_cifar10_batch(const std::string& path, int64_t images, uint8_t* pixels, int32_t* labels) {
  const PickleValue batch = load_pickle(path);
  const PickleValue list = list_in(batch, "labels", path), data = batch.find("data");
  TERN_CHECK(data.is(PickleKind::kTensor), path, ": expected a numpy array under 'data', got ",
             data.defined() ? data.describe() : "no such entry");
  TERN_CHECK(data.stored_dtype() == "uint8" && data.as_tensor().shape() == Shape({images, kPixelBytes}), path,
             ": expected 'data' of uint8 [", images, ", ", kPixelBytes, "], got ", data.describe());
  TERN_CHECK(static_cast<int64_t>(list.size()) == images, path, ": ", list.size(), " labels for ", images, " images");
  const Tensor planes = data.as_tensor().contiguous();
  for (int64_t i = 0; i < images; ++i) {
    const PickleValue label = list[static_cast<size_t>(i)];
    TERN_CHECK(label.is(PickleKind::kInteger) && label.as_integer() >= 0 && label.as_integer() < kClasses, path,
               ": label ", label.describe(), " of image ", i, "; expected 0 to ", kClasses - 1);
    labels[i] = static_cast<int32_t>(label.as_integer());
    interleave(planes.data<uint8_t>() + i * kPixelBytes, pixels + i * kPixelBytes);
  }
  verify_mapped_memory(planes.raw_data());
}

std::string cifar10_difference(const ImageSet& set) {
  std::string difference;
  const auto add = [&](const std::string& part) { difference += (difference.empty() ? "" : ", ") + part; };
  if (set.label_names != kClassNames) add("its classes are " + join(set.label_names, ", "));
  const std::tuple<const char*, Part, int64_t> parts[] = {{"train", Part::kTrain, 5000}, {"test", Part::kTest, 1000}};
  for (const auto& [name, part, expected] : parts) {
    for (size_t label = 0; label < set.label_names.size(); ++label) {
      const int64_t images = set.count(part, label);
      if (images != expected)
        add(std::string(name) + " has " + std::to_string(images) + " of " + set.label_names[label] + " instead of " +
            std::to_string(expected));
    }
  }
  return difference;
}

ImageSet read_cifar10(const std::string& name) {
  const fs::path folder(name);
  const bool binary = holds_first_batch(folder, kBinary);
  ImageSet set;
  set.name = name;
  set.label_names = class_names(folder / (binary ? "batches.meta.txt" : "batches.meta"));
  const int64_t rows = static_cast<int64_t>(kFiles.size()) * kFileRecords;
  set.pixels = empty({rows, kSide, kSide, 3}, {.dtype = DType::kUInt8});
  set.labels.resize(static_cast<size_t>(rows));
  uint8_t* pixels = set.pixels.data<uint8_t>();
  int32_t* labels = set.labels.data();
  std::string bytes;
  for (const auto& [file, part] : kFiles) {
    const std::string path = (folder / (file + std::string(binary ? kBinary : ""))).string();
    if (binary) {
      bytes.clear();
      read_file(path, bytes);
      read_cifar10_records(bytes, path, kFileRecords, pixels, labels);
    } else {
      read_cifar10_batch(path, kFileRecords, pixels, labels);
    }
    pixels += kFileRecords * kPixelBytes;
    labels += kFileRecords;
    set.parts.insert(set.parts.end(), kFileRecords, part);
  }
  return set;
}

}  // namespace tern::data
