// Image sets (digits, folders) and their batches.

#include "tern/data/datasets/image_set.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <thread>

#include "tern/data/datasets/split.h"
#include "tern/data/files/text.h"
#include "tern/data/loaders/image_loader.h"
#include "tern/data/samples/batch_tensors.h"
#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Labels = std::vector<int32_t>;

std::string load_error(const std::string& source, const LoadOptions& options = {}) {
  return error_of([&] { load_images(source, options); });
}

TEST(DigitImages, AreTheEmbeddedOnes) {
  const ImageSet set = load_images("digits");
  ASSERT_EQ(set.size(), 1797);
  EXPECT_EQ(set.pixels.shape(), (Shape{1797, 8, 8, 3}));
  EXPECT_EQ(set.label_names, (Names{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}));
  EXPECT_TRUE(set.parts.empty());
  const Image first = set.image(0);  // intensities 0 0 5 13 9 1 ...
  EXPECT_EQ(std::vector<uint8_t>(first.pixels.begin() + 3, first.pixels.begin() + 15),
            (std::vector<uint8_t>{0, 0, 0, 80, 80, 80, 207, 207, 207, 143, 143, 143}));
  EXPECT_EQ(std::count(set.labels.begin(), set.labels.end(), 3), 183);
  EXPECT_NEAR(static_cast<double>(make_split(set, "", "2/5", fresh_seed()).test.size()), 1797 / 5.0, 1);
}

/// Writes folders of small images whose first byte identifies them.
class ImageFolderTest : public FolderTest {
 protected:
  void add(const std::string& name, uint8_t value, int64_t height = 2, int64_t width = 3) const {
    Image image(height, width, 3);
    std::fill(image.pixels.begin(), image.pixels.end(), value);
    write(name, encode_png(image));
  }
  std::string source() const { return root().string(); }
};

TEST_F(ImageFolderTest, PartsLabelsAndDepth) {
  add("train/b/2.PNG", 1);
  add("train/b/10.png", 2);
  add("train/a c/deep/er/x.Jpeg", 3);  // the format is detected from the bytes
  add("train/a c/y.jpg", 4);
  add("train/.hidden/z.png", 5);
  add("train/b/.z.png", 6);
  write("train/b/notes.txt", "no image");
  add("test/b/t.png", 7);
  add("train/loose.png", 8);
  Names log;
  const ImageSet set = load_images(source(), {.log = log_to(log)});
  EXPECT_EQ(set.label_names, (Names{"a c", "b"}));
  EXPECT_EQ(set.labels, (Labels{0, 0, 1, 1, 1}));
  EXPECT_EQ(set.parts, (std::vector<Part>{Part::kTrain, Part::kTrain, Part::kTrain, Part::kTrain, Part::kTest}));
  std::vector<uint8_t> values;
  for (int64_t row = 0; row < set.size(); ++row) values.push_back(set.image(row).pixels[0]);
  EXPECT_EQ(values, (std::vector<uint8_t>{3, 4, 2, 1, 7}));
  EXPECT_TRUE(contains(log.at(0), {"train: 1 image outside"}));
}

TEST_F(ImageFolderTest, WithoutPartsAndWithKnownLabels) {
  for (const char* label : {"10", "9", "2"}) add(std::string(label) + "/x.png", 1);
  const ImageSet set = load_images(source());
  EXPECT_EQ(set.label_names, (Names{"10", "2", "9"}));  // sorted by bytes
  EXPECT_EQ(set.labels, (Labels{0, 1, 2}));
  EXPECT_TRUE(set.parts.empty());
  EXPECT_EQ(load_images(source(), {.known_labels = {"9", "x", "2", "10"}}).labels, (Labels{3, 2, 0}));
  EXPECT_EQ(load_images(source(), {.known_labels = {"LABEL_0", "LABEL_1", "LABEL_2"}}).labels, (Labels{0, 1, 2}));
  EXPECT_TRUE(contains(load_error(source(), {.known_labels = {"9", "2"}}), {"unknown label \"10\"", "9, 2"}));
}

