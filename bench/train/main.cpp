// tern-bench-train: Tern's side of the comparison with PyTorch (bench/compare/README.md). Measures one row and prints
// one JSON line.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <exception>
#include <iterator>

#include "tern/bench/setting.h"
#include "tern/bench/train/image_rows.h"
#include "tern/bench/train/image_step.h"
#include "tern/bench/train/lstm_step.h"
#include "tern/bench/train/measure.h"
#include "tern/bench/train/reviews.h"
#include "tern/bench/train/text_step.h"
#include "tern/core/allocator.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler.h"
#include "tern/data/loader_tokens.h"
#include "tern/kernels/gemm.h"

namespace tern::bench {
namespace {

enum class Kind { kTrain, kInfer, kLstm, kImdb, kTrainImages, kInferImages, kTokenizer, kFolder, kAugment };

struct Row {
  const char* name;
  Kind kind;
  const char* preset;
  int64_t batch, length;  // kImdb: tokens of a packed batch, maximum review length; images: pixels per side
};

constexpr Row kRows[] = {{"train-base-8x128", Kind::kTrain, "base", 8, 128},
                         {"train-base-4x512", Kind::kTrain, "base", 4, 512},
                         {"train-base-12x512", Kind::kTrain, "base", 12, 512},
                         {"train-base-32x512", Kind::kTrain, "base", 32, 512},
                         {"train-small-16x256", Kind::kTrain, "small", 16, 256},
                         {"train-tiny-32x256", Kind::kTrain, "tiny", 32, 256},
                         {"infer-base-8x128", Kind::kInfer, "base", 8, 128},
                         {"infer-base-128x128", Kind::kInfer, "base", 128, 128},
                         {"infer-tiny-32x256", Kind::kInfer, "tiny", 32, 256},
                         {"imdb-tiny", Kind::kImdb, "tiny", 8192, 512},
                         {"imdb-small", Kind::kImdb, "small", 4096, 512},
                         {"imdb-base", Kind::kImdb, "base", 16384, 512},
                         {"train-lstm-32x64", Kind::kLstm, "", 32, 64},
                         {"train-vit-64", Kind::kTrainImages, "tiny", 64, 32},
                         {"infer-vit-64", Kind::kInferImages, "tiny", 64, 32},
                         {"tokenizer", Kind::kTokenizer, "", 0, 0},
                         {"jpeg-folder", Kind::kFolder, "", 0, 0},
                         {"cifar-augment", Kind::kAugment, "", 0, 0}};

bool is_model(Kind kind) { return kind < Kind::kTokenizer; }
bool is_images(Kind kind) { return kind > Kind::kImdb && kind != Kind::kTokenizer; }
bool in_one_thread(Kind kind) { return kind == Kind::kTokenizer || kind == Kind::kAugment; }

struct Arguments {
  std::string row;
  double seconds = 10;
  int threads = kernels::num_threads();
  std::string dtype = "fp32", device = "cpu";
  bool no_capture = false;
  bool full_last_layer = false;
  bool profile = false;
};

ModelOptions model_options(const Row& row, const Arguments& a) {
  return {row.preset,
          row.kind != Kind::kInfer && row.kind != Kind::kInferImages,
          a.full_last_layer,
          a.dtype == "bf16" ? DType::kBFloat16 : DType::kFloat32,
          parse_device(a.device),
          !a.no_capture};
}

constexpr int kProfiledSteps = 10;

/// Profiles additional steps: returns the profiler's rows and prints its table to stderr.
template <class Step>
Json profile(const Arguments& a, DType dtype, Step&& step) {
  std::vector<DType> dtypes = {DType::kFloat32};
  if (dtype != dtypes[0]) dtypes.push_back(dtype);
  const detail::Roofline roofline = measure_roofline(parse_device(a.device), dtypes);
  Profiler profiler({.roofline = roofline, .device = parse_device(a.device)});
  for (int i = 0; i < kProfiledSteps; ++i) step();
  const ProfileReport report = profiler.stop();
  std::fprintf(stderr, "%s, %d steps\n%s", a.row.c_str(), kProfiledSteps, report.table().c_str());
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
                 {"flops_per_second", roofline.flops_per_second.at(dtype)},
                 {"rows", rows}};
  for (const char* phase : {"forward", "backward", "optimizer"})
    result[std::string(phase) + "_share"] = report.row(phase).total_seconds / report.seconds();
  return result;
}

/// Measures a step, which returns its number of items, and adds memory use and, if requested, its profile.
template <class Step>
Json measure_model(const ModelStep& model, const Arguments& a, bool equal_steps, Step&& step) {
  CachingAllocator& memory = allocator(model.options().device);
  const Measurement m = measure(a.seconds, step, [&] { memory.reset_peak(); });
  Json result = summary(m, equal_steps);
  result["peak_memory_bytes"] = memory.statistics().peak_live_bytes;
  result["reserved_memory_bytes"] = memory.statistics().peak_reserved_bytes;
  if (model.launches() > 0) result["launches_per_step"] = model.launches();
  if (a.profile) result["profile"] = profile(a, model.options().dtype, step);
  return result;
}

void add_flops(Json& result, double flops_per_item) {
  result["flops_per_item"] = flops_per_item;
  result["gflops"] = flops_per_item * result["per_second"].get<double>() / 1e9;
}

struct FullBatch {
  models::EncoderInput input;
  Tensor labels;
};

/// Random ids of full length; the label is the first id modulo 2, as in pytorch_side.py.
FullBatch full_batch(int64_t batch, int64_t length, int64_t vocabulary, Generator& generator) {
  const std::vector<float> uniform = rand({batch * length}, generator).to_vector<float>();
  std::vector<int64_t> ids, labels;
  for (const float u : uniform)
    ids.push_back(std::min(vocabulary - 1, static_cast<int64_t>(u * static_cast<float>(vocabulary))));
  for (int64_t s = 0; s < batch; ++s) labels.push_back(ids[static_cast<size_t>(s * length)] % 2);
  return {models::encoder_input(from_vector(ids, {batch, length})), from_vector(labels, {batch})};
}

Json full_length(const Row& row, const Arguments& a) {
  TextStep model(model_options(row, a));
  Generator generator(2);
  std::vector<FullBatch> batches;
  for (int i = 0; i < 8; ++i)
    batches.push_back(full_batch(row.batch, row.length, model.config().vocab_size, generator));
  const std::vector<int64_t> lengths(static_cast<size_t>(row.batch), row.length);
  size_t count = 0;
  const auto step = [&] {
    const FullBatch& batch = batches[count++ % batches.size()];
    model.run(batch.input, batch.labels);
    return row.batch * row.length;
  };
  Json result = measure_model(model, a, true, step);
  add_flops(result, step_flops(model.config(), lengths, model.options()) / static_cast<double>(row.batch * row.length));
  return result;
}

/// Random sequences with alternating labels.
Json lstm(const Row& row, const Arguments& a) {
  LstmStep model(model_options(row, a));
  Generator generator(2);
  const Tensor sequences = randn({row.batch, row.length, LstmStep::kInput}, generator);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < row.batch; ++i) numbers.push_back(i % LstmStep::kClasses);
  const Tensor labels = from_vector(numbers, {row.batch});
  const auto step = [&] {
    model.run(sequences, labels);
    return row.batch * row.length;
  };
  Json result = measure_model(model, a, true, step);
  add_flops(result, LstmStep::flops());
  return result;
}

