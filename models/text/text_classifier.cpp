#include "tern/models/text/text_classifier.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "tern/core/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"

namespace tern::models {
namespace {

/// Longest sequences first: batches have similar lengths, and a lack of memory shows in the first batch.
std::vector<int32_t> by_length(std::vector<int32_t> rows, const std::vector<int32_t>& lengths) {
  std::stable_sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  return rows;
}

data::TokenLoader packed_loader(const std::shared_ptr<const data::TokenSet>& tokens, const std::vector<int32_t>& labels,
                                const std::vector<int32_t>& rows, int64_t batch_tokens, int32_t pad_id) {
  const std::vector<int32_t> lengths = tokens->lengths();
  int64_t longest = 1;
  for (const int32_t row : rows) longest = std::max<int64_t>(longest, lengths[static_cast<size_t>(row)]);
  data::BatchPlanOptions plan;
  plan.batch_tokens = std::max(batch_tokens, longest);
  plan.shuffle = false;
  plan.window = 1;
  return {
      tokens, labels, data::BatchPlan(by_length(rows, lengths), lengths, plan, 1), {.pad_id = pad_id, .workers = 1}};
}

data::BatchPlan training_plan(const data::TokenSet& tokens, const std::vector<int32_t>& rows,
                              const TextTaskOptions& options) {
  data::BatchPlanOptions plan;
  plan.batch_size = options.batch_size;
  plan.batch_tokens = options.batch_size > 0 ? 0 : options.batch_tokens;
  plan.shuffle = options.shuffle;
  plan.group_by_length = options.group_by_length;
  plan.seed = options.seed;
  return {rows, tokens.lengths(), plan, options.epochs};
}

}  // namespace

TextClassifier::TextClassifier(std::unique_ptr<DistilBert> model, data::WordPiece tokenizer)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)) {
  TERN_CHECK(tokenizer_.vocab_size() <= this->model().config().vocab_size, "the vocabulary has ",
             tokenizer_.vocab_size(), " tokens, the model's embedding ", this->model().config().vocab_size,
             ": they do not belong together");
}

TextClassifier TextClassifier::load(const std::string& dir, const FromPretrainedOptions& options) {
  auto model = DistilBert::from_pretrained(dir, options);
  return {std::move(model), data::WordPiece::from_folder(dir)};
}

void TextClassifier::save(const std::string& dir) const {
  tokenizer_.save(dir, model().config().max_positions);
  model().save_pretrained(dir);
}

std::vector<TextPrediction> TextClassifier::predict(const std::vector<std::string>& texts, int64_t max_length,
                                                    int64_t batch_tokens) const {
  NoGrad off;
  const int64_t limit =
      max_length > 0 ? std::min(max_length, model().config().max_positions) : model().config().max_positions;
  auto tokens = std::make_shared<data::TokenSet>();
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = tokenizer_.encode_special(text, static_cast<size_t>(limit));
    tokens->ids.insert(tokens->ids.end(), ids.begin(), ids.end());
    tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
  }
  std::vector<int32_t> rows(texts.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<TextPrediction> predictions(texts.size());
  if (texts.empty()) return predictions;
  const std::vector<int32_t> labels(texts.size(), 0);
  for (const data::TokenBatch& host : packed_loader(tokens, labels, rows, batch_tokens, tokenizer_.pad_id()).epoch(0)) {
    const data::TokenBatch batch = host.to(model().device());
    const Tensor logits = model().forward(encoder_input(batch)).to(DType::kFloat32);
    const std::vector<double> values = logits.to_vector<double>(), scores = softmax(logits).to_vector<double>();
    const size_t classes = static_cast<size_t>(logits.size(1));
    for (size_t i = 0; i < batch.rows.size(); ++i) {
      TextPrediction& p = predictions[static_cast<size_t>(batch.rows[i])];
      p.logits.assign(values.begin() + static_cast<int64_t>(i * classes),
                      values.begin() + static_cast<int64_t>((i + 1) * classes));
      p.label = std::max_element(p.logits.begin(), p.logits.end()) - p.logits.begin();
      p.score = scores[i * classes + static_cast<size_t>(p.label)];
    }
  }
  return predictions;
}

int64_t evaluation_tokens(int64_t batch_tokens) { return std::clamp<int64_t>(batch_tokens, 4096, 16384); }

