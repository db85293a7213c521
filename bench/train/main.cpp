// tern-bench-train: whole training and inference steps, and the passes over texts and images before them, as rows
// (bench/compare/README.md).

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "tern/bench/benchmark.h"
#include "tern/bench/train/cnn_step.h"
#include "tern/bench/train/gpt_step.h"
#include "tern/bench/train/image_rows.h"
#include "tern/bench/train/image_step.h"
#include "tern/bench/train/lstm_step.h"
#include "tern/bench/train/op_rows.h"
#include "tern/bench/train/reviews.h"
#include "tern/bench/train/text_step.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/ops/ops.h"
#include "tern/core/ops/roofline.h"
#include "tern/core/profiler/profiler.h"
#include "tern/data/loaders/token_loader.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/gemm.h"

namespace tern::bench {
namespace {

using Json = nlohmann::json;

/// What the command line chooses for all models.
struct Choices {
  DType dtype = DType::kFloat32;
  bool capture = true, full_last_layer = false, profile = false;
} choices;

ModelOptions model_options(const std::string& preset, bool train) {
  return {preset, train, choices.full_last_layer, choices.dtype, device(), choices.capture};
}

/// The labels of n examples: alternating among `classes`.
Tensor labels_of(int64_t n, int64_t classes) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < n; ++i) numbers.push_back(i % classes);
  return from_vector(numbers, {n});
}

constexpr int kProfiledSteps = 10;

/// Profiles additional steps: returns the profiler's rows and prints its table to stderr.
Json profile(const std::string& name, const Step& step) {
  std::vector<DType> dtypes = {DType::kFloat32};
  if (choices.dtype != dtypes[0]) dtypes.push_back(choices.dtype);
  const tern::detail::Roofline roofline = measure_roofline(device(), dtypes);
  Profiler profiler({.roofline = roofline, .device = device()});
  for (int i = 0; i < kProfiledSteps; ++i) step();
  const ProfileReport report = profiler.stop();
  std::fprintf(stderr, "%s, %d steps\n%s", name.c_str(), kProfiledSteps, report.table().c_str());
  Json rows = Json::array();
  for (const ProfileRow& row : report.rows()) {
    Json line = {{"name", row.name},
                 {"calls", row.calls},
                 {"total_seconds", row.total_seconds},
                 {"self_seconds", row.self_seconds},
                 {"bytes", row.bytes},
                 {"flops", row.flops}};
    if (const double share = row.roofline_share(); std::isfinite(share)) line["roofline_share"] = share;
    rows.push_back(line);
  }
  Json result = {{"steps", kProfiledSteps},
                 {"seconds", report.seconds()},
                 {"bytes_per_second", roofline.bytes_per_second},
                 {"flops_per_second", roofline.flops_per_second.at(choices.dtype)},
                 {"rows", rows}};
  for (const char* phase : {"forward", "backward", "optimizer"})
    result[std::string(phase) + "_share"] = report.row(phase).total_seconds / report.seconds();
  return result;
}

/// A row of a model's steps: adds memory use, launches and, if requested, the profile to its line.
template <class Model>
Steps model_steps(const std::string& name, const std::shared_ptr<Model>& model, double flops_per_item,
                  const Step& step) {
  allocator(device()).reset_peak();
  return {step, flops_per_item, [=] {
            const auto& memory = allocator(device()).statistics();
            Json facts = {{"dtype", tern::name_of(choices.dtype)},
                          {"full_last_layer", choices.full_last_layer},
                          {"gemm", kernels::gemm_library(stream())},
                          {"peak_memory_bytes", memory.peak_live_bytes},
                          {"reserved_memory_bytes", memory.peak_reserved_bytes}};
            if (model->launches() > 0) facts["launches_per_step"] = model->launches();
            if (choices.profile) facts["profile"] = profile(name, step);
            return facts.dump();
          }};
}

struct FullBatch {
  data::TokenInput input;
  Tensor labels;
};

/// Random ids of full length; the label is the first id modulo 2, as in pytorch_side.py.
FullBatch full_batch(int64_t batch, int64_t length, int64_t vocabulary, Generator& generator) {
  const std::vector<float> uniform = rand({batch * length}, generator).to_vector<float>();
  std::vector<int64_t> ids, labels;
  for (const float u : uniform)
    ids.push_back(std::min(vocabulary - 1, static_cast<int64_t>(u * static_cast<float>(vocabulary))));
  for (int64_t s = 0; s < batch; ++s) labels.push_back(ids[static_cast<size_t>(s * length)] % 2);
  return {data::padded_input(from_vector(ids, {batch, length})), from_vector(labels, {batch})};
}