/// Random pixels distributed like normalised ones, with alternating labels.
Json images(const Row& row, const Arguments& a) {
  ImageStep model(model_options(row, a));
  Generator generator(2);
  std::vector<Tensor> batches;
  for (int i = 0; i < 8; ++i) batches.push_back(randn({row.batch, 3, row.length, row.length}, generator));
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < row.batch; ++i) numbers.push_back(i % model.config().num_labels());
  const Tensor labels = from_vector(numbers, {row.batch});
  size_t count = 0;
  const auto step = [&] {
    model.run(batches[count++ % batches.size()], labels);
    return row.batch;
  };
  Json result = measure_model(model, a, true, step);
  add_flops(result, model.flops_per_image());
  return result;
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

Json imdb(const Row& row, const Arguments& a) {
  TextStep model(model_options(row, a));
  ReviewBatches reviews(row.batch, row.length, model.options().device.is_cuda());
  const auto step = [&] {
    const data::TokenBatch batch = reviews.next();
    model.run(models::encoder_input(batch), batch.labels);
    return batch.real_tokens;
  };
  Json result = measure_model(model, a, false, step);
  const std::vector<int64_t> lengths = reviews.lengths();
  double tokens = 0;
  for (const int64_t length : lengths) tokens += static_cast<double>(length);
  add_flops(result, step_flops(model.config(), lengths, model.options()) / tokens);
  return result;
}

