// MNIST and Fashion-MNIST: the idx format, their folders, and what is wrong with them.

#include "tern/data/datasets/mnist.h"

#include <algorithm>

#include "tern/data/files/idx.h"
#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

/// The idx file of these sizes and values.
std::string idx(const std::vector<uint32_t>& sizes, const std::string& values, int type = 8) {
  std::string bytes(4 + 4 * sizes.size(), '\0');
  bytes[2] = static_cast<char>(type);
  bytes[3] = static_cast<char>(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) put_number(bytes, 4 + 4 * i, sizes[i], 4);
  return bytes + values;
}

TEST(Idx, ValuesOfAnyShape) {
  std::mt19937_64 random = fresh_random();
  for (const auto& sizes : {std::vector<uint32_t>{7}, {1}, {3, 5}, {2, 3, 2, 1, 1, 1, 1, 4}, {0}, {300, 0, 7}}) {
    size_t count = 1;
    for (const uint32_t size : sizes) count *= size;
    const std::string values = random_bytes(count, random);
    const Tensor tensor = parse_idx(idx(sizes, values), "f");
    EXPECT_EQ(tensor.shape(), Shape(std::vector<int64_t>(sizes.begin(), sizes.end())));
    const std::vector<uint8_t> read = tensor.to_vector<uint8_t>();
    EXPECT_EQ(std::string(read.begin(), read.end()), values);
  }
}

TEST(Idx, Errors) {
  const auto error = [](const std::string& bytes) { return error_of([&] { parse_idx(bytes, "f"); }); };
  EXPECT_EQ(error(""), "f: not an idx file: it ends at byte 0");
  EXPECT_EQ(error("PK\x03\x04"), "f: not an idx file: bytes 0 and 1 must be 0, got 80 and 75");
  EXPECT_EQ(error(idx({1}, "1234", 0x0d)), "f: values of type 13 at byte 2; expected 8 (unsigned bytes)");
  EXPECT_EQ(error(idx({}, "")), "f: 0 dimensions at byte 3; expected 1 to 8");
  EXPECT_EQ(error(idx({2, 3}, "").substr(0, 9)), "f: the header takes 12 bytes, but the file ends at byte 9");
  EXPECT_EQ(error(idx({2, 3}, "12345")), "f: the sizes need 6 bytes of values, but the file ends at byte 17");
  EXPECT_EQ(error(idx({2, 3}, "1234567")), "f: more follows at byte 18, the end of 6 values");
  const uint32_t large = 0xffffffff;
  for (const auto& sizes : {std::vector<uint32_t>(8, large), {2, large, 0, large}, {0, 1 << 16, 1 << 16}})
    EXPECT_TRUE(contains(error(idx(sizes, "12345678")), {"f: the sizes up to byte ", "more than 2147483648 values"}));
  EXPECT_EQ(error(idx({1 << 16, 1 << 15}, "12")),
            "f: the sizes need 2147483648 bytes of values, but the file ends at byte 14");
  EXPECT_EQ(error(idx({0, 1 << 30}, "1")), "f: more follows at byte 12, the end of 0 values");
}

/// A folder with 30 images of 4 x 3 for training and 10 for testing; image i is of class i % 10.
class MnistTest : public FolderTest {
 protected:
  void SetUp() override {
    for (const auto& [part, count] : {std::pair("train", 30), std::pair("t10k", 10)}) {
      std::string labels;
      for (int i = 0; i < count; ++i) labels += static_cast<char>(i % 10);
      pixels_ += random_bytes(static_cast<size_t>(count) * 12, random_);
      const std::string own = pixels_.substr(pixels_.size() - static_cast<size_t>(count) * 12);
      put(part, "-images-idx3-ubyte", idx({static_cast<uint32_t>(count), 4, 3}, own));
      put(part, "-labels-idx1-ubyte.gz", gzip(idx({static_cast<uint32_t>(count)}, labels)));
    }
  }
  void put(const std::string& part, const std::string& name, const std::string& bytes) const {
    write("FashionMNIST/raw/" + part + name, bytes);
  }
  std::string folder() const { return (root() / "FashionMNIST/raw").string(); }
  std::string error() const {
    return error_of([&] { load_images(folder()); });
  }

