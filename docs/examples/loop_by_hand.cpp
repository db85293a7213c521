// A training loop written out: fp16 with a loss scaler, accumulated gradients, clipping, averaged weights, a schedule,
// metrics, and one file with the state of all of it. A run that is stopped in the middle of an epoch and continued by
// new objects ends with the bits of a run that was not.
#include <tern/tern.h>

#include <cstdio>
#include <map>

using namespace tern;

constexpr int64_t kEpochs = 12, kBatch = 32, kAccumulate = 2;

class Net final : public nn::Module {
 public:
  explicit Net(const nn::Scope& s)
      : Module(s),
        body_(sub("body"), nn::make<nn::Linear>(64, 128), gelu, nn::make<nn::Dropout>(0.2)),
        head_(sub("head"), 128, 10) {}
  Tensor forward(const Tensor& x) const { return head_.forward(body_.forward(x)); }

 private:
  nn::Sequential body_;
  nn::Linear head_;
};

// Everything that a run changes. Declaring it in one place makes it hard to forget a part in the file.
class Run {
 public:
  Run(Device device, uint64_t seed)
      : device_(device),
        generator_(seed),
        net_(nn::Scope({.device = device, .generator = generator_})),
        optimizer_(optim::no_decay_groups(net_.parameters(), 0.01), {.lr = 4e-3}),
        scheduler_(optimizer_, optim::cosine_schedule({.total_steps = total_steps(), .warmup = 0.1})),
        ema_(net_.parameters(), {.decay = 0.98, .warmup = true}) {
    state_.add("model", net_);
    state_.add("optimizer", optimizer_);
    state_.add("schedule", scheduler_);
    state_.add("scaler", scaler_);
    state_.add("ema", ema_);
    state_.add("training accuracy", seen_);
    state_.add("generator", generator_);  // of the dropout masks
    state_.add("epoch", epoch_);
    state_.add("batch", batch_);
  }

  void save(const std::string& path) const { state_.save(path); }
  void load(const std::string& path) { state_.load(path); }
  int64_t steps_done() const { return scheduler_.last_epoch(); }
  int64_t steps_skipped() const { return scaler_.skipped(); }
  int64_t total_steps() const { return kEpochs * loader_.steps() / kAccumulate; }

  // Optimizer steps up to this number.
  void train_to(int64_t last_step) {
    net_.train();
    while (steps_done() < last_step) {
      for (const auto& batch : loader_.epoch(epoch_, {.first = batch_})) {
        accumulate(batch[0].to(device_), batch[1].to(device_));
        if (++batch_ % kAccumulate != 0) continue;
        step();
        if (steps_done() == last_step && batch_ < loader_.steps()) return;
      }
      std::printf("epoch %2d: training accuracy %.3f, learning rate %.5f, loss scale %.0f\n", static_cast<int>(epoch_),
                  seen_.compute(), optimizer_.lr(), scaler_.current_scale());
      accuracies_[epoch_] = seen_.compute();
      seen_.reset();
      ++epoch_;
      batch_ = 0;
    }
  }

  // Test accuracy of the averaged weights.
  double evaluate() {
    const NoGrad off;
    const optim::EMA::InPlace averaged = ema_.in_place();
    net_.eval();
    nn::Accuracy accuracy;
    for (const auto& batch : data::Loader(data::digits("test"), {.batch_size = 128}).epoch(0))
      accuracy.update(net_.forward(batch[0].to(device_)), batch[1].to(device_));
    return accuracy.compute();
  }

  // In training, by epoch that this object has ended.
  const std::map<int64_t, double>& accuracies() const { return accuracies_; }
  // All numbers that the two runs must agree in.
  StateView result() const {
    StateView all = net_.state_dict();
    for (const StateView& more : {optimizer_.state_dict(), ema_.state_dict(), scaler_.state_dict()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }

 private:
  void accumulate(const Tensor& pixels, const Tensor& labels) {
    const Tensor scores = autocast(device_, float16, [&] { return net_.forward(pixels); });
    const Tensor loss = cross_entropy(scores, labels) / static_cast<double>(kAccumulate);
    scaler_.scale(loss).backward();
    seen_.update(scores.detach(), labels);
  }

  void step() {
    scaler_.clip_grad_norm(optimizer_, 1.0);
    ema_.update(scaler_.step(optimizer_));  // a step that the scaler skips leaves the averages as they are
    scaler_.update();
    optimizer_.zero_grad();
    scheduler_.step();  // counts skipped steps too, so that a run has a known length
  }

  Device device_;
  Generator generator_;
  // The order of an epoch follows from the seed and the epoch's number, so the place in the data is two numbers.
  const data::Loader<> loader_{data::digits("train"),
                               {.batch_size = kBatch, .shuffle = true, .drop_last = true, .seed = 42}};
  Net net_;
  optim::AdamW optimizer_;
  optim::LRScheduler scheduler_;
  optim::GradScaler scaler_{{.growth_interval = 20}};  // short, so that the scale grows until a step is skipped
  optim::EMA ema_;
  nn::Accuracy seen_;
  int64_t epoch_ = 0, batch_ = 0;
  std::map<int64_t, double> accuracies_;
  dist::LoopState state_;
};

// Every number must be equal, not merely close.
void check_equal(const StateView& a, const StateView& b) {
  TERN_CHECK(a.size() == b.size(), "loop_by_hand: ", a.size(), " tensors and ", b.size());
  for (size_t i = 0; i < a.size(); ++i)
    TERN_CHECK(a[i].name == b[i].name && a[i].tensor.to_vector<double>() == b[i].tensor.to_vector<double>(),
               "loop_by_hand: the resumed run differs in ", a[i].name);
}

int main() try {
  const Device device = best_device();
  const std::string path = "loop.safetensors";

  Run whole(device, /*seed=*/1);
  const int64_t total = whole.total_steps(), middle = total / 2 + 3;  // in the middle of an epoch
  whole.train_to(total);

  {
    Run stopped(device, /*seed=*/1);
    stopped.train_to(middle);
    stopped.save(path);
  }
  std::printf("stopped after %d of %d steps\n", static_cast<int>(middle), static_cast<int>(total));
  Run resumed(device, /*seed=*/2);  // other weights, until the file is loaded
  resumed.load(path);
  TERN_CHECK(resumed.steps_done() == middle, "loop_by_hand: the file has step ", resumed.steps_done());
  resumed.train_to(total);
  check_equal(whole.result(), resumed.result());
  for (const auto& [epoch, accuracy] : resumed.accuracies())
    TERN_CHECK(accuracy == whole.accuracies().at(epoch), "loop_by_hand: the accuracy of epoch ", epoch, " differs");

  const double accuracy = resumed.evaluate();
  std::printf("the same bits; %d steps skipped; test accuracy of the averaged weights %.3f\n",
              static_cast<int>(resumed.steps_skipped()), accuracy);
  TERN_CHECK(resumed.steps_skipped() > 0, "loop_by_hand: no step was skipped, so that the scale never fell");
  TERN_CHECK(accuracy > 0.95, "loop_by_hand: the test accuracy is ", accuracy, ", expected more than 0.95");
  return 0;
} catch (const Error& error) {
  std::printf("%s\n", error.what());
  return 1;
}
