#include "tern/models/image/image_task.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tern/core/ops/ops.h"
#include "tern/data/samples/batch_tensors.h"
#include "tern/nn/layers/batch_norm.h"

namespace tern::models {
namespace {

using SizeOfEpoch = std::function<int64_t(int64_t epoch)>;

/// The size of an epoch of training images.
SizeOfEpoch training_sizes(int64_t size, const ImageTaskOptions& options) {
  if (options.first_size == 0) return [size](int64_t) { return size; };
  TERN_CHECK(options.first_size > 0 && options.first_size <= size && options.first_size % options.size_multiple == 0,
             "progressive resizing (--progressive-resize): the first epoch's images of ", options.first_size,
             " pixels must be ",
             options.size_multiple > 1
                 ? "a multiple of the model's patches of " + std::to_string(options.size_multiple) + ", and "
                 : "",
             "at most the ", size, " pixels of its input");
  return [first = options.first_size, multiple = options.size_multiple, epochs = options.epochs, size](int64_t epoch) {
    return training_size(first, size, multiple, epoch, epochs);
  };
}

/// Files may have any size: workers resize each one, or cut out its centre. Images in memory are resized on the device.
data::ImageTransform transform_of(const ImagePreprocessing& preprocessing, const data::ImageSet& set,
                                  const SizeOfEpoch& size_of, const data::ImageStep& policy) {
  std::vector<data::ImageStep> steps;
  if (policy) steps.push_back(policy);
  const data::ImageTransform change = steps.empty() ? data::ImageTransform() : data::compose(std::move(steps));
  if (set.in_memory() && preprocessing.crop_from == 0) return change;
  return [size_of, preprocessing, change](const data::Image& image, const data::ItemKey& key) {
    data::Image resized = preprocessing.fit(image, size_of(key.epoch));
    return change ? change(std::move(resized), key) : resized;
  };
}

/// Whether a last batch of one image is left out of every epoch: where its pixels have become one, a batch norm cannot
/// compute a variance, and elsewhere the statistics of one image are poor.
bool leaves_one_out(nn::Module& model, size_t rows, const ImageTaskOptions& options) {
  const auto size = static_cast<size_t>(std::max<int64_t>(options.batch_size, 1));
  return size > 1 && rows > size && rows % size == 1 && trains_batch_norms(model);
}

/// A loader of the rows' batches in `epochs` epochs. `training`: shuffled and augmented as the options say.
data::ImageLoader make_loader(const ImagePreprocessing& preprocessing, const std::shared_ptr<const data::ImageSet>& set,
                              const std::vector<int32_t>& rows, int64_t epochs, bool training, bool fixed,
                              const ImageTaskOptions& options, bool drop_last = false) {
  const data::BatchPlanOptions plan{.batch_size = options.batch_size,
                                    .shuffle = training && options.shuffle,
                                    .drop_last = drop_last,
                                    .seed = options.seed};
  return {set, data::BatchPlan(rows, {}, plan, epochs),
          data::ImageLoaderOptions{
              .transform = training ? transform_of(preprocessing, *set, training_sizes(preprocessing.size, options),
                                                   options.policy)
                                    : transform_of(preprocessing, *set, training_sizes(preprocessing.size, {}), {}),
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

ImageTaskOptions for_input(ImageTaskOptions options, const ImageClassifier::Input& input) {
  options.size_multiple = input.multiple;
  return options;
}

/// The random part is the options', the pixel conversion the preprocessing's.
data::BatchAugmentOptions with_preprocessing(data::BatchAugmentOptions options, const ImagePreprocessing& p,
                                             int64_t size, DType dtype) {
  options.height = options.width = size;
  options.padding = options.padding * size / p.size;
  options.resampling = {.interpolation = p.interpolation};
  options.normalization = p.normalization;
  options.dtype = dtype;
  return options;
}

data::BatchSource<data::ImageBatch> augmented(data::BatchStream<data::ImageBatch> stream,
                                              const data::BatchAugment& augment, Device device) {
  return data::source_of(std::move(stream),
                         [augment, device](const data::ImageBatch& host) { return augment(host, device); });
}

/// Every row once, in order, as it is: this process's batches.
data::BatchSource<data::ImageBatch> plain_batches(const ImagePreprocessing& preprocessing, DType dtype,
                                                  const std::shared_ptr<const data::ImageSet>& set,
                                                  const std::vector<int32_t>& rows, const ImageTaskOptions& options,
                                                  Device device) {
  const data::ImageLoader loader = make_loader(preprocessing, set, rows, 1, false, false, options);
  return augmented(loader.epoch(0, own_batches(options.validation, loader.steps(0))),
                   data::BatchAugment(with_preprocessing({}, preprocessing, preprocessing.size, dtype), options.seed),
                   device);
}

Tensor mixed_cross_entropy(const Tensor& logits, const data::ImageBatch& batch, double label_smoothing) {
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
  auto objective = single_label<data::ImageBatch>([&model](const data::ImageBatch& batch) {
    // Keys are for dropout; without them evaluation can compute several layers in one pass.
    return model.forward(batch.images, model.is_training() ? batch.row_keys : Tensor());
  });
  objective.loss = [label_smoothing](const Tensor& logits, const data::ImageBatch& batch) {
    return mixed_cross_entropy(logits, batch, label_smoothing);
  };
  return objective;
}

}  // namespace

bool trains_batch_norms(nn::Module& model) {
  bool found = false;
  model.apply([&](nn::Module& module) {
    const auto* const norm = dynamic_cast<const nn::BatchNorm*>(&module);
    if (!norm) return;
    const Tensor weight = norm->weight(), bias = norm->bias();
    found = found || !weight.defined() || weight.requires_grad() || bias.requires_grad();
  });
  return found;
}

Evaluation evaluate(const ImagePipeline& pipeline, const std::shared_ptr<const data::ImageSet>& set,
                    const std::vector<int32_t>& rows, const ImageTaskOptions& options) {
  ImageClassifier& model = pipeline.model();
  ImagePreprocessing preprocessing = pipeline.preprocessing();
  const int64_t size = preprocessing.size;
  preprocessing.size = test_time_size(options.views, size);
  ImageObjective objective = label_of_each_image(model, 0);
  objective.forward = [&model, views = options.views, size](const data::ImageBatch& batch) {
    return test_time_logits(model, batch.images, views, size);
  };
  return evaluate(model, objective, plain_batches(preprocessing, model.dtype(), set, rows, options, model.device()),
                  options.validation);
}

int64_t training_size(int64_t first, int64_t last, int64_t multiple, int64_t epoch, int64_t epochs) {
  const int64_t rise = epochs * 4 / 5;
  if (epoch >= rise) return last;
  const int64_t size = first + (last - first) * epoch / rise;
  return size / multiple * multiple;
}

ImageTask::ImageTask(const ImagePipeline& pipeline, const std::shared_ptr<const data::ImageSet>& set,
                     const std::vector<int32_t>& train_rows, std::vector<int32_t> validation_rows,
                     const ImageTaskOptions& options)
    : ImageTask(pipeline.model(), label_of_each_image(pipeline.model(), options.label_smoothing),
                pipeline.preprocessing(), set, train_rows, std::move(validation_rows),
                for_input(options, pipeline.model().input())) {}

ImageTask::ImageTask(nn::Module& model, ImageObjective objective, const ImagePreprocessing& preprocessing,
                     const std::shared_ptr<const data::ImageSet>& set, const std::vector<int32_t>& train_rows,
                     std::vector<int32_t> validation_rows, const ImageTaskOptions& options)
    : PlannedTask(model, std::move(objective), std::move(validation_rows), options.validation),
      set_(set),
      preprocessing_(preprocessing),
      dtype_(model.dtype()),
      options_(with_log_once(options)),
      loader_(make_loader(preprocessing, set, train_rows, options.epochs, true, fixed_shapes(), options_,
                          leaves_one_out(model, train_rows.size(), options))) {
  if (plan().options().drop_last && options_.log)
    options_.log(
        "the last batch of an epoch would have one image, too few for batch norms; every epoch leaves one out" +
        std::string(options.shuffle ? ", each time another" : ""));
}

data::BatchSource<data::ImageBatch> ImageTask::training_batches(int64_t epoch, const data::BatchStripe& stripe) {
  const int64_t size = training_sizes(preprocessing_.size, options_)(epoch);
  const data::BatchAugment augment(with_preprocessing(options_.augmentation, preprocessing_, size, dtype_),
                                   options_.seed);
  return augmented(loader_.epoch(epoch, stripe), augment, device());
}

data::BatchSource<data::ImageBatch> ImageTask::evaluation_batches(const std::vector<int32_t>& rows) const {
  return plain_batches(preprocessing_, dtype_, set_, rows, options_, device());
}

}  // namespace tern::models
