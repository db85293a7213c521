// Fetching with checks.

#include "tern/data/files/download.h"

#include "tern/data/files/sha256.h"
#include "tern/tests/data/support.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;

class DownloadTest : public FolderTest {
 protected:
  std::string download_error(const Download& source) const {
    return error_of([&] { download(source, root() / "got"); });
  }
};

TEST_F(DownloadTest, ChecksSizeAndDigest) {
  const std::string bytes(300'000, 'q');
  const std::string url = "file://" + write("source", bytes);
  const Download good{url, 300'000, sha256(bytes)};
  std::vector<std::string> lines;
  download(good, root() / "got", log_to(lines));
  EXPECT_EQ(read_bytes(root() / "got"), bytes);
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(contains(lines.back(), {"100 %"}));
  EXPECT_TRUE(contains(download_error(good), {"cannot create", "got", "File exists"}));
  fs::remove(root() / "got");
  EXPECT_TRUE(contains(download_error({url, 300'000, sha256("other")}), {"cannot fetch", "sha256", sha256(bytes)}));
  EXPECT_TRUE(contains(download_error({url, 300'001, sha256(bytes)}), {"got 300000 of 300001 bytes"}));
  EXPECT_TRUE(contains(download_error({url, 299'999, sha256(bytes)}), {"more than the expected 299999"}));
  EXPECT_FALSE(fs::exists(root() / "got"));
}

TEST_F(DownloadTest, ErrorsAreOneLine) {
  for (const std::string url :
       {"file:///does/not/exist", "https://127.0.0.1:9/x", "ftp://localhost/x", "nonsense://"}) {
    const std::string error = download_error({url, 10, ""});
    EXPECT_TRUE(contains(error, {"cannot fetch " + url}));
    EXPECT_EQ(error.find('\n'), error.npos);
    EXPECT_FALSE(fs::exists(root() / "got"));
  }
}

}  // namespace
}  // namespace tern::data