TEST_F(ImageFolderTest, Errors) {
  EXPECT_TRUE(contains(load_error(source()), {source(), "no images found", "train/LABEL"}));
  add("cat/1.png", 1);
  fs::create_directories(root() / "dog" / "empty");
  write("dog/readme.md", "");
  EXPECT_TRUE(contains(load_error(source()), {"/dog: no PNG or JPEG images for this label; remove"}));
  fs::create_directory_symlink(root() / "dog", root() / "dog" / "again");
  EXPECT_TRUE(contains(load_error(source()), {"dog/again: a link to a folder that it is in"}));
  fs::remove_all(root() / "dog");
  fs::create_directory_symlink(root() / "cat", root() / "kitten");
  EXPECT_EQ(load_images(source()).size(), 2);
  EXPECT_TRUE(contains(load_error("cifar"), {"\"cifar\": there is no such folder", "cifar10, digits"}));
}

TEST_F(ImageFolderTest, ImagesOfOtherFormatsAreCounted) {
  add("train/a/1.jfif", 1);
  add("train/a/2.JPE", 2);
  add("train/a/3.webp", 3);  // a PNG with another format's name
  add("train/a/4", 4);       // and one without an extension
  write("train/a/5.webp", "RIFF\1\0\0\0WEBPVP8 ");
  write("train/a/6.Gif", "GIF89a");
  write("train/b/7.webp", "");
  write("train/b/8", "no image");
  write("train/b/notes.txt", std::string("\x89PNG\r\n\x1a\n"));
  add("train/b/9.png", 9);
  add("test/b/10.png", 10);
  write("test/b/11.gif", "GIF89a");
  Names log;
  const ImageSet set = load_images(source(), {.log = [&](const std::string& line) { log.push_back(line); }});
  EXPECT_EQ(set.labels, (Labels{0, 0, 0, 0, 1, 1}));
  std::vector<int> first_bytes;
  for (int64_t row = 0; row < set.size(); ++row) first_bytes.push_back(set.image(row).pixels[0]);
  EXPECT_EQ(first_bytes, (std::vector<int>{1, 2, 3, 4, 9, 10}));
  EXPECT_EQ(log, (Names{source() + ": images of other formats than PNG and JPEG are skipped: 2 .gif, 2 .webp"}));
  // A label that has no others.
  write("train/c/1.bmp", "BM");
  EXPECT_TRUE(contains(load_error(source()), {"/c: no PNG or JPEG images for this label", "convert", "1 .bmp"}));
}

TEST_F(ImageFolderTest, HashIsOfTheContentAndNotOfThePath) {
  for (const char* name : {"train/a/1.png", "train/b/2.png"}) add(name, 1);
  const std::string base = load_images(source()).content_hash();
  EXPECT_EQ(load_images(source() + "/").content_hash(), base);
  EXPECT_EQ(load_images(fs::relative(source()).string()).content_hash(), base);
  EXPECT_EQ(load_images((root() / "." / "train" / "..").string()).content_hash(), base);
  add("train/a/1.png", 1, 40, 50);  // another size
  EXPECT_NE(load_images(source()).content_hash(), base);
  add("train/a/1.png", 1);
  fs::rename(root() / "train" / "a" / "1.png", root() / "train" / "a" / "3.png");
  EXPECT_NE(load_images(source()).content_hash(), base);
}

/// Any byte of any file counts, also where the size stays, and so does a label's name.
TEST_F(ImageFolderTest, HashOfChangesAtEqualSizes) {
  std::mt19937_64 random = fresh_random();
  for (int i = 0; i < 7; ++i) add("train/" + std::string(i % 2 ? "a/" : "b/") + std::to_string(i) + ".png", 1, 30, 40);
  const ImageSet set = load_images(source());
  const std::string base = set.content_hash();
  for (const std::string& file : set.files) {
    const auto size = fs::file_size(file);
    for (const uint64_t at : {uint64_t{0}, random() % size, size - 1}) {
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(static_cast<std::streamoff>(at));
      const int before = bytes.get();
      const auto put = [&](int byte) {
        bytes.seekp(static_cast<std::streamoff>(at));
        bytes.put(static_cast<char>(byte)).flush();
      };
      put(before ^ 1);
      EXPECT_NE(set.content_hash(), base) << file << " " << at;
      put(before);
    }
  }
  EXPECT_EQ(set.content_hash(), base);
  fs::rename(root() / "train" / "b", root() / "train" / "c");
  EXPECT_NE(load_images(source()).content_hash(), base);
  int calls = 0;
  const auto stop = [&] {
    ++calls;
    fail("stopped");
  };
  EXPECT_EQ(error_of([&] { set.content_hash(stop); }), "stopped");
  EXPECT_EQ(calls, 1);
}

