#include "tern/data/loaders/token_loader.h"

#include <algorithm>

#include "tern/core/tensor/size_checks.h"
#include "tern/kernels/base/check.h"

namespace tern::data {

struct TokenLoader::State {
  static std::shared_ptr<const State> checked(std::shared_ptr<const TokenSet> tokens, std::vector<int32_t> labels,
                                              BatchPlan plan, const TokenLoaderOptions& options);

  std::shared_ptr<const TokenSet> tokens;
  std::vector<int32_t> labels;
  std::shared_ptr<const BatchPlan> plan;
  TokenLoaderOptions options;

  TokenBatch make(std::span<const int32_t> rows, int64_t epoch, int64_t step) const;
};

namespace {

/// Numbers of rows and sequences of a batch.
struct Layout {
  int64_t rows = 0;
  int64_t sequences = 0;
  int64_t stride = 0;  // padded: rows per sequence; packed: 0
};

int64_t row_key(int64_t data_row, int64_t position) {
  return static_cast<int64_t>((static_cast<uint64_t>(data_row) << 32) | static_cast<uint64_t>(position));
}

/// Writes the rows of a batch from first to last.
class RowWriter {
 public:
  RowWriter(const TokenBatch& batch, int32_t pad_id)
      : tokens_(batch.tokens.data<int32_t>()),
        positions_(batch.positions.data<int32_t>()),
        keys_(batch.layout.row_keys.data<int64_t>()),
        mask_(batch.padded() ? batch.layout.key_mask.data<uint8_t>() : nullptr),
        types_(batch.token_types.defined() ? batch.token_types.data<int32_t>() : nullptr),
        pad_id_(pad_id) {}

  int64_t rows() const { return rows_; }

  /// Writes a sequence into `room` rows. types: as ids, or empty.
  void sequence(std::span<const int32_t> ids, std::span<const int32_t> types, int64_t room, int64_t data_row) {
    for (int64_t position = 0; position < room; ++position) {
      const bool real = position < static_cast<int64_t>(ids.size());
      if (types_ != nullptr) types_[rows_] = real ? types[static_cast<size_t>(position)] : 0;
      add(real ? ids[static_cast<size_t>(position)] : pad_id_, position, row_key(data_row, position), real);
    }
  }

  /// Fills rows up to `end` that belong to no sequence; positions restart after `stride` rows (0: all are 0).
  void filler(int64_t end, int64_t stride) {
    const int64_t begin = rows_;
    if (types_ != nullptr && end > begin) std::fill(types_ + begin, types_ + end, 0);
    while (rows_ < end) add(pad_id_, stride > 0 ? (rows_ - begin) % stride : 0, row_key(-1, rows_), false);
  }

 private:
  void add(int32_t token, int64_t position, int64_t key, bool real) {
    tokens_[rows_] = token;
    positions_[rows_] = static_cast<int32_t>(position);
    keys_[rows_] = key;
    if (mask_ != nullptr) mask_[rows_] = real;
    ++rows_;
  }

