// ImageSet, load_images and its readers.

#include "tern/data/datasets/image_set.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "tern/core/io/input_file.h"
#include "tern/data/datasets/cifar10.h"
#include "tern/data/datasets/digits.h"
#include "tern/data/datasets/label_index.h"
#include "tern/data/datasets/mnist.h"
#include "tern/data/files/files.h"
#include "tern/data/files/sha256.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/parallel.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

/// Images of formats that are not read, by their extension.
using OtherFormats = std::map<std::string, int64_t>;

/// "12 .webp, 3 .gif"
std::string text_of(const OtherFormats& others) {
  std::string text;
  for (const auto& [extension, count] : others)
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + extension;
  return text;
}

/// Whether a file without the extension of a PNG or JPEG image is one all the same.
bool is_image_by_content(const fs::path& file) {
  if (!has_other_image_extension(file) && file.has_extension()) return false;
  std::array<char, 8> first = {};
  try {
    InputFile in(file.string());
    return is_decodable({first.data(), in.read(first.data(), first.size())});
  } catch (const Error&) {  // a pipe, or a file that may not be read
    return false;
  }
}

/// Adds the images in folder/**: by extension, and by content where the extension is another format's or missing.
/// `above`: the folders on the way here, by their real paths.
void add_files(const fs::path& folder, std::vector<fs::path>& above, std::vector<std::string>& files,
               OtherFormats& others) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  TERN_CHECK(!error, "cannot read the folder ", folder.string(), ": ", error.message());
  TERN_CHECK(std::find(above.begin(), above.end(), real) == above.end(), folder.string(),
             ": a link to a folder that it is in");
  above.push_back(real);
  for (const fs::path& entry : sorted_entries(folder)) {
    if (fs::is_directory(entry, error))
      add_files(entry, above, files, others);
    else if (has_image_extension(entry) || is_image_by_content(entry))
      files.push_back(entry.string());
    else if (has_other_image_extension(entry))
      ++others[lower_ascii(entry.extension().string())];
  }
  above.pop_back();
}

/// Adds folder/LABEL/**.
void add_label_folders(const fs::path& folder, LabelIndex& index, const LoadOptions& options, ImageSet& set,
                       OtherFormats& others) {
  std::vector<fs::path> above;
  int64_t unlabelled = 0;
  for (const fs::path& label : sorted_entries(folder)) {
    std::error_code ignored;
    if (!fs::is_directory(label, ignored)) {
      unlabelled += has_image_extension(label);
      continue;
    }
    const std::string place = label.string();
    const int32_t id = index.id(label.filename().string(), {place});
    OtherFormats of_label;
    add_files(label, above, set.files, of_label);
    TERN_CHECK(
        set.files.size() > set.labels.size(), place, ": no PNG or JPEG images for this label",
        of_label.empty() ? "; remove the folder or fill it" : "; convert those that are there: " + text_of(of_label));
    for (const auto& [extension, count] : of_label) others[extension] += count;
    TERN_CHECK(set.files.size() <= std::numeric_limits<int32_t>::max(), set.name, ": more than 2^31 - 1 images");
    set.labels.resize(set.files.size(), id);
  }
  if (unlabelled > 0 && options.log)
    options.log(folder.string() + ": " + counted(unlabelled, "image") + " outside of a label's folder " +
                (unlabelled == 1 ? "is" : "are") + " skipped");
}

ImageSet read_image_folder(const std::string& path, const LoadOptions& options) {
  ImageSet set;
  set.name = path;
  LabelIndex index(options.known_labels, options.log);
  OtherFormats others;
  set.add_parts(path, [&](const std::string& folder) { add_label_folders(folder, index, options, set, others); });
  TERN_CHECK(set.size() > 0, path, ": no images found; expected train/LABEL/*.{png,jpg,jpeg} (and optionally ",
             "test/LABEL, val/LABEL) or LABEL/*.{png,jpg,jpeg}");
  if (!others.empty() && options.log)
    options.log(path + ": images of other formats than PNG and JPEG are skipped: " + text_of(others));
  set.label_names = index.finish(path, set.labels, LabelOrder::kByName);
  return set;
}

