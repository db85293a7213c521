#include "tern/data/datasets/mnist.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <vector>

#include "tern/data/files/fetched_folder.h"
#include "tern/data/files/idx.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

constexpr int kMnistClasses = 10;
constexpr const char* kImages = "-images-idx3-ubyte";
constexpr const char* kLabels = "-labels-idx1-ubyte";
constexpr std::pair<const char*, Part> kMnistParts[] = {{"train", Part::kTrain}, {"t10k", Part::kTest}};
using Counts = std::array<int64_t, kMnistClasses>;

struct Published {
  std::vector<const char*> folders;
  std::vector<std::string> names;
  Counts train, test;
};

const Published& published(Mnist set) {
  static const Published digits = {{"mnist", "MNIST/raw"},
                                   {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
                                   {5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949},
                                   {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}};
  static const Published fashion = {
      {"fashion-mnist", "FashionMNIST/raw"},
      {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"},
      {6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000},
      {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}};
  return set == Mnist::kDigits ? digits : fashion;
}

/// The file, or the one with .gz.
std::string idx_file(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  const std::string packed = (folder / (name + ".gz")).string();
  return fs::exists(packed, ignored) && !fs::exists(folder / name, ignored) ? packed : (folder / name).string();
}

/// Appends a part's images and labels.
void add_part(const fs::path& folder, const std::string& prefix, Part part, std::vector<Tensor>& images,
              ImageSet& set) {
  const std::string image_file = idx_file(folder, prefix + kImages), label_file = idx_file(folder, prefix + kLabels);
  const Tensor pixels = read_idx(image_file), labels = read_idx(label_file);
  TERN_CHECK(pixels.dim() == 3, image_file, ": expected 3 dimensions (images, rows, columns) at byte 3, got ",
             pixels.dim());
  TERN_CHECK(labels.dim() == 1, label_file, ": expected 1 dimension at byte 3, got ", labels.dim());
  TERN_CHECK(pixels.size(0) == labels.size(0), image_file, ": ", pixels.size(0), " images, but ", label_file, " has ",
             labels.size(0), " labels");
  if (!images.empty())
    TERN_CHECK(pixels.size(1) == images[0].size(1) && pixels.size(2) == images[0].size(2), image_file, ": images of ",
               pixels.size(1), " x ", pixels.size(2), ", those for training are ", images[0].size(1), " x ",
               images[0].size(2));
  for (int64_t i = 0; i < labels.size(0); ++i) {
    const uint8_t label = labels.data<uint8_t>()[i];
    TERN_CHECK(label < kMnistClasses, label_file, ": label ", int{label}, " at byte ", 8 + i, "; expected 0 to ",
               kMnistClasses - 1, " (unpacked)");
    set.labels.push_back(label);
  }
  set.parts.resize(set.labels.size(), part);
  images.push_back(pixels);
}

}  // namespace

std::optional<std::string> find_mnist(Mnist set) {
  for (const char* folder : published(set).folders) {
    const auto found =
        find_folder({.name = published(set).folders[0], .folder = folder, .is_complete = [](const fs::path& path) {
                       return is_mnist(path.string());
                     }});
    if (found) return found;
  }
  return std::nullopt;
}

bool is_mnist(const std::string& folder) {
  std::error_code ignored;
  return fs::is_regular_file(idx_file(folder, std::string("train") + kImages), ignored);
}

ImageSet read_mnist(const std::string& folder, Mnist set) {
  ImageSet result;
  result.name = folder;
  result.label_names = published(set).names;
  std::vector<Tensor> images;
  for (const auto& [prefix, part] : kMnistParts) add_part(folder, prefix, part, images, result);
  TERN_CHECK(result.size() > 0 && images[0].numel() > 0, folder, ": no images for training");
  result.pixels = empty({result.size(), images[0].size(1), images[0].size(2), 3}, {.dtype = DType::kUInt8});
  uint8_t* out = result.pixels.data<uint8_t>();
  for (const Tensor& part : images)
    for (int64_t i = 0; i < part.numel(); ++i, out += 3) std::fill_n(out, 3, part.data<uint8_t>()[i]);
  return result;
}

std::string mnist_difference(const ImageSet& images, Mnist set) {
  std::string difference;
  for (const Part part : {Part::kTrain, Part::kTest}) {
    const Counts& expected = part == Part::kTrain ? published(set).train : published(set).test;
    for (size_t label = 0; label < kMnistClasses; ++label) {
      const int64_t count = images.count(part, label);
      if (count == expected[label]) continue;
      difference += (difference.empty() ? "" : ", ") + std::string(part == Part::kTrain ? "train" : "test") + " has " +
                    std::to_string(count) + " of " + images.label_names[label] + " instead of " +
                    std::to_string(expected[label]);
    }
  }
  return difference;
}

}  // namespace tern::data
