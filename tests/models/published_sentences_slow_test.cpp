// Vectors of texts by published weights.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tern/models/text/sentence_embedder.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;

/// The published all-MiniLM-L6-v2, where its folder is: TERN_MINILM, or all-MiniLM-L6-v2 in TERN_DATA. The numbers are
/// sentence-transformers 6.2's.
TEST(PublishedWeights, MiniLm) {
  const char *given = std::getenv("TERN_MINILM"), *data = std::getenv("TERN_DATA");
  const std::string dir = given ? given : data ? std::string(data) + "/all-MiniLM-L6-v2" : "";
  if (dir.empty() || !fs::exists(dir)) GTEST_SKIP() << "data: no all-MiniLM-L6-v2 (TERN_MINILM, or in TERN_DATA)";
  const auto embedder = SentenceEmbedder::load(dir);
  const Tensor vectors = embedder.embed({"This is an example sentence", "Each sentence is converted"});
  ASSERT_EQ(vectors.shape(), (Shape{2, 384}));
  const std::vector<double> got = vectors[0].to_vector<double>();
  double squares = 0;
  for (const double v : got) squares += v * v;
  EXPECT_NEAR(squares, 1, 1e-5);
  const double first[] = {0.06765692, 0.06349597, 0.04871310, 0.07930500, 0.03744809, 0.00265282};
  for (size_t i = 0; i < std::size(first); ++i) EXPECT_NEAR(got[i], first[i], 1e-6);
  EXPECT_NEAR(embedder.similarity(vectors.slice(0, 0, 1), vectors.slice(0, 1, 2)).item<double>(), 0.40455943, 1e-6);
}

}  // namespace
}  // namespace tern::models