/// The file as seen from the set's folder, so that the folder may be given in any way. A file outside of it (images may
/// be listed by hand) is named as it is.
std::string place_in(const fs::path& root, const std::string& file) {
  const fs::path place = fs::path(file).lexically_relative(root);
  return place.empty() || *place.begin() == ".." ? file : place.string();
}

constexpr uint64_t kLeastHashed = 4096;  // of each file, if it has them

/// SHA-256 of a file's first and last bytes, `limit` of them together; of all its bytes if it has no more.
std::string digest_of_file(const std::string& path, uint64_t limit) {
  Sha256 hash;
  try {
    InputFile file(path);
    std::vector<char> buffer(std::min<uint64_t>(uint64_t{1} << 16, file.bytes() + 1));
    const auto add = [&](uint64_t bytes) {
      while (bytes > 0) {
        const size_t count = file.read(buffer.data(), std::min<uint64_t>(buffer.size(), bytes));
        if (count == 0) return;
        hash.update(std::string_view(buffer.data(), count));
        bytes -= count;
      }
    };
    if (file.bytes() <= limit) {
      add(limit);
    } else {
      add(limit / 2);
      if (lseek(file.descriptor(), -static_cast<off_t>(limit / 2), SEEK_END) >= 0) add(limit / 2);
    }
  } catch (const Error&) {  // training reports it
    return "";
  }
  return hash.hex();
}

ImageSet read_digits(const LoadOptions&) {
  constexpr int64_t kSide = 8, kPixels = kSide * kSide;
  const TensorDataset digits = data::digits();
  const Tensor &grey = digits.tensors()[0], &labels = digits.tensors()[1];
  ImageSet set;
  set.name = "digits";
  set.pixels = empty({digits.size(), kSide, kSide, 3}, {.dtype = DType::kUInt8});
  for (int64_t i = 0; i < digits.size() * kPixels; ++i)
    std::fill_n(set.pixels.data<uint8_t>() + i * 3, 3, static_cast<uint8_t>(std::lround(255 * grey.data<float>()[i])));
  set.labels.assign(labels.data<int64_t>(), labels.data<int64_t>() + digits.size());
  for (int digit = 0; digit < 10; ++digit) set.label_names.push_back(std::to_string(digit));
  return set;
}

ImageSet read_checked_cifar10(const std::string& folder, const LoadOptions& options) {
  ImageSet set = read_cifar10(folder);
  if (const std::string difference = cifar10_difference(set); !difference.empty() && options.log)
    options.log(folder + ": not the published CIFAR-10: " + difference);
  return set;
}

ImageSet load_cifar10(const LoadOptions& options) {
  const auto found = find_cifar10();
  TERN_CHECK(found || options.allow_download,
             "cifar10: not found; set TERN_DATA to the folder that holds cifar-10-batches-bin or cifar-10-batches-py");
  ImageSet set = read_checked_cifar10(found ? *found : fetch_cifar10(options.log), options);
  set.name = "cifar10";
  return set;
}

ImageSet read_checked_mnist(const std::string& folder, Mnist kind, const LoadOptions& options) {
  ImageSet set = read_mnist(folder, kind);
  if (const std::string difference = mnist_difference(set, kind); !difference.empty() && options.log)
    options.log(folder + ": not the published " + (kind == Mnist::kDigits ? "MNIST: " : "Fashion-MNIST: ") +
                difference);
  return set;
}

template <Mnist kKind>
ImageSet load_mnist(const LoadOptions& options) {
  const bool digits = kKind == Mnist::kDigits;
  const std::string name = digits ? "mnist" : "fashion-mnist";
  const auto found = find_mnist(kKind);
  TERN_CHECK(found, name, ": not found; set TERN_DATA to the folder that holds ", name, " or ",
             digits ? "MNIST/raw" : "FashionMNIST/raw", ", with train-images-idx3-ubyte.gz and the other three files");
  ImageSet set = read_checked_mnist(*found, kKind, options);
  set.name = name;
  return set;
}

}  // namespace

