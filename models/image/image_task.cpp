#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "tern/core/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/data/loader_tokens.h"
#include "tern/models/image/image_classifier.h"

namespace tern::models {
namespace {

/// Files may have any size: workers resize each one. Images in memory are resized on the device.
data::ImageTransform file_transform(const ImageClassifier& classifier, const data::ImageSet& set) {
  if (set.in_memory()) return {};
  const int64_t size = classifier.preprocessing().size;
  const data::ResizeOptions resampling{.interpolation = classifier.preprocessing().interpolation};
  return [size, resampling](data::Image image, const data::ItemKey&) {
    return data::resize(image, size, size, resampling);
  };
}

data::ImageLoader make_loader(const ImageClassifier& classifier, const std::shared_ptr<const data::ImageSet>& set,
                              const std::vector<int32_t>& rows, int64_t epochs, bool shuffle, bool fixed,
                              const ImageTaskOptions& options) {
  const data::BatchPlanOptions plan{.batch_size = options.batch_size, .shuffle = shuffle, .seed = options.seed};
  return {set, data::BatchPlan(rows, {}, plan, epochs),
          data::ImageLoaderOptions{.transform = file_transform(classifier, *set),
                                   .seed = options.seed,
                                   .fixed_capacity = fixed,
                                   .workers = options.workers,
                                   .log = options.log}};
}

/// Logs each line only once: every validation makes a new loader, which would log unreadable files again.
std::function<void(const std::string&)> once(const std::function<void(const std::string&)>& log) {
  if (!log) return {};
  struct Said {
    std::mutex mutex;
    std::set<std::string> lines;
  };
  return [log, said = std::make_shared<Said>()](const std::string& line) {
    const std::lock_guard lock(said->mutex);
    if (said->lines.insert(line).second) log(line);
  };
}

ImageTaskOptions with_log_once(ImageTaskOptions options) {
  options.log = once(options.log);
  return options;
}

/// Takes the random part from the task's options and the pixel conversion from the classifier.
data::BatchAugmentOptions with_preprocessing(data::BatchAugmentOptions options, const ImageClassifier& classifier) {
  const ImagePreprocessing& p = classifier.preprocessing();
  options.height = options.width = p.size;
  options.resampling = {.interpolation = p.interpolation};
  options.normalization = p.normalization;
  options.dtype = classifier.model().dtype();
  return options;
}

}  // namespace

Evaluation evaluate(const ImageClassifier& classifier, const std::shared_ptr<const data::ImageSet>& set,
                    const std::vector<int32_t>& rows, const ImageTaskOptions& options) {
  Evaluation result;
  if (rows.empty()) {
    result.loss = result.accuracy = std::nan("");
    return result;
  }
  NoGrad off;
  ViT& model = classifier.model();
  const bool training = model.is_training();
  model.eval();
  const data::BatchAugment plain(with_preprocessing({}, classifier), options.seed);
  double loss = 0;
  int64_t correct = 0;
  for (const data::ImageBatch& host : make_loader(classifier, set, rows, 1, false, false, options).epoch(0)) {
    const data::AugmentedBatch batch = plain(host, model.device());
    const Tensor logits =
        autocast(model.device(), options.dtype, [&] { return model.forward(batch.images); }).to(DType::kFloat32);
    loss += cross_entropy(logits, batch.labels, {.reduction = LossReduction::kSum}).item<double>();
    correct += sum(eq(argmax(logits), batch.labels).to(DType::kInt64)).item<int64_t>();
    for (const int64_t label : host.labels.to_vector<int64_t>()) result.examples += label != data::kIgnoredLabel;
    if (options.should_stop && options.should_stop()) break;
  }
  model.train(training);
  result.loss = loss / static_cast<double>(result.examples);
  result.accuracy = static_cast<double>(correct) / static_cast<double>(result.examples);
  return result;
}

ImageTask::ImageTask(const ImageClassifier& classifier, std::shared_ptr<const data::ImageSet> set,
                     const std::vector<int32_t>& train_rows, std::vector<int32_t> validation_rows,
                     const ImageTaskOptions& options)
    : classifier_(classifier),
      fixed_(classifier.model().device().is_cuda()),
      set_(std::move(set)),
      validation_rows_(std::move(validation_rows)),
      options_(with_log_once(options)),
      loader_(make_loader(classifier, set_, train_rows, options.epochs, options.shuffle, fixed_, options_)),
      augment_(with_preprocessing(options.augmentation, classifier), options.seed) {
  if (fixed_) copies_.emplace(classifier.model().device());
}

void ImageTask::begin_epoch(int64_t epoch, const data::BatchStripe& stripe) {
  stream_.emplace(loader_.epoch(epoch, stripe));
  ahead_.reset();
  fetch_ahead();
}

/// Starts the next batch's copy to the device and its augmentation, which overlap with the current step.
void ImageTask::fetch_ahead() {
  ahead_.reset();
  const std::optional<data::ImageBatch> host = stream_->next();
  if (!host) return;
  const Device device = classifier_.model().device();
  ahead_.emplace(Travelling{{}, {}, host->rows, Event(device)});
  std::vector<int64_t> keys(host->rows.begin(), host->rows.end());
  keys.resize(static_cast<size_t>(host->size()), 0);
  NoGrad off;
  std::optional<StreamGuard> guard;
  if (copies_) guard.emplace(*copies_);
  ahead_->batch = augment_(*host, device);
  ahead_->keys = from_vector(keys, {host->size()}).to(device);
  if (copies_) ahead_->arrival.record();
}

bool ImageTask::next_batch() {
  current_.reset();  // frees its memory for the next batch
  if (!ahead_) return false;
  current_ = std::move(ahead_);
  if (copies_) {
    const kernels::Stream stream = current_stream(classifier_.model().device());
    current_->arrival.hold_back(stream);
    for (const Tensor& tensor : batch().tensors)
      if (tensor.defined()) tensor.storage()->record_stream(stream);
  }
  fetch_ahead();
  return true;
}

TrainingBatch ImageTask::batch() const {
  const data::AugmentedBatch& b = current_->batch;
  return {{b.images, b.labels, current_->keys, b.partner_labels, b.label_weights}, 0};
}

Tensor ImageTask::loss(const TrainingBatch& batch) {
  const std::vector<Tensor>& t = batch.tensors;
  const Tensor logits = classifier_.model().forward(t[0], t[2]);
  const Tensor &labels = t[1], &partners = t[3], &weights = t[4];
  CrossEntropyOptions options{.label_smoothing = options_.label_smoothing};
  if (!partners.defined()) return cross_entropy(logits, labels, options);
  // MixUp and CutMix: each image has two weighted labels.
  options.reduction = LossReduction::kSum;
  options.row_weights = weights;
  const Tensor own = cross_entropy(logits, labels, options);
  options.row_weights = 1 - weights;
  const Tensor images = sum(ne(labels, full({}, -100, labels.options())).to(DType::kFloat32));
  return (own + cross_entropy(logits, partners, options)) / clamp(images, 1, 1e18);
}

Evaluation ImageTask::validate() { return evaluate(classifier_, set_, validation_rows_, options_); }

}  // namespace tern::models