/// Large sets are hashed in part: both ends of every file, as much of each as if all were equal, but 4 KiB at least.
TEST_F(ImageFolderTest, HashOfALargeSetIsBounded) {
  ImageSet set;
  set.name = source();
  constexpr int64_t kSize = 70'000;
  for (const char* name : {"a.png", "b.png"}) {
    write(name, std::string(kSize, 'x'));
    set.files.push_back((root() / name).string());
    set.labels.push_back(0);
  }
  for (const auto& [most, each] :
       {std::pair<uint64_t, int64_t>(2 * kSize, kSize), {2 * 20'000 + 1, 20'000}, {10, 4096}}) {
    const auto hash = [&, most = most] { return set.content_hash(nullptr, most); };
    const std::string base = hash();
    const auto hash_with = [&](int64_t at) {
      std::fstream bytes(set.files[1], std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekp(at).put('y').flush();
      const std::string changed = hash();
      bytes.seekp(at).put('x').flush();
      return changed;
    };
    for (const int64_t at : {int64_t{0}, each / 2 - 1, kSize - each / 2, kSize - 1})
      EXPECT_NE(hash_with(at), base) << most << " " << at;
    for (const int64_t at : {each / 2, kSize - each / 2 - 1})
      EXPECT_EQ(hash_with(at) == base, each < kSize) << most << " " << at;
    EXPECT_EQ(hash(), base);
  }
}

TEST_F(ImageFolderTest, HashOfFilesOutsideOfTheFolder) {
  for (const char* name : {"a/1.png", "b/1.png"}) add(name, 1);
  ImageSet set = load_images((root() / "a" / "..").string());
  set.name = (root() / "c").string();
  const std::string outside = set.content_hash();
  set.files[1] = set.files[0];
  EXPECT_NE(set.content_hash(), outside);
}

std::shared_ptr<const ImageSet> shared(ImageSet set) { return std::make_shared<const ImageSet>(std::move(set)); }

BatchPlan plan_of(int32_t rows, const BatchPlanOptions& options, int64_t epochs = 1) {
  return BatchPlan(rows_below(rows), {}, options, epochs);
}

TEST(ImageLoader, SameBatchesForAnyNumberOfWorkers) {
  const auto digits = shared(load_images("digits"));
  const uint64_t seed = fresh_seed();
  const BatchPlan plan = plan_of(1797, {.batch_size = 100, .seed = seed}, 2);
  const auto noise = [](Image image, const ItemKey& key) {
    for (uint8_t& value : image.pixels) value ^= static_cast<uint8_t>(key.seed * 31 + key.epoch * 7 + key.row);
    return image;
  };
  const ImageLoader reference(digits, plan, {.transform = noise, .seed = seed, .workers = 0});
  std::set<int32_t> seen;
  for (const int workers : {1, 3}) {
    const ImageLoader loader(digits, plan, {.transform = noise, .seed = seed, .workers = workers});
    int64_t step = 0;
    for (const ImageBatch& batch : loader.epoch(1)) {
      const ImageBatch expected = reference.batch(1, step);
      EXPECT_EQ(batch.rows, expected.rows);
      EXPECT_EQ(batch.images.to_vector<uint8_t>(), expected.images.to_vector<uint8_t>());
      EXPECT_EQ(batch.labels.to_vector<int64_t>(), expected.labels.to_vector<int64_t>());
      EXPECT_EQ(batch.images.shape(), (Shape{step == 17 ? 97 : 100, 8, 8, 3}));
      for (int64_t i = 0; i < batch.size(); ++i) {
        const int32_t row = batch.rows[i];
        seen.insert(row);
        ASSERT_EQ(batch.labels.data<int64_t>()[i], digits->labels[row]);
        const auto corner = static_cast<uint8_t>(seed * 31 + 7 + row);  // corners are black
        ASSERT_EQ(batch.images.data<uint8_t>()[i * 192], corner);
      }
      ++step;
    }
    EXPECT_EQ(step, 18);
  }
  EXPECT_EQ(seen.size(), 1797u);
}

TEST(ImageLoader, FixedCapacityFillsTheLastBatch) {
  const auto digits = shared(load_images("digits"));
  const ImageLoader loader(digits, plan_of(5, {.batch_size = 3, .shuffle = false}), {.fixed_capacity = true});
  const ImageBatch last = loader.batch(0, 1);
  EXPECT_EQ(last.rows, (Labels{3, 4}));
  EXPECT_EQ(last.labels.to_vector<int64_t>(), (std::vector<int64_t>{3, 4, kIgnoredLabel}));
  EXPECT_EQ(last.row_keys.to_vector<int64_t>(), (std::vector<int64_t>{3, 4, 0}));
  const std::vector<uint8_t> pixels = last.images.to_vector<uint8_t>();
  EXPECT_EQ(std::vector<uint8_t>(pixels.begin() + 192, pixels.begin() + 384), digits->image(4).pixels);
  EXPECT_EQ(std::vector<uint8_t>(pixels.begin() + 384, pixels.end()), std::vector<uint8_t>(192, 0));
}

TEST_F(ImageFolderTest, UnreadableImagesAreSkippedUpToALimit) {
  for (int i = 0; i < 6; ++i) add("c/" + std::to_string(i) + ".png", static_cast<uint8_t>(10 + i));
  for (const int bad : {1, 2, 4}) write("c/" + std::to_string(bad) + ".png", "damaged");
  const auto set = shared(load_images(source()));
  const BatchPlan plan = plan_of(6, {.batch_size = 1, .shuffle = false}, 3);
  for (const int workers : {0, 3}) {
    Names log;
    const ImageLoader loader(set, plan, {.workers = workers, .max_unreadable = 3, .log = log_to(log)});
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int> pixels, labels;
      for (const ImageBatch& batch : loader.epoch(epoch)) {
        EXPECT_EQ(batch.images.shape(), (Shape{1, 2, 3, 3}));
        pixels.push_back(batch.images.data<uint8_t>()[17]);
        labels.push_back(static_cast<int>(batch.labels.data<int64_t>()[0]));
      }
      EXPECT_EQ(pixels, (std::vector<int>{10, 0, 0, 13, 0, 15}));
      EXPECT_EQ(labels, (std::vector<int>{0, -100, -100, 0, -100, 0}));
    }
    EXPECT_EQ(loader.unreadable(), 3);
    ASSERT_EQ(log.size(), 3u);  // one line per file
    std::sort(log.begin(), log.end());
    EXPECT_TRUE(contains(log[1], {"skipped: ", "c/2.png: not a PNG or JPEG image"}));
  }
  const ImageLoader strict(set, plan, {.workers = 0, .max_unreadable = 1});
  EXPECT_NO_THROW(strict.batch(0, 2));
  EXPECT_NO_THROW(strict.batch(1, 2));
  EXPECT_TRUE(fails([&] { strict.batch(0, 4); }, {"more than 1 images", "c/4.png: not a PNG"}));

  add("d/wide.png", 1, 2, 4);
  const ImageLoader loader(shared(load_images(source())), plan_of(7, {.batch_size = 7, .shuffle = false}));
  EXPECT_TRUE(fails([&] { loader.batch(0, 0); },
                    {"d/wide.png has 4 x 2 pixels", "c/0.png of the same batch 3 x 2", "resize or crop"}));
  const auto refuse = [](Image, const ItemKey&) -> Image { fail("too small"); };
  const ImageLoader refused(set, plan, {.transform = refuse});
  EXPECT_TRUE(fails([&] { refused.batch(0, 3); }, {"c/3.png: too small"}));
  const ImageLoader digits(shared(load_images("digits")), plan, {.transform = refuse});
  EXPECT_EQ(error_of([&] { digits.batch(0, 3); }), "digits: image 3: too small");
}

