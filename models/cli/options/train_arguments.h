#pragma once
// The options of `tern train`.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tern/data/datasets/split.h"
#include "tern/models/cli/options/common_options.h"
#include "tern/models/cli/options/freeze.h"
#include "tern/models/cli/options/train_help.h"
#include "tern/models/image/test_time.h"
#include "tern/models/trainer/trainer.h"

namespace tern::cli {

inline constexpr double kMaxReal = 1e30;               // of numbers that have no other bound
inline constexpr Bounds kStepsOrFraction{1e-9, 1e14};  // of lengths: a whole number of steps, or a fraction of all

inline constexpr const char* kSplitForm =
    "official, train-test, all, three parts like 80/10/10 (percent) or 0.8/0.1/0.1, or three numbers of rows";
inline constexpr const char* kFoldForm = "i/k, like 1/5";
/// Throws UsageError when both are given.
void check_one_of_split_and_fold(const std::string& split, const std::string& fold);

/// --recompute: blocks per group that is recomputed, 0 for "none". Nothing when the text is of another form.
std::optional<int64_t> parse_recompute(const std::string& text);
/// --schedule-milestones: "100,200" or "0.5,0.75". Nothing when the text is of another form.
std::optional<std::vector<double>> parse_milestones(const std::string& text);
/// --checkpoint-every: steps, seconds, of which one is 0: "100" (steps), "30s", "5m", "2h". Nothing when the text is of
/// another form.
std::optional<std::pair<int64_t, double>> parse_checkpoint_every(const std::string& text);
/// --image-cache and --memory-limit: "0", "500MB", "4GB"; units of 1000. Nothing when the text is of another form.
std::optional<int64_t> parse_bytes(const std::string& text);

/// What the user gave, or what a run makes of it (TrainPlan). "", 0 and nothing, where they are a default that
/// the option does not accept, mean "by the rule that --help gives".
struct TrainArguments : ModelOptions {
  using Self = TrainArguments;
  using Recipe = models::TrainingRecipe;

