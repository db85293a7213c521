#include <tern/tern.h>

#include <cstdio>

using namespace tern;

class Net final : public nn::Module {  // a custom model
 public:
  Net(const nn::Scope& s, int64_t classes) : Module(s), body_(sub("body"), 64, 256), head_(sub("head"), 256, classes) {}
  Tensor forward(const Tensor& x) const { return head_.forward(gelu(body_.forward(x))); }

 private:
  nn::Linear body_, head_;
};

int main() {
  const Device device = best_device();       // cuda:0 if one works, else cpu
  const DType low = autocast_dtype(device);  // bfloat16 where that is the faster one, else float32
  Net net(nn::Scope({.device = device, .generator = Generator(42)}), 10);
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-3, .weight_decay = 0.01});
  data::Loader loader(data::digits("train"), {.batch_size = 32, .shuffle = true, .workers = 2, .seed = 42});
  for (int epoch = 0; epoch < 20; ++epoch)
    for (const auto& batch : loader.epoch(epoch)) {
      Tensor loss =
          autocast(device, low, [&] { return cross_entropy(net.forward(batch[0].to(device)), batch[1].to(device)); });
      loss.backward();
      optimizer.step({.max_norm = 1.0});  // clips in the same pass
      optimizer.zero_grad();
    }
  save_safetensors(net.state_dict(), "digits.safetensors");

  NoGrad off;  // from here on nothing is recorded for backward
  const auto test = data::digits("test").tensors();
  const Tensor hits = eq(argmax(net.forward(test[0].to(device))), test[1].to(device));
  const double accuracy = mean(hits.to(float32)).item<double>();
  std::printf("test accuracy %.1f %%\n", 100 * accuracy);
  return accuracy > 0.95 ? 0 : 1;
}
