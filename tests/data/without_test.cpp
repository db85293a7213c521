// A build that leaves parts out (TERN_CURL, TERN_ARCHIVES, TERN_IMAGES, TERN_EMBEDDED_DATA): a function that needs one
// throws an error in one line that names the part and the option, and writes no file. This program is linked with the
// files that replace the parts.

#include "tern/data/datasets/digits.h"
#include "tern/data/datasets/text_set.h"
#include "tern/data/files/fetched_folder.h"
#include "tern/data/images/image.h"
#include "tern/data/tokenizers/wordpiece.h"
#include "tern/tests/data/support.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;

class WithoutTest : public FolderTest {
 protected:
  template <class Action>
  testing::AssertionResult needs(const Action& action, const std::string& start, const std::string& part,
                                 const std::string& option) const {
    const std::string error = error_of(action);
    if (error.find('\n') != error.npos) return testing::AssertionFailure() << "not one line: " << error;
    return contains(error, {start, "this build of Tern has no " + part, "configure Tern with -D" + option + "=ON"});
  }
};

TEST_F(WithoutTest, Fetching) {
  const std::string url = "file://" + write("source", "x");
  const Download source{url, 1, ""};
  EXPECT_TRUE(needs([&] { download(source, root() / "got"); }, "cannot fetch " + url, "libcurl", "TERN_CURL"));
  EXPECT_FALSE(fs::exists(root() / "got"));
}

TEST_F(WithoutTest, UnpackingIsRefusedBeforeAnythingIsFetched) {
  const Environment to("XDG_CACHE_HOME", (root() / "cache").string()), none("TERN_DATA", std::nullopt);
  const FetchedFolder set = {.name = "letters",
                             .folder = "letters",
                             .archive = {"file:///letters.tar.gz", 1, ""},
                             .max_unpacked_bytes = 1,
                             .contents = "letters/train",
                             .is_complete = [](const fs::path& folder) { return fs::exists(folder / "train"); }};
  const auto fetch = [&] { fetch_folder(set, {}); };
  EXPECT_TRUE(needs(fetch, "letters: cannot unpack file:///letters.tar.gz", "libarchive", "TERN_ARCHIVES"));
  EXPECT_TRUE(fails(fetch, {"set TERN_DATA to the folder that holds letters"}));
  EXPECT_FALSE(fs::exists(root() / "cache"));
  fs::create_directories(root() / "cache/tern/letters/train");  // a copy needs no part
  EXPECT_EQ(fetch_folder(set, {}), (root() / "cache/tern/letters").string());
}

TEST_F(WithoutTest, Images) {
  const auto decode = [](const char* bytes) { return [bytes] { decode_image(bytes, "a file"); }; };
  EXPECT_TRUE(needs(decode("\x89PNG\r\n\x1a\n"), "a file: cannot decode a PNG image", "libpng", "TERN_IMAGES"));
  EXPECT_TRUE(needs(decode("\xff\xd8\xff"), "a file: cannot decode a JPEG image", "libjpeg", "TERN_IMAGES"));
  EXPECT_TRUE(fails(decode("GIF89a"), {"GIF"}));
  const std::string path = (root() / "maps" / "a.png").string();
  const auto encode = [&] { write_png(path, Image(1, 1, 3)); };
  EXPECT_TRUE(needs(encode, "cannot encode a PNG image", "libpng", "TERN_IMAGES"));
  EXPECT_FALSE(fs::exists(root() / "maps"));
}

TEST_F(WithoutTest, EmbeddedData) {
  const std::string part = "embedded data", option = "TERN_EMBEDDED_DATA";
  EXPECT_TRUE(needs([] { digits(); }, "digits_csv_gz", part, option));
  EXPECT_TRUE(needs([] { load_text("sentences"); }, "amazon_cells_labelled", part, option));
  EXPECT_TRUE(needs([] { WordPiece::from_embedded(); }, "bert_base_uncased_vocab", part, option));
}

}  // namespace
}  // namespace tern::data
