// A training loop for one device that became one for any number of processes and mixed precision. Alone it is one
// process;
//   ./tern launch --nproc 4 -- build/release/bin/example_accelerator
// trains the same model in four, with the gradients of four times the batch.

#include <tern/tern.h>

#include <cstdio>

using namespace tern;

int main() {
  dist::Accelerator accelerator({.precision = bfloat16, .accumulate = 2, .clip_norm = 1.0});

  nn::Scope scope({.device = accelerator.device(), .generator = Generator(42)});
  nn::Linear net(scope, 64, 10);
  accelerator.prepare(net);
  optim::SGD optimizer(net.parameters(), {.lr = 0.3, .momentum = 0.9});
  data::Loader loader(data::digits("train"), {.batch_size = 16, .shuffle = true, .seed = 42});
  for (int epoch = 0; epoch < 8; ++epoch)
    for (const auto& batch : accelerator.train_batches(loader, epoch)) {
      const Tensor loss = accelerator.autocast([&] { return cross_entropy(net.forward(batch[0]), batch[1]); });
      accelerator.backward(loss);   // instead of loss.backward()
      accelerator.step(optimizer);  // instead of optimizer.step() and optimizer.zero_grad()
    }

  NoGrad off;
  nn::Accuracy accuracy;
  for (const auto& batch : accelerator.eval_batches(data::Loader(data::digits("test"), {.batch_size = 100})))
    accuracy.update(net.forward(batch[0]), batch[1]);
  const double right = accuracy.compute(dist::gather_over(accelerator.group()));
  if (accelerator.is_main())
    std::printf("test accuracy %.1f %% with %lld processes\n", 100 * right, static_cast<long long>(accelerator.size()));
  accelerator.finish();
  return right > 0.85 ? 0 : 1;
}
