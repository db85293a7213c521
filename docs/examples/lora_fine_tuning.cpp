// Low-rank adaptation (Hu et al., arXiv:2106.09685): a small transformer learns the digits 0 to 4, is frozen, and
// learns 5 to 9 by adapters of its attention and feed-forward layers. The file of the adapters is a fraction of the
// model's.
#include <tern/tern.h>

#include <cstdio>

using namespace tern;

constexpr int64_t kSide = 8, kClasses = 5;

class Block final : public nn::Module {
 public:
  Block(const nn::Scope& s, int64_t width)
      : Module(s),
        norm1_(sub("norm1"), width),
        attention_(sub("attention"), width, /*heads=*/4),
        norm2_(sub("norm2"), width),
        feed_(sub("feed"), width, 2 * width) {}
  Tensor forward(const Tensor& x) const {
    const Tensor y = x + attention_.forward(norm1_.forward(x));
    return y + feed_.forward(norm2_.forward(y));
  }

 private:
  nn::LayerNorm norm1_;
  nn::PackedAttention attention_;
  nn::LayerNorm norm2_;
  nn::FeedForward feed_;
};

// A transformer whose tokens are the rows of an image.
class Net final : public nn::Module {
 public:
  explicit Net(const nn::Scope& s, int64_t width = 64)
      : Module(s),
        embed_(sub("embed"), kSide, width),
        position_(this, "position", {kSide, width}, nn::init::normal(0, 0.02)),
        blocks_(sub("blocks"), 2, width),
        norm_(sub("norm"), width),
        head_(sub("head"), width, kClasses) {}
  Tensor forward(const Tensor& pixels) const {  // [batch, 64]
    Tensor x = embed_.forward(pixels.reshape({-1, kSide, kSide})) + position_;
    for (const Block& block : blocks_) x = block.forward(x);
    return head_.forward(norm_.forward(mean(x, {1})));
  }

 private:
  nn::Linear embed_;
  Parameter position_;
  nn::ModuleList<Block> blocks_;
  nn::LayerNorm norm_;
  nn::Linear head_;
};

// The images of the digits first ... first + 4, and their classes 0 ... 4.
data::TensorDataset task(const std::string& part, int64_t first) {
  const auto all = data::digits(part).tensors();
  const Tensor labels = all[1] - static_cast<double>(first);
  const Tensor mine = logical_and(labels >= 0.0, labels < static_cast<double>(kClasses));
  return data::TensorDataset({all[0].index({mine}), labels.index({mine})});
}

// Trains what requires a gradient.
void train(Net& net, const data::TensorDataset& set, int epochs, double lr) {
  net.train();
  optim::AdamW optimizer(net.parameters(), {.lr = lr});
  const data::Loader loader(set, {.batch_size = 32, .shuffle = true, .seed = 42});
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (const auto& batch : loader.epoch(epoch)) {
      cross_entropy(net.forward(batch[0].to(net.device())), batch[1].to(net.device())).backward();
      optimizer.step({.max_norm = 1.0});
      optimizer.zero_grad();
    }
}

Tensor scores(Net& net, const data::TensorDataset& set) {
  const NoGrad off;
  net.eval();
  return net.forward(set.tensors()[0].to(net.device()));
}

double accuracy(Net& net, const data::TensorDataset& set) {
  nn::Accuracy result;
  result.update(scores(net, set), set.tensors()[1]);
  return result.compute();
}

const nn::AddLoRAOptions kAdapters = {.lora = {.rank = 4, .alpha = 8}, .target = "blocks.*", .trainable = {"head.*"}};

// What fine-tuning has changed: the adapters and the head.
StateView adapters(const Net& net) {
  StateView state = nn::lora_state(net);
  for (const NamedTensor& entry : net.state_dict({.pattern = "head.*"})) state.push_back(entry);
  return state;
}

int main() try {
  const nn::Scope scope({.device = best_device(), .generator = Generator(42)});
  const auto low = task("train", 0), high = task("train", 5), high_test = task("test", 5);

  Net net(scope);
  train(net, low, /*epochs=*/15, 2e-3);
  std::printf("0 to 4: test accuracy %.3f\n", accuracy(net, task("test", 0)));
  save_safetensors(net.state_dict(), "base.safetensors");
  const StateView base = load_safetensors("base.safetensors").tensors;

  // For comparison: a new head alone.
  Net probe(scope);
  probe.load_state_dict(base);
  probe.freeze();
  probe.unfreeze("head.*");
  train(probe, high, /*epochs=*/10, 5e-3);
  const double head_alone = accuracy(probe, high_test);

  const int64_t layers = nn::add_lora(net, kAdapters);
  train(net, high, /*epochs=*/10, 5e-3);
  const double adapted = accuracy(net, high_test);
  std::printf("5 to 9: test accuracy %.3f with a new head alone, %.3f with adapters of %d layers\n", head_alone,
              adapted, static_cast<int>(layers));
  TERN_CHECK(adapted > head_alone + 0.05 && adapted > 0.9, "lora: the adapters did not help");
  for (const NamedTensor& entry : base)
    TERN_CHECK(nn::matches_pattern(entry.name, "head.*") ||
                   all(eq(find(net.state_dict(), entry.name), entry.tensor.to(net.device()))).item<bool>(),
               "lora: the frozen parameter ", entry.name, " has changed");

  // The adapters alone, in a fresh copy of the base model.
  save_safetensors(adapters(net), "adapters.safetensors");
  int64_t saved = 0;
  for (const NamedTensor& entry : adapters(net)) saved += entry.tensor.numel();
  std::printf("saved: %d numbers of %d\n", static_cast<int>(saved), static_cast<int>(net.num_parameters()));
  Net copy(scope);
  copy.load_state_dict(base);
  nn::add_lora(copy, kAdapters);
  load_state(adapters(copy), load_safetensors("adapters.safetensors").tensors);
  const Tensor expected = scores(net, high_test);
  TERN_CHECK(all(scores(copy, high_test) == expected).item<bool>(), "lora: the copy computes other scores");

  // Merged, a layer is one product again.
  nn::merge_lora(copy);
  const double difference = max(abs(scores(copy, high_test) - expected)).item<double>();
  TERN_CHECK(difference < 1e-4, "lora: merged adapters change scores by ", difference);
  nn::unmerge_lora(copy);
  TERN_CHECK(all(scores(copy, high_test) == expected).item<bool>(), "lora: unmerging did not restore the weights");
  std::printf("merged, the scores differ by %.1e\n", difference);
  return 0;
} catch (const Error& error) {
  std::printf("%s\n", error.what());
  return 1;
}