Image ImageSet::image(int64_t row, const DecodeOptions& options) const {
  TERN_CHECK(row >= 0 && row < size(), name, ": image ", row, " of ", size());
  if (!in_memory()) return read_image(files[static_cast<size_t>(row)], options);
  Image image(pixels.size(1), pixels.size(2), pixels.size(3));
  if (!image.pixels.empty())
    std::memcpy(image.pixels.data(), pixels.data<uint8_t>() + row * static_cast<int64_t>(image.pixels.size()),
                image.pixels.size());
  return image;
}

std::string ImageSet::name_of(int64_t row) const {
  return in_memory() ? name + ": image " + std::to_string(row) : files[static_cast<size_t>(row)];
}

std::string ImageSet::content_hash(const std::function<void()>& check, uint64_t most_bytes) const {
  Sha256 hash;
  const auto add = [&](const void* data, size_t bytes) {
    hash.update(static_cast<uint64_t>(bytes));
    hash.update(std::string_view(static_cast<const char*>(data), bytes));
  };
  add(labels.data(), labels.size() * sizeof(labels[0]));
  if (in_memory()) add(pixels.raw_data(), static_cast<size_t>(pixels.nbytes()));
  uint64_t total = 0;
  for (const std::string& file : files) {
    const std::string place = place_in(name, file);
    add(place.data(), place.size());
    std::error_code failed;
    const auto bytes = static_cast<uint64_t>(fs::file_size(file, failed));
    hash.update(bytes);
    if (!failed) total += bytes;
  }
  const auto count = static_cast<int64_t>(files.size());
  const uint64_t limit =
      total <= most_bytes ? total : std::max(kLeastHashed, most_bytes / static_cast<uint64_t>(count));
  constexpr int64_t kTogether = 4096;  // files between two calls of check
  for (int64_t begin = 0; begin < count; begin += kTogether) {
    if (check) check();
    std::vector<std::string> digests(static_cast<size_t>(std::min(kTogether, count - begin)));
    kernels::parallel_for(std::ssize(digests), 16, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i)
        digests[static_cast<size_t>(i)] = digest_of_file(files[static_cast<size_t>(begin + i)], limit);
    });
    for (const std::string& digest : digests) add(digest.data(), digest.size());
  }
  return hash.hex();
}

const std::vector<NamedSet<ImageSet>>& named_image_sets() {
  static const std::vector<NamedSet<ImageSet>> sets = {
      {"cifar10", "", load_cifar10, find_cifar10, "cifar-10-batches-bin", {.policy = "cifar10"}},
      {"digits",
       " (embedded)",
       read_digits,
       nullptr,
       "",
       {.epochs = 40, .lr = 2e-3, .mixup = 0.3, .unmirrored = "digits", .augmented = false}},
      {"mnist",
       "",
       load_mnist<Mnist::kDigits>,
       [] { return find_mnist(Mnist::kDigits); },
       "mnist",
       // The epochs are chosen for their time; the accuracy was not measured.
       {.title = "MNIST", .most_epochs = 3, .unmirrored = "digits"}},
      {"fashion-mnist", "", load_mnist<Mnist::kFashion>, [] { return find_mnist(Mnist::kFashion); }, "fashion-mnist"}};
  return sets;
}

ImageSet load_images(const std::string& source, const LoadOptions& options) {
  if (const NamedSet<ImageSet>* const set = find_named(named_image_sets(), source))
    return with_known_labels(set->read(options), options, LabelOrder::kByName);
  std::error_code ignored;
  TERN_CHECK(
      fs::is_directory(source, ignored), "\"", source,
      fs::exists(source, ignored) ? "\" is not a folder" : "\": there is no such folder, and no set of that name",
      "; expected ", names_of(named_image_sets()), ", or a folder of train/LABEL/*.{png,jpg,jpeg}");
  if (is_cifar10(source)) return with_known_labels(read_checked_cifar10(source, options), options, LabelOrder::kByName);
  if (is_mnist(source)) {
    const bool fashion = lower_ascii(source).find("fashion") != source.npos;
    return with_known_labels(read_checked_mnist(source, fashion ? Mnist::kFashion : Mnist::kDigits, options), options,
                             LabelOrder::kByName);
  }
  return read_image_folder(source, options);
}

}  // namespace tern::data