  int32_t* tokens_;
  int32_t* positions_;
  int64_t* keys_;
  uint8_t* mask_;
  int32_t* types_;
  int32_t pad_id_;
  int64_t rows_ = 0;
};

}  // namespace

TokenBatch TokenLoader::State::make(std::span<const int32_t> rows, int64_t epoch, int64_t step) const {
  const BatchPlanOptions& planned = plan->options();
  const bool packed = planned.batch_tokens > 0;
  TokenBatch batch;
  batch.rows.assign(rows.begin(), rows.end());
  batch.epoch = epoch;
  batch.step = step;
  for (const int32_t row : rows) {
    const int64_t length = static_cast<int64_t>(tokens->row(row).size());
    batch.real_tokens += length;
    batch.layout.max_length = std::max(batch.layout.max_length, length);
  }
  Layout layout{batch.real_tokens, static_cast<int64_t>(rows.size()), 0};
  if (options.fixed_capacity) {
    batch.layout.max_length = plan->longest();
    layout.sequences = packed ? plan->max_batch_sequences() : planned.batch_size;
    layout.rows = planned.batch_tokens;
  }
  if (!packed) layout.stride = batch.layout.max_length;
  if (!packed) layout.rows = layout.sequences * layout.stride;

  batch.tokens = empty({layout.rows}, {.dtype = DType::kInt32});
  batch.positions = empty({layout.rows}, {.dtype = DType::kInt32});
  batch.layout.row_keys = empty({layout.rows}, {.dtype = DType::kInt64});
  batch.layout.offsets = empty({layout.sequences + 1}, {.dtype = DType::kInt32});
  batch.first_rows = empty({layout.sequences}, {.dtype = DType::kInt64});
  batch.labels = empty({layout.sequences}, {.dtype = DType::kInt64});
  if (!tokens->types.empty()) batch.token_types = empty({layout.rows}, {.dtype = DType::kInt32});
  if (!packed) batch.layout.key_mask = empty({layout.rows}, {.dtype = DType::kUInt8});

  RowWriter writer(batch, options.pad_id);
  int32_t* offsets = batch.layout.offsets.data<int32_t>();
  int64_t* first_rows = batch.first_rows.data<int64_t>();
  int64_t* sequence_labels = batch.labels.data<int64_t>();
  offsets[0] = 0;
  for (int64_t s = 0; s < layout.sequences; ++s) {
    first_rows[s] = writer.rows();
    if (s < static_cast<int64_t>(rows.size())) {
      const std::span<const int32_t> ids = tokens->row(rows[s]);
      writer.sequence(ids, tokens->row_types(rows[s]), packed ? static_cast<int64_t>(ids.size()) : layout.stride,
                      rows[s]);
      sequence_labels[s] = labels.empty() ? kIgnoredLabel : labels[rows[s]];
    } else {
      writer.filler(writer.rows() + layout.stride, layout.stride);
      if (packed) first_rows[s] = 0;
      sequence_labels[s] = kIgnoredLabel;
    }
    offsets[s + 1] = static_cast<int32_t>(writer.rows());
  }
  writer.filler(layout.rows, 0);
  if (options.transform) options.transform(batch);
  return batch;
}

std::shared_ptr<const TokenLoader::State> TokenLoader::State::checked(std::shared_ptr<const TokenSet> tokens,
                                                                      std::vector<int32_t> labels, BatchPlan plan,
                                                                      const TokenLoaderOptions& options) {
  TERN_CHECK(tokens != nullptr, "token loader: no tokens");
  TERN_CHECK(labels.empty() || static_cast<int64_t>(labels.size()) == tokens->size(), "token loader: ", tokens->size(),
             " token rows, but ", labels.size(), " labels");
  TERN_CHECK(tokens->types.empty() || tokens->types.size() == tokens->ids.size(), "token loader: ", tokens->ids.size(),
             " tokens, but ", tokens->types.size(), " token types");
  const BatchPlanOptions& planned = plan.options();
  const int64_t max_rows = planned.batch_tokens > 0
                               ? planned.batch_tokens
                               : tern::detail::checked_product("token loader", planned.batch_size, plan.longest());
  TERN_CHECK(max_rows <= INT32_MAX, "token loader: a batch of ", max_rows, " token rows is beyond 2^31 - 1");
  auto rows = PlannedLoader::checked("token loader", std::move(plan), tokens->size());
  for (const int32_t row : rows->rows())
    TERN_CHECK(static_cast<int64_t>(tokens->row(row).size()) <= rows->longest(),
               "token loader: the plan was made for other lengths (row ", row, ")");
  return std::make_shared<const State>(State{std::move(tokens), std::move(labels), std::move(rows), options});
}

TokenLoader::TokenLoader(std::shared_ptr<const TokenSet> tokens, std::vector<int32_t> labels, BatchPlan plan,
                         const TokenLoaderOptions& options)
    : PlannedLoader("token loader", State::checked(std::move(tokens), std::move(labels), std::move(plan), options)) {}

}  // namespace tern::data