TEST_F(ImageFolderTest, NothingReadable) {
  write("c/1.png", "");
  write("c/2.jpg", "");
  const ImageLoader loader(shared(load_images(source())), plan_of(2, {.batch_size = 1}));
  EXPECT_TRUE(fails([&] { loader.batch(0, 0); }, {"none of its 2 images can be read"}));
}

TEST(ImageLoader, Errors) {
  const auto digits = shared(load_images("digits"));
  EXPECT_TRUE(fails([] { ImageLoader(nullptr, {}); }, {"no data set"}));
  EXPECT_TRUE(fails([&] { ImageLoader(digits, plan_of(1798, {.batch_size = 2})); }, {"row ", "of 1797"}));
  EXPECT_TRUE(fails([&] { ImageLoader(digits, plan_of(3, {.batch_size = 2}), {.workers = -1}); }, {"-1"}));
  const ImageLoader loader(digits, plan_of(3, {.batch_size = 2}));
  EXPECT_TRUE(fails([&] { loader.batch(0, 2); }, {"step 2 of 2"}));
  EXPECT_TRUE(fails([&] { loader.epoch(1); }, {"epoch"}));
}

TEST_F(ImageFolderTest, ACacheKeepsImagesWhileThereIsRoom) {
  std::mt19937_64 random = fresh_random();
  std::vector<std::string> paths;
  std::vector<Image> expected;
  for (int i = 0; i < 12; ++i) {
    Image image(5, 7, 3);
    for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(random());
    paths.push_back(write("a/" + std::to_string(i) + ".png", encode_png(image)));
    expected.push_back(std::move(image));
  }
  const auto entry = [&](size_t i) { return static_cast<int64_t>(256 + paths[i].size() + 105 + 10); };
  ImageCache cache(5 * entry(0) + entry(0) / 2);  // the half stays free
  const auto read_all = [&] {
    for (size_t i = 0; i < paths.size(); ++i) EXPECT_EQ(cache.read(paths[i]).pixels, expected[i].pixels) << i;
  };
  std::vector<std::jthread> readers;
  for (int i = 0; i < 4; ++i) readers.emplace_back(read_all);
  readers.clear();
  EXPECT_EQ(cache.bytes(), 5 * entry(0));
  const int64_t misses = cache.misses();
  EXPECT_EQ(cache.hits() + misses, 48);
  read_all();
  EXPECT_EQ(cache.misses(), misses + 7);
  int64_t kept = 0;
  for (const std::string& path : paths) {
    fs::remove(path);
    kept += error_of([&] { cache.read(path); }) == "no error";
    EXPECT_TRUE(fails([&] { cache.read(path, {.apply_orientation = false}); }, {"cannot open"}));  // other pixels
  }
  EXPECT_EQ(kept, 5);
  EXPECT_TRUE(fails([] { ImageCache(-1); }, {"max_bytes", "-1"}));
}

TEST_F(ImageFolderTest, ALoaderReadsFromItsCache) {
  for (int i = 0; i < 5; ++i) add("a/" + std::to_string(i) + ".png", static_cast<uint8_t>(40 * i));
  const auto set = std::make_shared<const ImageSet>(load_images(source()));
  const auto cache = std::make_shared<ImageCache>(1 << 20);
  const BatchPlan plan(rows_below(5), {}, {.batch_size = 5, .seed = fresh_seed()}, 3);
  // The transform must not change what is kept.
  const auto inverted = [](Image image, const ItemKey&) {
    for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(255 - pixel);
    return image;
  };
  const ImageLoader plain(set, plan, {.transform = inverted}),
      cached(set, plan, {.transform = inverted, .cache = cache});
  for (int64_t epoch = 0; epoch < 3; ++epoch)
    EXPECT_EQ(cached.batch(epoch, 0).images.to_vector<uint8_t>(), plain.batch(epoch, 0).images.to_vector<uint8_t>());
  EXPECT_EQ(cache->misses(), 5);
  EXPECT_EQ(cache->hits(), 10);
}

}  // namespace
}  // namespace tern::data