  std::string model = option(&Self::model, "", "model", models_help(), Required{});
  // The rows themselves are compared.
  std::string data = option(&Self::data, "", "--data", data_help(), Compared::kBetweenRanks);
  std::string task =
      option(&Self::task, "auto", "--task",
             "what a row of a file is labelled with: single_label, multi_label (a column or name \"labels\": a;b, or a "
             "list in .jsonl) or regression (the label is a number); auto: several where the file has \"labels\", "
             "otherwise one",
             Words{"auto", "single_label", "multi_label", "regression"}, For::kTexts);
  std::string split = option(
      &Self::split, "", "--split",
      "official, train-test (the official one without validation), 80/10/10 (percent), 35000/5000/10000 (rows) "
      "or all; default: the set's split, or 80/10/10" +
          for_recipes(&Recipe::split, "; ", ": ") + " where the set has an official one and nothing needs validation",
      Form{kSplitForm, data::is_split});
  std::string fold = option(&Self::fold, "", "--fold", "i/k: the i-th of k stratified parts is the test set",
                            Form{kFoldForm, data::is_fold});
  std::string out =
      option(&Self::out, "", "--out", "folder of the run, new or empty; default: runs/MODEL-DATE", Compared::kNowhere);
  std::string preset = option(&Self::preset, "", "--preset", presets_help());
  // A run that is resumed starts from its checkpoint.
  std::string init = option(
      &Self::init, "", "--init",
      "model folder to start from (config.json, model.safetensors or pytorch_model.bin), or the name of one on Hugging "
      "Face's hub (ORG/NAME[@REVISION]), fetched as by 'tern fetch'; for images also a file of weights with "
      "torchvision's or timm's names; for onnx a .onnx file, or a folder with model.onnx",
      Compared::kBetweenRanks);
  std::string tokenizer = option(&Self::tokenizer, "", "--tokenizer", kTokenizerHelp, For::kTexts);
  std::string freeze =
      option(&Self::freeze, "", "--freeze",
             "names of parameters that are not trained, with * ? [1-3] as in file names: " + notes_on("--freeze") +
                 "; batch norms without a trained parameter keep their statistics",
             Form{"patterns of parameter names with commas between them, such as layer1.*,bn1.*", is_freeze_option});
  int64_t image_size = option(&Self::image_size, 0, "--image-size",
                              "pixels of a side of the input; " + notes_on("--image-size", "; ") +
                                  "; default: the model's, for a new " + sized_by_data() + " that of the data",
                              Bounds{1, 1 << 14}, For::kImages);
  int64_t progressive_resize = option(
      &Self::progressive_resize, 0, "--progressive-resize",
      "pixels of a side of the training images in the first epoch; they grow to the size of the model's input in "
      "the first four fifths of the epochs; default: always that size" +
          for_recipes(&Recipe::first_size),
      Bounds{1, 1 << 14}, For::kImages);
  std::string augment = option(
      &Self::augment, "default", "--augment",
      "default (mirror images, not of " + unmirrored() +
          ", and shifts where all images have the model's size, not of files" +
          for_recipes(&Recipe::augment, "; for ", ": ") +
          "), none, "
          "alternating (shifts of up to 2 pixels with reflected borders, and each image is mirrored in every second "
          "epoch), or the default after a policy of operations: "
          "autoaugment (the policy found for the data, CIFAR-10's or ImageNet's), trivial (TrivialAugmentWide), "
          "randaug (RandAugment)",
      augment_words(), For::kImages);
  double random_erase = option(&Self::random_erase, 0, "--random-erase",
                               "probability that a random rectangle of an image is erased (Random Erasing); 0: none",
                               Bounds{0, 1}, For::kImages);
  std::optional<double> mixup =
      option(&Self::mixup, std::nullopt, "--mixup", "images: alpha of MixUp; 0: none; default: 0" + mixup_of_sets(),
             Bounds{0, 1000}, For::kImages);
  double cutmix =
      option(&Self::cutmix, 0, "--cutmix", "images: alpha of CutMix; 0: none", Bounds{0, 1000}, For::kImages);
  std::optional<double> label_smoothing =
      option(&Self::label_smoothing, std::nullopt, "--label-smoothing",
             "images: share of the target that is distributed over all labels; default: 0" +
                 for_recipes(&Recipe::label_smoothing),
             Bounds{0, 1}, For::kImages);
  int64_t epochs = option(&Self::epochs, 0, "--epochs", epochs_help(), Bounds{1, 1000000});
  int64_t max_steps =
      option(&Self::max_steps, 0, "--max-steps", "stop after this many steps", Bounds{1, int64_t{1} << 40});
  int64_t patience =
      option(&Self::patience, 0, "--patience",
             "early stopping: end after so many validations in a row without a better metric (accuracy, F1 or R2); "
             "default: never",
             Bounds{1, 1000000});
  double min_delta = option(&Self::min_delta, 0, "--min-delta",
                            "with --patience: by more than how much a metric must be better", Bounds{0, kMaxReal});
  std::optional<double> lr = option(&Self::lr, std::nullopt, "--lr", lr_help(), Bounds{0, kMaxReal});
  // A run that goes on has the rate that was found.
  std::string find_lr =
      option(&Self::find_lr, "", "--find-lr",
             "learning rate range test: raise the rate from 1e-7 to 1 until the loss diverges and suggest one; report "
             "(or no value) writes lr_finder.json and lr_finder.svg into the run folder and ends; use trains with the "
             "suggestion",
             Words{"report", "use"}, Bare{"report"}, Compared::kBetweenRanks);
  int64_t find_lr_steps = option(&Self::find_lr_steps, 100, "--find-lr-steps", "steps of --find-lr", Bounds{20, 100000},
                                 Compared::kBetweenRanks);
  int64_t find_batch_size =
      option(&Self::find_batch_size, 0, "--find-batch-size",
             "try batches of 1, 2, 4, ... up to VALUE (or 65536) images, sequences or, of packed texts, tokens until "
             "memory does not suffice, print the speed of each and write batch_finder.json and batch_finder.svg into "
             "the run folder; nothing is trained",
             Bounds{1, int64_t{1} << 40}, Bare{"65536"}, Compared::kBetweenRanks);
  std::string memory_limit =
      option(&Self::memory_limit, "0", "--memory-limit",
             "of tensors on the device that computes (500MB, 4GB); 0: what the machine or its container has",
             Form{"0 or a number of bytes with the unit kB, MB, GB or TB (4GB)",
                  [](const std::string& text) { return parse_bytes(text).has_value(); }},
             Compared::kNowhere);
  std::string optimizer = option(&Self::optimizer, "", "--optimizer",
                                 "of the weights (muon: of the hidden layers' matrices, with AdamW for all else); "
                                 "default: adamw" +
                                     for_recipes(&Recipe::optimizer) + "; one of:",
                                 Words{models::optimizer_names()});
  std::optional<double> momentum =
      option(&Self::momentum, std::nullopt, "--momentum",
             "of sgd (default: 0.9), rmsprop (default: 0) and muon (default: 0.95" + for_recipes(momentum_of) + ")",
             Bounds{0, 0x1.fffffffffffffp-1});
  bool nesterov = option(&Self::nesterov, false, "--nesterov", "sgd: Nesterov's momentum");
  double weight_decay =
      option(&Self::weight_decay, 0.01, "--weight-decay", "of matrices, not of biases and norms", Bounds{0, kMaxReal});
  std::string schedule =
      option(&Self::schedule, "linear", "--schedule", "of the learning rate:", Words{optim::schedule_names()});
  std::optional<double> warmup = option(
      &Self::warmup, std::nullopt, "--warmup",
      "steps (1 or more) or a fraction of all steps; not of one-cycle; default: 0.1" + for_recipes(&Recipe::warmup),
      Bounds{0, kStepsOrFraction.maximum});
  std::optional<double> schedule_gamma =
      option(&Self::schedule_gamma, std::nullopt, "--schedule-gamma",
             "step, multi-step and plateau: factor of the rate at each fall, default: 0.1; exponential: factor of each "
             "step",
             Bounds{0, 1});
  std::optional<double> schedule_step =
      option(&Self::schedule_step, std::nullopt, "--schedule-step",
             "step: from one fall of the rate to the next, in steps (1 or more) or as a fraction of all steps",
             kStepsOrFraction);
  std::string schedule_milestones =
      option(&Self::schedule_milestones, "", "--schedule-milestones",
             "multi-step: when the rate falls, in steps (1 or more) or as fractions of all steps, such as 0.5,0.75",
             Form{"steps or fractions of all steps, such as 1000,2000 or 0.5,0.75",
                  [](const std::string& text) { return parse_milestones(text).has_value(); }});
  double schedule_power =
      option(&Self::schedule_power, 1, "--schedule-power", "polynomial: its exponent", Bounds{0, kMaxReal});
  std::optional<double> schedule_period = option(
      &Self::schedule_period, std::nullopt, "--schedule-period",
      "cosine-restarts: until the first restart, in steps (1 or more) or as a fraction of all steps", kStepsOrFraction);
  int64_t schedule_period_factor =
      option(&Self::schedule_period_factor, 1, "--schedule-period-factor",
             "cosine-restarts: how many times as long each period is as the one before", Bounds{1, 1000});
  double schedule_rise =
      option(&Self::schedule_rise, 0.3, "--schedule-rise",
             "one-cycle: the part of the steps in which the rate rises, from 1/25 of --lr to --lr", Bounds{0, 1});
  std::optional<double> schedule_timescale =
      option(&Self::schedule_timescale, std::nullopt, "--schedule-timescale",
             "inverse-sqrt: in steps (1 or more) or as a fraction of all steps; default: the warmup, or 10000 steps "
             "without one",
             kStepsOrFraction);
  int64_t schedule_patience =
      option(&Self::schedule_patience, 1, "--schedule-patience",
             "plateau: validations in a row without a better metric that are tolerated before the rate falls",
             Bounds{0, 1000000});
  double clip = option(&Self::clip, 1, "--clip", "maximum norm of the gradients; 0: no clipping", Bounds{0, kMaxReal});
  double ema = option(&Self::ema, 0, "--ema",
                      "decay (0.999) of exponential moving averages of the weights, which are validated and "
                      "saved instead of them; 0: none",
                      Bounds{0, 0x1.fffffffffffffp-1});  // the number before 1
  int64_t lookahead =
      option(&Self::lookahead, 0, "--lookahead",
             "Lookahead around the optimizer: after every so many steps (5) the weights go back to where they were "
             "then and --lookahead-alpha of the way from there; 0: none",
             Bounds{0, 1000000});
  std::optional<double> lookahead_alpha = option(&Self::lookahead_alpha, std::nullopt, "--lookahead-alpha",
                                                 "with --lookahead: the part of the way, default: 0.5", Bounds{0, 1});
  std::optional<double> dropout = option(&Self::dropout, std::nullopt, "--dropout",
                                         "everywhere; " + notes_on("--dropout", "; ") +
                                             "; default: the model's, except for small models of texts "
                                             "from scratch 0.5, and 0.3 from 4 MB of text on",
                                         Bounds{0, 1});
  std::string dtype =
      option(&Self::dtype, "auto", "--dtype",
             "fp32; bf16 or fp16: mixed precision, fp32 weights and 16-bit matrix products; bf16-true or fp16-true: "
             "16-bit weights, gradients and activations with fp32 master copies in the optimizer; fp16 of both kinds "
             "with a loss scaler; auto: bf16 where that is the faster one, else fp32",
             Words{"auto", "fp32", "bf16", "fp16", "bf16-true", "fp16-true"});
  bool kahan = option(&Self::kahan, false, "--kahan",
                      "with --dtype bf16-true: no master copies; Kahan's summation keeps 16 bits of the rounding error "
                      "of each weight");
  std::string recompute =
      option(&Self::recompute, "none", "--recompute",
             "none, block or every-N: keep only the inputs of each block (of every N blocks) and recompute the rest "
             "in backward; less memory, more time, the same bits",
             Form{"none, block or every-N (such as every-2)",
                  [](const std::string& text) { return parse_recompute(text).has_value(); }},
             Compared::kNowhere);
  int64_t max_length = option(&Self::max_length, 0, "--max-length",
                              "tokens a text is cut to; default: 512, or the model's maximum if that is less",
                              Bounds{2, 1 << 24}, For::kTexts);
  int64_t batch_tokens =
      option(&Self::batch_tokens, 0, "--batch-tokens",
             "tokens a step, packed without padding; default: a power of two by the size of the set, at most 8192",
             Bounds{2, int64_t{1} << 40}, For::kTexts);
  int64_t batch_size = option(&Self::batch_size, 0, "--batch-size",
                              "texts: sequences a step, padded to the longest, instead of packing; images a "
                              "step; default: 64, with --init 16" +
                                  for_recipes(batch_size_of),
                              Bounds{1, 1000000});
  // At resume the batches of a step are compared, of all processes: check_same_run().
  int64_t accumulate =
      option(&Self::accumulate, 1, "--accumulate",
             "batches a step: their gradients are added up, weighted by their examples, before the weights change",
             Bounds{1, 1000000}, Compared::kBetweenRanks);
  std::string strategy =
      option(&Self::strategy, "ddp", "--strategy",
             "of several processes: ddp (each has all of the optimizer's state) or zero1 (each has its part; the same "
             "bits on the CPU)",
             Words{"ddp", "zero1"}, Compared::kBetweenRanks);
  std::string checkpoint_every =
      option(&Self::checkpoint_every, "", "--checkpoint-every",
             "write a checkpoint after every so many steps (100) or so much time (30s, 5m, 2h); one is also written on "
             "SIGINT, SIGTERM and SIGUSR1",
             Form{"a number of steps (100) or a time (30s, 5m, 2h)",
                  [](const std::string& text) { return parse_checkpoint_every(text).has_value(); }},
             Compared::kNowhere);
  int64_t keep = option(&Self::keep, 2, "--keep", "checkpoints kept, not counting that of the best epoch",
                        Bounds{1, 1000000}, Compared::kNowhere);
  std::string resume =
      option(&Self::resume, "", "--resume",
             "continue a run: its folder or one of its checkpoints, or auto: the run in --out, if there is one",
             Compared::kNowhere);
  std::string tta = option(&Self::tta, "", "--tta",
                           "images: test-time augmentation of the test after training, as in eval; default: none" +
                               for_recipes(&Recipe::tta) + " (not of " + unmirrored() + "); one of:",
                           Words{models::test_time_names()}, For::kImages, Compared::kBetweenRanks);
  bool group_by_length = option(&Self::group_by_length, false, "--group-by-length",
                                "with --batch-size: sequences of similar lengths, less padding", For::kTexts);
  bool shuffle = option(&Self::shuffle, true, "--no-shuffle", "keep the rows in their order");
  int workers = option(&Self::workers, 2, "--workers", "threads that make batches; batches do not depend on it",
                       Bounds{0, 256}, Compared::kNowhere);
  std::string image_cache =
      option(&Self::image_cache, "0", "--image-cache",
             "memory for decoded images of files (500MB, 4GB), which later epochs then need not decode again; of each "
             "process",
             Form{"0 or a number of bytes with the unit kB, MB, GB or TB (4GB)",
                  [](const std::string& text) { return parse_bytes(text).has_value(); }},
             For::kImages, Compared::kNowhere);
  std::string profile = option(
      &Self::profile, "", "--profile",
      "write where the time is spent: a table and a trace for ui.perfetto.dev, into the run folder (on, or no value) "
      "or into VALUE.profile.txt and VALUE.trace.json",
      Compared::kNowhere, Bare{"on"});
  int64_t profile_steps =
      option(&Self::profile_steps, 20, "--profile-steps", "steps that --profile records, after two to warm up",
             Bounds{1, 10000}, Compared::kNowhere);
  bool autotune =
      option(&Self::autotune, false, "--autotune",
             "on CUDA: time the candidates for each kind of matrix product and convolution, and cuDNN's attention "
             "against Tern's, once and keep the choice in the run folder (autotune.txt), where --init, eval and "
             "predict find it; default: a "
             "fixed rule");
};

/// What the named model reads. Throws Error when there is no such model.
For kind_of(const TrainArguments& arguments);

/// What the named schedule takes.
optim::ScheduleParameters schedule_parameters(const TrainArguments& arguments);
/// Throws UsageError when an option of another schedule is given, or one that the schedule needs is not.
void check_schedule_arguments(const TrainArguments& arguments);

/// Throws UsageError when --momentum, --nesterov or --kahan is not of the --optimizer.
void check_optimizer_arguments(const TrainArguments& arguments);
/// Throws UsageError when options exclude each other, or are for other models than the one that is named.
void check_train_arguments(const TrainArguments& arguments);

/// How a run computes.
struct Precision {
  const char* name = "fp32";
  DType autocast = DType::kFloat32;  // of matrix products; float32: none
  DType weights = DType::kFloat32;
  /// What matrix products are computed in.
  DType products() const { return autocast != float32 ? autocast : weights; }
};
/// The precision of a value that --dtype accepts.
Precision parse_dtype(const std::string& text, Device device);

}  // namespace tern::cli