/// One thread, whole reviews.
Json tokenizer(const Arguments& a) {
  constexpr size_t kPart = 50;
  const Reviews reviews = read_reviews();
  const data::WordPiece tokenizer = read_tokenizer();
  size_t next = 0, bytes = 0;
  const auto step = [&] {
    std::vector<std::vector<int32_t>> encoded;
    int64_t tokens = 0;
    for (size_t i = next; i < std::min(next + kPart, reviews.texts.size()); ++i) {
      encoded.push_back(tokenizer.encode_special(reviews.texts[i]));
      tokens += static_cast<int64_t>(encoded.back().size());
      bytes += reviews.texts[i].size();
    }
    next = next + kPart < reviews.texts.size() ? next + kPart : 0;
    return tokens;
  };
  const Measurement m = measure(a.seconds, step, [&] { bytes = 0; });
  Json result = summary(m, false);
  result["megabytes_per_second"] = static_cast<double>(bytes) / m.all_seconds() / 1e6;
  return result;
}

Json measure_row(const Row& row, const Arguments& a) {
  if (row.kind == Kind::kTokenizer) return tokenizer(a);
  if (row.kind == Kind::kFolder) return summary(measure(a.seconds, jpeg_folder(a.threads), [] {}), false);
  if (row.kind == Kind::kAugment) return summary(measure(a.seconds, cifar_augment(), [] {}), false);
  if (is_images(row.kind)) return images(row, a);
  if (row.kind == Kind::kLstm) return lstm(row, a);
  return row.kind == Kind::kImdb ? imdb(row, a) : full_length(row, a);
}

int run(int argc, char** argv) {
  Arguments a;
  CLI::App app("One row of the comparison with PyTorch (bench/compare/README.md), as one JSON line.",
               "tern-bench-train");
  std::vector<std::string> names;
  for (const Row& row : kRows) names.push_back(row.name);
  app.add_option("row", a.row)->required()->check(CLI::IsMember(names));
  app.add_option("--seconds", a.seconds, "measured, after two steps of warm-up")->check(CLI::Range(0.0, 1e6));
  app.add_option("--threads", a.threads)->check(CLI::Range(1, 1024));
  app.add_option("--dtype", a.dtype, "bf16: autocast")->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--device", a.device, "cpu or cuda[:N]");
  app.add_flag("--no-capture", a.no_capture,
               "on CUDA: queue every kernel anew instead of replaying one graph; also with --profile");
  app.add_flag("--full-last-layer", a.full_last_layer,
               "compute all rows of the last layer, not only those that the classifier reads");
  app.add_flag("--profile", a.profile,
               "say where the time of ten more steps goes: a table on stderr, its rows in the line");
  CLI11_PARSE(app, argc, argv);

  Row row = *std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return a.row == r.name; });
  row.batch = scaled(row.batch, row.kind == Kind::kImdb ? 64 : 2);
  if (!is_images(row.kind)) row.length = scaled(row.length, 24);
  require_available(parse_device(a.device));
  kernels::set_num_threads(in_one_thread(row.kind) ? 1 : a.threads);
  Json line = {{"row", a.row},
               {"side", "tern"},
               {"unit", is_images(row.kind) ? "images" : "tokens"},
               {"threads", kernels::num_threads()},
               {"versions", {{"gemm", kernels::gemm_library(current_stream(parse_device(a.device)))}}}};
  if (is_model(row.kind))
    line.update({{"dtype", a.dtype}, {"device", a.device}, {"full_last_layer", a.full_last_layer}});
  line.update(measure_row(row, a));
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace tern::bench

int main(int argc, char** argv) {
  try {
    return tern::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tern-bench-train: %s\n", error.what());
    return 1;
  }
}