Evaluation evaluate(DistilBert& model, const std::shared_ptr<const data::TokenSet>& tokens,
                    const std::vector<int32_t>& labels, const std::vector<int32_t>& rows, int64_t batch_tokens,
                    int32_t pad_id, DType dtype, const std::function<bool()>& should_stop) {
  Evaluation result;
  result.examples = static_cast<int64_t>(rows.size());
  if (rows.empty()) {
    result.loss = result.accuracy = std::nan("");
    return result;
  }
  NoGrad off;
  const bool training = model.is_training();
  model.eval();
  double loss = 0;
  int64_t correct = 0;
  for (const data::TokenBatch& host : packed_loader(tokens, labels, rows, batch_tokens, pad_id).epoch(0)) {
    const data::TokenBatch batch = host.to(model.device());
    const Tensor logits =
        autocast(model.device(), dtype, [&] { return model.forward(encoder_input(batch)); }).to(DType::kFloat32);
    loss += cross_entropy(logits, batch.labels, {.reduction = LossReduction::kSum}).item<double>();
    correct += sum(eq(argmax(logits), batch.labels).to(DType::kInt64)).item<int64_t>();
    if (should_stop && should_stop()) break;
  }
  model.train(training);
  result.loss = loss / static_cast<double>(result.examples);
  result.accuracy = static_cast<double>(correct) / static_cast<double>(result.examples);
  return result;
}

TextTask::TextTask(DistilBert& model, std::shared_ptr<const data::TokenSet> tokens, std::vector<int32_t> labels,
                   const std::vector<int32_t>& train_rows, std::vector<int32_t> validation_rows, int32_t pad_id,
                   const TextTaskOptions& options)
    : model_(model),
      fixed_(model.device().is_cuda()),
      tokens_(std::move(tokens)),
      labels_(std::move(labels)),
      validation_rows_(std::move(validation_rows)),
      pad_id_(pad_id),
      options_(options),
      loader_(tokens_, labels_, training_plan(*tokens_, train_rows, options),
              {.pad_id = pad_id, .fixed_capacity = fixed_, .workers = options.workers}) {
  if (model.device().is_cuda()) copies_.emplace(model.device());
}

void TextTask::begin_epoch(int64_t epoch, const data::BatchStripe& stripe) {
  stream_.emplace(loader_.epoch(epoch, stripe));
  ahead_.reset();
  fetch_ahead();
}

/// Starts the next batch's copy to the device, which overlaps with the current step.
void TextTask::fetch_ahead() {
  ahead_.reset();
  std::optional<data::TokenBatch> host = stream_->next();
  if (!host) return;
  const Device device = model_.device();
  ahead_.emplace(Travelling{{}, Event(device)});
  if (copies_) {
    const StreamGuard guard(*copies_);
    ahead_->batch = host->to(device);
    ahead_->arrival.record();
  } else {
    ahead_->batch = std::move(*host);
  }
}

bool TextTask::next_batch() {
  current_.reset();  // frees its memory for the next batch
  if (!ahead_) return false;
  current_ = std::move(ahead_);
  if (copies_) {
    const kernels::Stream stream = current_stream(model_.device());
    current_->arrival.hold_back(stream);
    for (const Tensor& tensor : batch().tensors)
      if (tensor.defined()) tensor.storage()->record_stream(stream);
  }
  fetch_ahead();
  return true;
}

int64_t TextTask::items(int64_t epoch, int64_t batch) const {
  int64_t tokens = 0;
  for (const int32_t row : plan().epoch(epoch).batch(batch)) tokens += static_cast<int64_t>(tokens_->row(row).size());
  return tokens;
}

TrainingBatch TextTask::batch() const {
  const data::TokenBatch& b = current_->batch;
  return {{b.tokens, b.positions, b.first_rows, b.offsets, b.key_mask, b.row_keys, b.labels}, b.max_length};
}

Tensor TextTask::loss(const TrainingBatch& batch) {
  const std::vector<Tensor>& t = batch.tensors;
  EncoderInput input{.tokens = t[0], .positions = t[1], .first_rows = t[2], .layout = {}};
  input.layout = {.offsets = t[3], .max_length = batch.longest, .key_mask = t[4], .row_keys = t[5]};
  return cross_entropy(model_.forward(input), t[6]);
}

Evaluation TextTask::validate() {
  return evaluate(model_, tokens_, labels_, validation_rows_, evaluation_tokens(options_.batch_tokens), pad_id_,
                  options_.dtype, options_.should_stop);
}

}  // namespace tern::models