  std::mt19937_64 random_ = fresh_random();
  std::string pixels_;
};

TEST_F(MnistTest, ImagesLabelsAndParts) {
  const Environment data("TERN_DATA", root().string()), cache("XDG_CACHE_HOME", root().string());
  EXPECT_EQ(find_mnist(Mnist::kFashion), folder());
  EXPECT_FALSE(find_mnist(Mnist::kDigits));
  EXPECT_TRUE(fails([] { load_images("mnist"); }, {"mnist: not found", "TERN_DATA", "MNIST/raw"}));
  std::vector<std::string> log;
  const ImageSet set = load_images("fashion-mnist", {.log = log_to(log)});
  ASSERT_EQ(log.size(), 1u);
  EXPECT_TRUE(
      contains(log[0], {"not the published", "train has 3 of T-shirt/top instead of 6000", "test has 1 of Bag"}));
  EXPECT_EQ(set.name, "fashion-mnist");
  EXPECT_EQ(set.pixels.shape(), (Shape{40, 4, 3, 3}));
  const std::vector<uint8_t> pixels = set.pixels.to_vector<uint8_t>();
  for (size_t i = 0; i < pixels.size(); ++i) ASSERT_EQ(pixels[i], static_cast<uint8_t>(pixels_[i / 3]));
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(set.labels[i], static_cast<int32_t>(i % 10));
  EXPECT_EQ(set.count(Part::kTrain, 4), 3);
  EXPECT_EQ(set.count(Part::kTest, 4), 1);
  EXPECT_EQ(load_images(folder()).label_names[9], "Ankle boot");
  const ImageSet digits = read_mnist(folder(), Mnist::kDigits);
  EXPECT_EQ(digits.label_names[9], "9");
  EXPECT_TRUE(contains(mnist_difference(digits, Mnist::kDigits), {"train has 3 of 0 instead of 5923"}));
}

TEST_F(MnistTest, DamagedFiles) {
  const std::string pixels(12, 'x'), images = "-images-idx3-ubyte", labels = "-labels-idx1-ubyte.gz";
  const auto with = [&](const std::string& part, const std::string& name, const std::string& bytes) {
    const std::string before = read_bytes(folder() + "/" + part + name);
    put(part, name, bytes);
    std::string message = error();
    put(part, name, before);
    return message;
  };
  EXPECT_TRUE(contains(with("train", labels, gzip(idx({30}, std::string(29, '\1') + '\n'))),
                       {"train-labels-idx1-ubyte.gz: label 10 at byte 37"}));
  EXPECT_TRUE(contains(with("train", labels, gzip(idx({29}, std::string(29, '\1')))), {"30 images", "29 labels"}));
  EXPECT_TRUE(contains(with("t10k", images, idx({10, 3, 4}, std::string(120, 'x'))), {"t10k", "3 x 4", "4 x 3"}));
  EXPECT_TRUE(contains(with("t10k", images, idx({10, 12}, std::string(120, 'x'))), {"3 dimensions", "got 2"}));
  EXPECT_TRUE(contains(with("t10k", labels, gzip(idx({10, 1}, pixels.substr(0, 10)))), {"1 dimension at", "got 2"}));
  EXPECT_TRUE(contains(with("t10k", labels, gzip(idx({10}, pixels)).substr(0, 20)), {"t10k-labels", "truncated gzip"}));
  EXPECT_EQ(error(), "no error");
  std::filesystem::remove(folder() + "/t10k" + labels);
  EXPECT_TRUE(contains(error(), {"cannot open", "t10k-labels-idx1-ubyte"}));
}

}  // namespace
}  // namespace tern::data
