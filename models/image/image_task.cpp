#include "tern/models/image/image_task.h"

#include <mutex>
#include <set>

#include "tern/core/ops/ops.h"
#include "tern/data/loader_tokens.h"

namespace tern::models {
namespace {

/// Files may have any size: workers resize each one. Images in memory are resized on the device.
data::ImageTransform file_transform(const ImagePreprocessing& preprocessing, const data::ImageSet& set) {
  if (set.in_memory()) return {};
  const int64_t size = preprocessing.size;
  const data::ResizeOptions resampling{.interpolation = preprocessing.interpolation};
  return [size, resampling](data::Image image, const data::ItemKey&) {
    return data::resize(image, size, size, resampling);
  };
}

data::ImageLoader make_loader(const ImagePreprocessing& preprocessing, const std::shared_ptr<const data::ImageSet>& set,
                              const std::vector<int32_t>& rows, int64_t epochs, bool shuffle, bool fixed,
                              const ImageTaskOptions& options) {
  const data::BatchPlanOptions plan{.batch_size = options.batch_size, .shuffle = shuffle, .seed = options.seed};
  return {set, data::BatchPlan(rows, {}, plan, epochs),
          data::ImageLoaderOptions{.transform = file_transform(preprocessing, *set),
                                   .seed = options.seed,
                                   .fixed_capacity = fixed,
                                   .workers = options.workers,
                                   .log = options.log,
                                   .cache = options.cache}};
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

/// The random part is the options', the pixel conversion the preprocessing's.
data::BatchAugmentOptions with_preprocessing(data::BatchAugmentOptions options, const ImagePreprocessing& p,
                                             DType dtype) {
  options.height = options.width = p.size;
  options.resampling = {.interpolation = p.interpolation};
  options.normalization = p.normalization;
  options.dtype = dtype;
  return options;
}

data::BatchSource<data::AugmentedBatch> augmented(data::BatchStream<data::ImageBatch> stream,
                                                  const data::BatchAugment& augment, Device device) {
  return source_of(std::move(stream),
                   [augment, device](const data::ImageBatch& host) { return augment(host, device); });
}

/// Every row once, in order, as it is.
data::BatchSource<data::AugmentedBatch> plain_batches(const ImagePreprocessing& preprocessing, DType dtype,
                                                      const std::shared_ptr<const data::ImageSet>& set,
                                                      const std::vector<int32_t>& rows, const ImageTaskOptions& options,
                                                      Device device) {
  return augmented(make_loader(preprocessing, set, rows, 1, false, false, options).epoch(0),
                   data::BatchAugment(with_preprocessing({}, preprocessing, dtype), options.seed), device);
}

Tensor mixed_cross_entropy(const Tensor& logits, const data::AugmentedBatch& batch, double label_smoothing) {
  CrossEntropyOptions options{.label_smoothing = label_smoothing};
  if (!batch.partner_labels.defined()) return cross_entropy(logits, batch.labels, options);
  // MixUp and CutMix: each image has two weighted labels.
  options.reduction = LossReduction::kSum;
  options.row_weights = batch.label_weights;
  const Tensor own = cross_entropy(logits, batch.labels, options);
  options.row_weights = 1 - batch.label_weights;
  const Tensor ignored = full({}, static_cast<double>(data::kIgnoredLabel), batch.labels.options());
  const Tensor images = sum(ne(batch.labels, ignored).to(DType::kFloat32));
  return (own + cross_entropy(logits, batch.partner_labels, options)) / clamp(images, 1, 1e18);
}

ImageObjective label_of_each_image(const ImageClassifier& model, double label_smoothing) {
  auto objective = single_label<data::AugmentedBatch>([&model](const data::AugmentedBatch& batch) {
    // Keys are for dropout; without them evaluation can compute several layers in one pass.
    return model.forward(batch.images, model.is_training() ? batch.row_keys : Tensor());
  });
  objective.loss = [label_smoothing](const Tensor& logits, const data::AugmentedBatch& batch) {
    return mixed_cross_entropy(logits, batch, label_smoothing);
  };
  return objective;
}

}  // namespace

Evaluation evaluate(const ImagePipeline& pipeline, const std::shared_ptr<const data::ImageSet>& set,
                    const std::vector<int32_t>& rows, const ImageTaskOptions& options) {
  ImageClassifier& model = pipeline.model();
  return evaluate(model, label_of_each_image(model, 0),
                  plain_batches(pipeline.preprocessing(), model.dtype(), set, rows, options, model.device()),
                  options.validation);
}

ImageTask::ImageTask(const ImagePipeline& pipeline, const std::shared_ptr<const data::ImageSet>& set,
                     const std::vector<int32_t>& train_rows, std::vector<int32_t> validation_rows,
                     const ImageTaskOptions& options)
    : ImageTask(pipeline.model(), label_of_each_image(pipeline.model(), options.label_smoothing),
                pipeline.preprocessing(), set, train_rows, std::move(validation_rows), options) {}

ImageTask::ImageTask(nn::Module& model, ImageObjective objective, const ImagePreprocessing& preprocessing,
                     const std::shared_ptr<const data::ImageSet>& set, const std::vector<int32_t>& train_rows,
                     std::vector<int32_t> validation_rows, const ImageTaskOptions& options)
    : PlannedTask(model, std::move(objective), std::move(validation_rows), options.validation),
      set_(set),
      preprocessing_(preprocessing),
      dtype_(model.dtype()),
      options_(with_log_once(options)),
      loader_(make_loader(preprocessing, set, train_rows, options.epochs, options.shuffle, fixed_shapes(), options_)),
      augment_(with_preprocessing(options.augmentation, preprocessing, dtype_), options.seed) {}

data::BatchSource<data::AugmentedBatch> ImageTask::training_batches(int64_t epoch, const data::BatchStripe& stripe) {
  return augmented(loader_.epoch(epoch, stripe), augment_, device());
}

data::BatchSource<data::AugmentedBatch> ImageTask::evaluation_batches(const std::vector<int32_t>& rows) const {
  return plain_batches(preprocessing_, dtype_, set_, rows, options_, device());
}

}  // namespace tern::models