void add_text(const std::string& name, const std::string& preset, int64_t batch, int64_t length) {
  batch = scaled(batch, 2);
  length = scaled(length, 24);
  add_steps(name, "tokens", [=]() -> Steps {
    const auto model = std::make_shared<TextStep>(model_options(preset, name.starts_with("train")));
    Generator generator(2);
    std::vector<FullBatch> batches;
    for (int i = 0; i < 8; ++i) batches.push_back(full_batch(batch, length, model->config().vocab_size, generator));
    const std::vector<int64_t> lengths(static_cast<size_t>(batch), length);
    const double flops = step_flops(model->config(), lengths, model->options()) / static_cast<double>(batch * length);
    return model_steps(name, model, flops, [=, count = size_t{0}]() mutable {
      const FullBatch& next = batches[count++ % batches.size()];
      model->run(next.input, next.labels);
      return batch * length;
    });
  });
}

/// Random sequences.
void add_lstm(const std::string& name, int64_t batch, int64_t length) {
  batch = scaled(batch, 2);
  length = scaled(length, 24);
  add_steps(name, "tokens", [=]() -> Steps {
    const auto model = std::make_shared<LstmStep>(model_options("", true));
    Generator generator(2);
    const Tensor sequences = randn({batch, length, LstmStep::kInput}, generator);
    const Tensor labels = labels_of(batch, LstmStep::kClasses);
    return model_steps(name, model, LstmStep::flops(), [=] {
      model->run(sequences, labels);
      return batch * length;
    });
  });
}

/// Random characters.
void add_gpt(const std::string& name, int64_t batch, int64_t length) {
  batch = scaled(batch, 2);
  length = scaled(length, 24);
  add_steps(name, "tokens", [=]() -> Steps {
    const auto model = std::make_shared<GptStep>(model_options("", true), batch, length);
    Generator generator(2);
    const Tensor ids = randint(0, model->config().characters, {batch * length}, generator);
    return model_steps(name, model, model->flops(), [=] {
      model->run(ids, ids);
      return batch * length;
    });
  });
}

/// Random pixels distributed like normalised ones.
Steps image_steps(const std::string& name, const auto& model, int64_t batch, int64_t size, int64_t classes) {
  Generator generator(2);
  std::vector<Tensor> batches;
  for (int i = 0; i < 8; ++i) batches.push_back(randn({batch, 3, size, size}, generator).to(device()));
  const Tensor labels = labels_of(batch, classes);
  return model_steps(name, model, model->flops_per_image(), [=, count = size_t{0}]() mutable {
    model->run(batches[count++ % batches.size()], labels);
    return batch;
  });
}

void add_images(const std::string& name, int64_t batch, int64_t size) {
  batch = scaled(batch, 2);
  add_steps(name, "images", [=]() -> Steps {
    const auto model = std::make_shared<ImageStep>(model_options("tiny", name.starts_with("train")));
    return image_steps(name, model, batch, size, model->config().num_labels());
  });
}

void add_cnn(const std::string& name, const std::string& preset, int64_t batch, int64_t size) {
  batch = scaled(batch, 2);
  add_steps(name, "images", [=]() -> Steps {
    const auto model = std::make_shared<CnnStep>(model_options(preset, name.starts_with("train")), size);
    return image_steps(name, model, batch, size, model->num_labels());
  });
}

/// Shuffled, packed reviews, epoch after epoch.
class ReviewBatches {
 public:
  /// fixed_capacity: batches of equal shapes.
  ReviewBatches(int64_t batch_tokens, int64_t longest, bool fixed_capacity)
      : loader_(make_loader(batch_tokens, longest, fixed_capacity)) {}

  data::TokenBatch next() {
    for (;;) {
      if (stream_)
        if (std::optional<data::TokenBatch> batch = stream_->next()) return std::move(*batch);
      stream_.emplace(loader_.epoch(epoch_++ % loader_.epochs()));
    }
  }
  /// Lengths of all reviews.
  std::vector<int64_t> lengths() const {
    const std::vector<int32_t> all = tokens_->lengths();
    return {all.begin(), all.end()};
  }

 private:
  data::TokenLoader make_loader(int64_t batch_tokens, int64_t longest, bool fixed_capacity) {
    constexpr int64_t kEpochs = 16;  // each in another order
    const Reviews reviews = read_reviews();
    const data::WordPiece tokenizer = read_tokenizer();
    auto tokens = std::make_shared<data::TokenSet>();
    std::vector<int32_t> rows;
    for (const std::string& text : reviews.texts) {
      const std::vector<int32_t> ids = tokenizer.encode_special(text, static_cast<size_t>(longest));
      tokens->ids.insert(tokens->ids.end(), ids.begin(), ids.end());
      tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
      rows.push_back(static_cast<int32_t>(rows.size()));
    }
    tokens_ = tokens;
    data::BatchPlanOptions plan;
    plan.batch_tokens = batch_tokens;
    return {tokens_,
            reviews.labels,
            data::BatchPlan(rows, tokens_->lengths(), plan, kEpochs),
            {.pad_id = tokenizer.pad_id(), .fixed_capacity = fixed_capacity}};
  }

  std::shared_ptr<const data::TokenSet> tokens_;
  data::TokenLoader loader_;
  std::optional<data::BatchStream<data::TokenBatch>> stream_;
  int64_t epoch_ = 0;
};

