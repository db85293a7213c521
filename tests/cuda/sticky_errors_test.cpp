// The CUDA errors after which every later call fails.

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tern/kernels/cuda/support/check.h"

namespace tern {
namespace {

/// The errors that, according to CUDA's header, require a new process, by number.
std::set<int> errors_that_stay() {
  std::ifstream header(TERN_CUDA_HEADERS "/driver_types.h");
  std::set<int> found;
  std::string line, comment, name, sign;
  for (int number = 0; std::getline(header, line); comment += line) {
    if (line.find("/**") != std::string::npos) comment.clear();
    std::istringstream words(line);
    if (!(words >> name >> sign >> number) || !name.starts_with("cudaError") || sign != "=") continue;
    if (comment.find("terminated") != std::string::npos && comment.find("relaunched") != std::string::npos)
      found.insert(number);
  }
  return found;
}

TEST(StickyErrors, AreThoseOfTheHeader) {
  std::set<int> expected = errors_that_stay();
  ASSERT_GE(expected.size(), 10u);
  // The header does not say so about uncorrectable errors of memory and links.
  expected.insert({cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable});
  for (int error = 1; error < 1000; ++error)
    EXPECT_EQ(kernels::cuda::detail::is_sticky(static_cast<cudaError_t>(error)), expected.contains(error)) << error;
}

}  // namespace
}  // namespace tern
