// CIFAR-10: its records, its pickles, and what is wrong with them.

#include "tern/data/datasets/cifar10.h"

#include <algorithm>

#include "tern/data/datasets/image_set.h"
#include "tern/data/datasets/split.h"
#include "tern/data/files/text.h"
#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Labels = std::vector<int32_t>;

constexpr int64_t kRecord = 3073, kFile = 10000 * kRecord;
const Names kBatches = {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"};

/// Overwrites bytes of a file, which grows as needed.
void put(const fs::path& path, int64_t at, const std::string& bytes) {
  std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
  out.seekp(at);
  out << bytes;
}

std::string load_error(const std::string& source, const LoadOptions& options = {}) {
  return error_of([&] { load_images(source, options); });
}

/// Random records with the given labels.
std::string records(const std::vector<int>& labels, std::mt19937_64& random) {
  std::string bytes;
  for (const int label : labels) bytes += static_cast<char>(label) + random_bytes(kRecord - 1, random);
  return bytes;
}

/// Compares pixels with three planes for each image; its planes begin `stride` bytes after those of the one before.
void expect_planes(const std::vector<uint8_t>& pixels, const std::string& planes, size_t first, size_t stride) {
  for (size_t i = 0; i < pixels.size(); ++i) {
    const size_t image = i / 3072, pixel = i % 3072 / 3, channel = i % 3;
    ASSERT_EQ(pixels[i], static_cast<uint8_t>(planes[first + image * stride + channel * 1024 + pixel])) << i;
  }
}

TEST(Cifar10, RecordsAreThreePlanes) {
  std::mt19937_64 random = fresh_random();
  const std::string bytes = records({9, 0, 3}, random);
  std::vector<uint8_t> pixels(3 * 3072);
  Labels labels(3);
  read_cifar10_records(bytes, "f", 3, pixels.data(), labels.data());
  EXPECT_EQ(labels, (Labels{9, 0, 3}));
  expect_planes(pixels, bytes, 1, kRecord);
  const auto message = [&](const std::string& given) {
    return error_of([&] { read_cifar10_records(given, "f.bin", 3, pixels.data(), labels.data()); });
  };
  EXPECT_EQ(message(bytes.substr(0, 2 * kRecord + 5)),
            "f.bin: expected 9219 bytes (3 records of 3073), but it ends at byte 6151, in record 2");
  EXPECT_EQ(message(""), "f.bin: expected 9219 bytes (3 records of 3073), but it ends at byte 0, in record 0");
  EXPECT_EQ(message(bytes + "x"),
            "f.bin: expected 9219 bytes (3 records of 3073), got 9220: more follows at byte 9219");
  for (const int label : {10, 255}) {
    std::string wrong = bytes;
    wrong[2 * kRecord] = static_cast<char>(label);
    EXPECT_EQ(message(wrong), "f.bin: label " + std::to_string(label) + " at byte 6146 (record 2); expected 0 to 9");
  }
}

/// A folder of the six files, black and of class 0 but for what is written into them.
class Cifar10FolderTest : public FolderTest {
 protected:
  fs::path folder() const { return root() / "cifar-10-batches-bin"; }
  void SetUp() override {
    for (const std::string& name : kBatches) fs::resize_file(write("cifar-10-batches-bin/" + name + ".bin", ""), kFile);
  }
};

TEST_F(Cifar10FolderTest, IsReadInTheOrderOfItsFiles) {
  const Environment data("TERN_DATA", root().string());
  std::mt19937_64 random = fresh_random();
  put(folder() / "data_batch_3.bin", 7 * kRecord, records({5}, random));
  put(folder() / "test_batch.bin", 9999 * kRecord, "\x09" + std::string(3072, '\xff'));
  write("cifar-10-batches-bin/batches.meta.txt", "a0\na1\na2\na3\na4\na5\na6\na7\na8\na9\n\n");
  EXPECT_EQ(find_cifar10(), folder().string());
  const ImageSet set = load_images("cifar10");
  EXPECT_EQ(set.name, "cifar10");
  EXPECT_EQ(set.size(), 60000);
  EXPECT_EQ(set.pixels.shape(), (Shape{60000, 32, 32, 3}));
  EXPECT_EQ(set.label_names[3], "a3");
  EXPECT_EQ(set.labels[20007], 5);
  EXPECT_EQ(set.labels[59999], 9);
  EXPECT_EQ(std::count(set.labels.begin(), set.labels.end(), 0), 59998);
  EXPECT_EQ(set.image(59999).pixels, std::vector<uint8_t>(3072, 255));
  EXPECT_EQ(set.image(59998).pixels, std::vector<uint8_t>(3072, 0));
  EXPECT_EQ(std::count(set.parts.begin(), set.parts.end(), Part::kTest), 10000);
  EXPECT_EQ(set.parts[49999], Part::kTrain);
  EXPECT_EQ(make_split(set, "", "", 1).test.front(), 50000);
  EXPECT_TRUE(fails([&] { set.image(60000); }, {"image 60000 of 60000"}));
  EXPECT_TRUE(contains(load_error("cifar10", {.known_labels = {"a0", "a1"}}), {"\"a2\"", "a0, a1"}));

  const ImageSet reversed =
      load_images(folder().string(), {.known_labels = {"A9", "a8", "a7", "a6", "a5", "a4", "a3", "a2", "a1", "a0"}});
  EXPECT_EQ(reversed.labels[20007], 4);
  EXPECT_EQ(reversed.labels[0], 9);
  EXPECT_EQ(reversed.label_names[0], "A9");
}

TEST_F(Cifar10FolderTest, IsComparedWithWhatWasPublished) {
  Names lines;
  const LoadOptions options{.log = log_to(lines)};
  std::string bytes(static_cast<size_t>(kFile), '\0');
  for (int64_t row = 0; row < 10000; ++row) bytes[static_cast<size_t>(row * kRecord)] = static_cast<char>(row % 10);
  for (const std::string& name : kBatches) write("cifar-10-batches-bin/" + name + ".bin", bytes);
  load_images(folder().string(), options);
  EXPECT_EQ(lines, Names{});
  put(folder() / "test_batch.bin", 9999 * kRecord, std::string(1, '\3'));
  load_images(folder().string(), options);
  EXPECT_EQ(lines, Names{folder().string() + ": not the published CIFAR-10: test has 1001 of cat instead of 1000, test "
                                             "has 999 of truck instead of 1000"});
  lines.clear();
  write("cifar-10-batches-bin/batches.meta.txt", "a0\na1\na2\na3\na4\na5\na6\na7\na8\na9\n");
  put(folder() / "data_batch_5.bin", 0, std::string(1, '\1'));
  const Environment data("TERN_DATA", root().string());
  EXPECT_EQ(load_images("cifar10", options).name, "cifar10");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(
      contains(lines[0], {"its classes are a0, a1, ", "train has 4999 of a0 instead of 5000", "train has 5001 of a1"}));
}

TEST_F(Cifar10FolderTest, DamageNamesFileAndByte) {
  const std::string source = folder().string();
  put(folder() / "data_batch_4.bin", 123 * kRecord, "\x0a");
  EXPECT_TRUE(contains(load_error(source), {"data_batch_4.bin: label 10 at byte 377979 (record 123)"}));
  put(folder() / "data_batch_4.bin", 123 * kRecord, std::string(1, '\0'));
  fs::resize_file(folder() / "test_batch.bin", kFile - 1);
  EXPECT_TRUE(contains(load_error(source), {"test_batch.bin: expected 30730000 bytes", "30729999, in record 9999"}));
  fs::remove(folder() / "test_batch.bin");
  EXPECT_TRUE(contains(load_error(source), {"cannot open", "test_batch.bin"}));
  write("cifar-10-batches-bin/batches.meta.txt", "cat\ndog\n");
  EXPECT_TRUE(contains(load_error(source), {"batches.meta.txt: expected 10 class names, got 2"}));
}

TEST_F(FolderTest, Cifar10IsNotFetchedUnasked) {
  const Environment data("TERN_DATA", std::nullopt), cache("XDG_CACHE_HOME", root().string());
  EXPECT_FALSE(find_cifar10());
  EXPECT_TRUE(contains(load_error("cifar10", {.allow_download = false}), {"cifar10: not found", "TERN_DATA"}));
}

std::string little_endian(uint32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }

/// What wrote the pickle of a batch: Python 2, as the official files, or Python 3 by protocol 4 (tests/core reads
/// numpy's arrays of every protocol).
enum class Pickled { kPython2, kProtocol4 };
constexpr Pickled kPickled[] = {Pickled::kPython2, Pickled::kProtocol4};

/// A batch of images as a pickle in two parts: between them lie the pixels.
struct PickledBatch {
  std::string head, tail;
};

/// `bytes`: of the pixels.
PickledBatch pickled_batch(Pickled kind, uint32_t images, size_t bytes, const std::vector<int>& labels,
                           const std::string& type = "u1", uint32_t columns = 3072) {
  const bool old = kind == Pickled::kPython2;
  const auto text = [&](const std::string& name) {
    return (old ? "U" : "\x8c") + (static_cast<char>(name.size()) + name);
  };
  const std::string zero(1, '\0'), protocol = old ? "\2" : "\4", numpy = old ? "numpy.core" : "numpy._core";
  std::string numbers;
  for (const int label : labels) numbers += "J" + little_endian(static_cast<uint32_t>(label));
  PickledBatch batch;
  batch.head = "\x80" + protocol + "}q" + zero + "(" + text("batch_label") + text("training batch 1 of 5") +
               text("labels") + "](" + numbers + "e" + text("data") + "c" + numpy +
               ".multiarray\n_reconstruct\ncnumpy\nndarray\nK" + zero + "\x85" + text("b") + "\x87R(K\x01J" +
               little_endian(images) + "J" + little_endian(columns) + "\x86" + "cnumpy\ndtype\n" + text(type) +
               "\x89\x88\x87R(K\x03" + text("|") + "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK" + zero + "tb\x89" +
               (old ? "T" : "B") + little_endian(static_cast<uint32_t>(bytes));
  batch.tail = "tb" + text("filenames") + "](" + text("a.png") + "eu.";
  return batch;
}

class Cifar10PickleTest : public FolderTest {
 protected:
  std::string message(const std::string& path, int64_t images = 2) const {
    std::vector<uint8_t> pixels(static_cast<size_t>(images) * 3072);
    Labels labels(static_cast<size_t>(images));
    return error_of([&] { read_cifar10_batch(path, images, pixels.data(), labels.data()); });
  }
};

TEST_F(Cifar10PickleTest, BothPythonsWriteThreePlanes) {
  std::mt19937_64 random = fresh_random();
  for (const Pickled kind : kPickled) {
    SCOPED_TRACE(static_cast<int>(kind));
    const std::string planes = random_bytes(3 * 3072, random);
    const PickledBatch batch = pickled_batch(kind, 3, planes.size(), {9, 0, 3});
    std::vector<uint8_t> pixels(planes.size());
    Labels labels(3);
    read_cifar10_batch(write("batch", batch.head + planes + batch.tail), 3, pixels.data(), labels.data());
    EXPECT_EQ(labels, (Labels{9, 0, 3}));
    expect_planes(pixels, planes, 0, 3072);
  }
}

TEST_F(Cifar10PickleTest, WhatIsWrongNamesFileAndPlace) {
  const std::string pixels(2 * 3072, '\x07');
  const auto batch = [&](const std::vector<int>& labels, const std::string& type = "u1", uint32_t columns = 3072) {
    const PickledBatch made = pickled_batch(Pickled::kPython2, 2, pixels.size(), labels, type, columns);
    return write("batch", made.head + pixels + made.tail);
  };
  const std::string path = (root() / "batch").string();
  EXPECT_EQ(message(batch({1, 2})), "no error");
  EXPECT_EQ(message(batch({1, 10})), path + ": label 10 of image 1; expected 0 to 9");
  EXPECT_EQ(message(batch({-1, 1})), path + ": label -1 of image 0; expected 0 to 9");
  EXPECT_EQ(message(batch({1})), path + ": 1 labels for 2 images");
  EXPECT_EQ(message(batch({1, 2}), 3), path + ": expected 'data' of uint8 [3, 3072], got uint8 [2, 3072]");
  EXPECT_TRUE(contains(message(batch({1, 2}, "i1")), {"expected 'data' of uint8 [2, 3072], got int8 [2, 3072]"}));
  EXPECT_TRUE(contains(message(batch({1, 2}, "O8")), {path, "a numpy array of dtype O8"}));
  EXPECT_TRUE(contains(message(batch({1, 2}, "u1", 3071)), {path + ": at byte ", "of 6142 uint8 has 6144 bytes"}));
  EXPECT_TRUE(
      contains(message(write("batch", "\x80\x02]K\x01\x61.")), {path, "expected a pickled dict, got list of 1"}));
  EXPECT_TRUE(contains(message(write("batch", "\x80\x02}U\x06labels]s.")), {path, "'data', got no such entry"}));
  EXPECT_TRUE(contains(message(write("batch", "\x80\x02}.")), {path, "a list under 'labels', got no such entry"}));
  EXPECT_TRUE(contains(message(write("batch", "")), {path, "empty"}));
  EXPECT_TRUE(contains(message(write("batch", "cos\nsystem\n(S'true'\ntR.")),
                       {path + ": at byte ", "os.system", "never runs code"}));
  EXPECT_TRUE(contains(message((root() / "none").string()), {"none"}));
}

TEST_F(Cifar10PickleTest, CutAndChangedFilesAreHarmless) {
  std::mt19937_64 random = fresh_random();
  const std::string pixels(2 * 3072, '\x07');
  for (const Pickled kind : kPickled) {
    const PickledBatch batch = pickled_batch(kind, 2, pixels.size(), {1, 2});
    const std::string whole = batch.head + pixels + batch.tail;
    const size_t step = kind == Pickled::kPython2 ? 1 : 7;
    for (size_t size = 0; size < whole.size();
         size += size < batch.head.size() || size > whole.size() - 40 ? step : 500) {
      const std::string path = write("batch", whole.substr(0, size));
      EXPECT_TRUE(contains(message(path), {path + ": "})) << size;
    }
    for (int trial = 0; trial < 100; ++trial) {
      std::string changed = whole;
      const size_t at = random() % (batch.head.size() + batch.tail.size());
      changed[at < batch.head.size() ? at : at + pixels.size()] = static_cast<char>(random());
      const std::string path = write("batch", changed), error = message(path);
      EXPECT_TRUE(error == "no error" || error.find(path) != error.npos) << error;
    }
  }
}

TEST_F(FolderTest, Cifar10OfPython) {
  const Environment data("TERN_DATA", root().string()), cache("XDG_CACHE_HOME", root().string());
  const fs::path folder = root() / "cifar-10-batches-py";
  std::vector<int> labels(10000, 4);
  labels[9999] = 7;
  const PickledBatch batch = pickled_batch(Pickled::kPython2, 10000, 30720000, labels);
  for (const std::string& name : kBatches) {
    const std::string path = write("cifar-10-batches-py/" + name, batch.head);
    const auto pixels = static_cast<int64_t>(batch.head.size());
    if (name == "data_batch_2") put(path, pixels + 5 * 3072 + 2 * 1024, std::string(1024, '\xfe'));  // blue of image 5
    put(path, pixels + 30720000, batch.tail);
  }
  EXPECT_EQ(find_cifar10(), folder.string());
  EXPECT_TRUE(is_cifar10(folder));
  std::string names = "\x80\x02}U\x0blabel_names](";
  for (char name = 'a'; name < 'j'; ++name) names += std::string("U\x01") + name;
  EXPECT_EQ(load_images(folder.string()).label_names[4], "deer");
  write("cifar-10-batches-py/batches.meta", names + "U\x01jes.");
  const ImageSet set = load_images("cifar10", {.allow_download = false});
  EXPECT_EQ(set.size(), 60000);
  EXPECT_EQ(set.label_names, (Names{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}));
  EXPECT_EQ(set.labels[0], 4);
  EXPECT_EQ(set.labels[29999], 7);
  EXPECT_EQ(std::count(set.parts.begin(), set.parts.end(), Part::kTest), 10000);
  EXPECT_EQ(set.parts[50000], Part::kTest);
  std::vector<uint8_t> blue(3072, 0);
  for (size_t i = 2; i < blue.size(); i += 3) blue[i] = 0xfe;
  EXPECT_EQ(set.image(10005).pixels, blue);
  EXPECT_EQ(set.image(10004).pixels, std::vector<uint8_t>(3072, 0));

  write("cifar-10-batches-py/batches.meta", names + "es.");
  EXPECT_TRUE(contains(load_error(folder.string()), {"batches.meta: expected 10 class names, got 9"}));
  fs::remove(folder / "batches.meta");
  fs::resize_file(folder / "data_batch_5", 1000000);
  EXPECT_TRUE(
      contains(load_error(folder.string()), {"data_batch_5: at byte ", "truncated: 30720000 more bytes are needed"}));
}

// The published counts; the sums are those of torchvision's normalisation constants.
TEST(Cifar10, TheRealSet) {
  if (std::getenv("TERN_DATA") == nullptr || !find_cifar10())
    GTEST_SKIP() << "data: TERN_DATA names no folder with cifar-10-batches-bin";
  const ImageSet set = load_images("cifar10", {.allow_download = false});
  for (const auto& [part, first, count] : {std::tuple("train", 0, 50000), {"test", 50000, 10000}})
    for (int label = 0; label < 10; ++label)
      EXPECT_EQ(std::count(set.labels.begin() + first, set.labels.begin() + first + count, label), count / 10)
          << part << ' ' << label;
  double sums[3] = {};
  for (int64_t i = 0; i < int64_t{50000} * 3072; ++i) sums[i % 3] += set.pixels.data<uint8_t>()[i];
  const double means[] = {0.49140, 0.48216, 0.44653};
  for (int c = 0; c < 3; ++c) EXPECT_NEAR(sums[c] / 255 / 51200000, means[c], 1e-5);
}

}  // namespace
}  // namespace tern::data
