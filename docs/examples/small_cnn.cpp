#include <tern/tern.h>

#include <cstdio>

using namespace tern;

class SmallCnn final : public nn::Module {
 public:
  SmallCnn(const nn::Scope& s, int64_t classes)
      : Module(s),
        stem_(sub("stem"), 1, 16, 3, {.padding = 1}),
        depthwise_(sub("depthwise"), 16, 16, 3, {.padding = 1, .groups = 16}),  // as in MobileNet
        pointwise_(sub("pointwise"), 16, 32, 1),
        block_(sub("block"), 32, 64, 3, {.padding = 1}),
        head_(sub("head"), 64, classes) {}

  Tensor forward(const Tensor& image) const {  // [batch, 1, 8, 8]
    Tensor x = relu(stem_.forward(image));
    x = x + depthwise_.forward(x);
    x = max_pool2d(relu(pointwise_.forward(x)), 2);
    x = relu(block_.forward(x));
    return head_.forward(adaptive_avg_pool2d(x, 1).flatten(1));
  }

 private:
  nn::Conv2d stem_, depthwise_, pointwise_, block_;
  nn::Linear head_;
};

int main() {
  const Device device = best_device();  // cuda:0 if one works, else cpu
  SmallCnn net(nn::Scope({.device = device, .generator = Generator(42)}), 10);
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-2, .weight_decay = 0.01});
  const auto images = [&](const Tensor& pixels) { return pixels.to(device).reshape({-1, 1, 8, 8}); };
  data::Loader loader(data::digits("train"), {.batch_size = 32, .shuffle = true, .seed = 42});
  constexpr int kEpochs = 20;
  const auto schedule = optim::cosine_schedule({.total_steps = kEpochs * loader.steps(), .warmup = 0.1});
  int64_t step = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    for (const auto& batch : loader.epoch(epoch)) {
      schedule.apply(optimizer, step++);
      cross_entropy(net.forward(images(batch[0])), batch[1].to(device)).backward();
      optimizer.step({.max_norm = 1.0});
      optimizer.zero_grad();
    }

  NoGrad off;
  const auto test = data::digits("test").tensors();
  const Tensor hits = eq(argmax(net.forward(images(test[0]))), test[1].to(device));
  const double accuracy = mean(hits.to(float32)).item<double>();
  std::printf("test accuracy %.1f %%\n", 100 * accuracy);
  return accuracy > 0.96 ? 0 : 1;
}