void add_imdb(const std::string& name, const std::string& preset, int64_t batch_tokens) {
  constexpr int64_t kLongest = 512;
  batch_tokens = scaled(batch_tokens, 64);
  add_steps(name, "tokens", [=]() -> Steps {
    const auto model = std::make_shared<TextStep>(model_options(preset, true));
    const auto reviews = std::make_shared<ReviewBatches>(batch_tokens, scaled(kLongest, 24), device().is_cuda());
    const std::vector<int64_t> lengths = reviews->lengths();
    double tokens = 0;
    for (const int64_t length : lengths) tokens += static_cast<double>(length);
    const double flops = step_flops(model->config(), lengths, model->options()) / tokens;
    return model_steps(name, model, flops, [=] {
      const data::TokenBatch batch = reviews->next();
      model->run(batch, batch.labels);
      return batch.real_tokens;
    });
  });
}

/// Kernels have one thread while it exists.
class OneThread {
 public:
  OneThread() { kernels::set_num_threads(1); }
  ~OneThread() { kernels::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = kernels::num_threads();
};

/// Whole reviews in one thread, 50 a step.
void add_tokenizer() {
  add_steps("tokenizer", "tokens", []() -> Steps {
    constexpr size_t kPart = 50;
    return [reviews = std::make_shared<Reviews>(read_reviews()),
            tokenizer = std::make_shared<data::WordPiece>(read_tokenizer()), threads = std::make_shared<OneThread>(),
            next = size_t{0}]() mutable {
      std::vector<std::vector<int32_t>> encoded;
      int64_t tokens = 0;
      for (size_t i = next; i < std::min(next + kPart, reviews->texts.size()); ++i) {
        encoded.push_back(tokenizer->encode_special(reviews->texts[i]));
        tokens += static_cast<int64_t>(encoded.back().size());
      }
      next = next + kPart < reviews->texts.size() ? next + kPart : 0;
      return tokens;
    };
  });
}

const Rows rows([] {
  if (device().is_cuda()) {
    add_text("train-base-32x512", "base", 32, 512);
    add_text("train-base-12x512", "base", 12, 512);
    add_text("infer-base-128x128", "base", 128, 128);
    add_imdb("imdb-base", "base", 16384);
    add_cnn("train-resnet50-256", "resnet50", 256, 224);
    add_cnn("infer-resnet50-256", "resnet50", 256, 224);
  }
  add_text("train-base-8x128", "base", 8, 128);
  add_text("train-base-4x512", "base", 4, 512);
  add_text("train-small-16x256", "small", 16, 256);
  add_text("train-tiny-32x256", "tiny", 32, 256);
  add_text("infer-base-8x128", "base", 8, 128);
  add_text("infer-tiny-32x256", "tiny", 32, 256);
  add_images("train-vit-64", 64, 32);
  add_images("infer-vit-64", 64, 32);
  add_cnn("train-resnet18-128", "resnet18", 128, 32);
  add_cnn("infer-resnet18-128", "resnet18", 128, 32);
  add_cnn("train-mobilenet-16", "mobilenet_v3_small", 16, 224);
  add_cnn("infer-mobilenet-16", "mobilenet_v3_small", 16, 224);
  add_lstm("train-lstm-32x64", 32, 64);
  add_gpt("train-gpt-16x128", 16, 128);
  add_imdb("imdb-tiny", "tiny", 8192);
  add_imdb("imdb-small", "small", 4096);
  if (!device().is_cpu()) return;
  add_op_rows();
  add_tokenizer();
  add_steps("jpeg-folder", "images", [] { return Steps(jpeg_folder(kernels::num_threads())); });
  add_steps("cifar-augment", "images", []() -> Steps {
    return [pass = cifar_augment(), threads = std::make_shared<OneThread>()]() mutable { return pass(); };
  });
});

const std::vector<Flag> kFlags = {
    {"--dtype", "TYPE", "fp32 (the default), or bf16: autocast",
     [](const std::string& text) {
       TERN_CHECK(text == "fp32" || text == "bf16", "--dtype: expected fp32 or bf16, got '", text, "'");
       choices.dtype = text == "bf16" ? DType::kBFloat16 : DType::kFloat32;
     }},
    {"--no-capture", nullptr,
     "on CUDA: queue every kernel in every step instead of replaying one graph; also with --profile",
     [](const std::string&) { choices.capture = false; }},
    {"--full-last-layer", nullptr, "compute all rows of the last layer, not only those that the classifier reads",
     [](const std::string&) { choices.full_last_layer = true; }},
    {"--profile", nullptr, "say where the time of ten more steps goes: a table on stderr, its rows in the line of JSON",
     [](const std::string&) { choices.profile = true; }}};

}  // namespace
}  // namespace tern::bench

int main(int argc, char** argv) { return tern::bench::run(argc, argv, tern::bench::kFlags); }
