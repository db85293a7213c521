// Embeddings whose gradients are exchanged by rows, against groups that reduce them whole.

#include <limits>
#include <optional>

#include "tern/dist/gradients/data_parallel.h"
#include "tern/nn/nn.h"
#include "tern/tests/dist/mpi/world_test.h"

namespace tern::dist {
namespace {

/// An embedding whose gradient is exchanged by rows, of an odd width, and something behind it.
class Words final : public nn::Module {
 public:
  static constexpr int64_t kCount = 4001, kWidth = 67;
  explicit Words(const nn::Scope& s) : Module(s), table_(sub("table"), kCount, kWidth), out_(sub("out"), kWidth, 3) {}
  Tensor forward(const std::vector<int64_t>& ids) const {
    return out_.forward(table_.forward(from_vector(ids, {static_cast<int64_t>(ids.size())})));
  }
  const Parameter& table() const { return table_.weight(); }

 private:
  nn::Embedding table_;
  nn::Linear out_;
};

std::vector<int64_t> random_ids(uint64_t test, int64_t count, int64_t below) {
  std::mt19937_64 random(shared_seed() + 1000 * test + static_cast<uint64_t>(rank()));
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(below)));
  return ids;
}

/// The gradient of the table against that of this rank alone, which all ranks' groups reduce whole.
void expect_as_reduced_whole(const std::vector<std::vector<int64_t>>& passes, const DataParallelOptions& options,
                             bool by_rows, const std::string& what) {
  Words words(equal_scope()), alone(equal_scope());
  DataParallel parallel(words, world->group(), options);
  for (int step = 0; step < 2; ++step) {  // the second step makes other buckets
    for (size_t i = 0; i < passes.size(); ++i) {
      std::optional<DataParallel::NoSync> local;
      if (i + 1 < passes.size()) local.emplace(parallel);
      sum(square(words.forward(passes[i]))).backward();
      sum(square(alone.forward(passes[i]))).backward();
    }
    NoGrad off;
    const DType travels = size() > 1 ? options.reduce_dtype : float32;
    Tensor expected = alone.table().grad().detach().to(travels);
    group().all_reduce(expected, ReduceOp::kMean);
    expect_bits(words.table().grad().detach(), expected.to(float32), what);
    if (size() > 1) {
      const int64_t all = words.table().tensor().numel() * size_of(options.reduce_dtype);
      EXPECT_EQ(parallel.exchanged_bytes() < all / 2 + 4096, by_rows) << what << " " << parallel.exchanged_bytes();
    }
    words.zero_grad();
    alone.zero_grad();
  }
}

TEST(EmbeddingRows, EmbeddingsAreExchangedByRows) {
  const std::vector<int64_t> few = random_ids(20, 50, Words::kCount), more = random_ids(21, 33, Words::kCount);
  expect_as_reduced_whole({few}, {}, true, "rows");
  expect_as_reduced_whole({few}, {.overlap = false}, true, "rows after backward");
  expect_as_reduced_whole({few, more}, {}, true, "rows of two passes");
  expect_as_reduced_whole({few}, {.reduce_dtype = bfloat16}, true, "rows in bf16");
  expect_as_reduced_whole({{rank(), 4000 - rank()}}, {}, true, "each rank its own");
  expect_as_reduced_whole({random_ids(22, 9000, Words::kCount)}, {}, false, "most rows");
  expect_as_reduced_whole({random_ids(23, 9000, Words::kCount)}, {.reduce_dtype = float16}, false, "most rows, fp16");
}

TEST(EmbeddingRows, RowsOfAnEmbeddingThatFewOrNoRanksUse) {
  for (const int users : {0, 1}) {
    Words words(equal_scope());
    DataParallel parallel(words, world->group(), {.find_unused = true});
    // The others' loss reaches the layer behind the table alone.
    if (rank() < users)
      sum(words.forward({5, 5, 9})).backward();
    else
      sum(words.parameters().back().tensor).backward();
    const Tensor gradient = words.table().grad();
    ASSERT_EQ(gradient.defined(), users > 0);
    if (users == 0) continue;
    const std::vector<float> values = gradient.detach().to_vector<float>();
    for (int64_t i = 0; i < gradient.numel(); ++i) {
      const int64_t row = i / Words::kWidth;
      ASSERT_EQ(values[static_cast<size_t>(i)] != 0, row == 5 || row == 9) << row;
    }
    EXPECT_TRUE(size() == 1 || parallel.exchanged_bytes() < 8192) << parallel.exchanged_bytes();
  }
}

/// A module that is no nn::Embedding; its parameter says that its gradient has few rows, or does not.
class Table final : public nn::Module {
 public:
  Table(const nn::Scope& s, bool says_so)
      : Module(s), weight_(this, "weight", {Words::kCount, Words::kWidth}, nn::init::normal()) {
    if (says_so) weight_.set_few_gradient_rows();
  }
  const Parameter& weight() const { return weight_; }

 private:
  Parameter weight_;
};

TEST(EmbeddingRows, AnyParameterMaySayThatItsGradientHasFewRows) {
  const std::vector<int64_t> ids = random_ids(24, 50, Words::kCount);
  std::vector<Tensor> gradients;
  for (const bool says_so : {false, true}) {
    Table table(equal_scope(), says_so);
    EXPECT_EQ(table.parameters()[0].tensor.has_few_gradient_rows(), says_so);
    DataParallel parallel(table, world->group());
    sum(square(embedding(table.weight(), from_vector(ids, {static_cast<int64_t>(ids.size())})))).backward();
    if (size() > 1) {
      const int64_t all = table.weight().tensor().nbytes();
      EXPECT_EQ(parallel.exchanged_bytes() < all / 2, says_so) << parallel.exchanged_bytes();
    }
    gradients.push_back(table.weight().grad().detach());
  }
  expect_bits(gradients[1], gradients[0], "by rows and whole");
}

TEST(EmbeddingRows, ANotANumberInARowIsOnAllRanks) {
  Words words(equal_scope());
  DataParallel parallel(words, world->group());
  const bool bad = rank() == size() - 1;
  sum(words.forward({17}) * (bad ? std::numeric_limits<double>::quiet_NaN() : 1.0)).backward();
  for (const float v : words.table().grad().detach().slice(0, 17, 18).to_vector<float>()) ASSERT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace tern::dist
