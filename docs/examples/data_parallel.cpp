// Data-parallel training with a custom loop. Without a launcher it is one process;
//   ./tern launch --nproc 4 -- build/release/bin/example_data_parallel
// trains the same model on the same batches in four.

#include <tern/tern.h>

#include <cstdio>

using namespace tern;

int main() {
  dist::World world(dist::detect_launch(), cpu);
  const auto group = world.group();

  nn::Linear net(nn::Scope({.generator = Generator(42)}), 64, 10);
  dist::DataParallel parallel(net, group);  // every process begins with the weights of rank 0
  optim::SGD optimizer(net.parameters(), {.lr = 0.1});
  data::Loader loader(data::digits("train"), {.batch_size = 16, .shuffle = true, .drop_last = true, .seed = 42});
  // Each takes every n-th batch, and all equally many: a step is that of the joined batch.
  const int64_t ranks = group->size(), steps = loader.steps() / ranks;
  for (int epoch = 0; epoch < 5; ++epoch)
    for (const auto& batch : loader.epoch(epoch, {.first = group->rank(), .stride = ranks, .count = steps})) {
      cross_entropy(net.forward(batch[0]), batch[1]).backward();  // gradients are now the mean over all processes
      optimizer.step();                                           // so this is the same step everywhere
      optimizer.zero_grad();
    }

  // Each counts its share of the test rows, and all add up.
  NoGrad off;
  const auto test = data::digits("test").tensors();
  const int64_t rows = test[0].size(0), first = rows * group->rank() / ranks, end = rows * (group->rank() + 1) / ranks;
  const Tensor hits = eq(argmax(net.forward(test[0].slice(0, first, end))), test[1].slice(0, first, end));
  Tensor right = sum(hits.to(float32));
  group->all_reduce(right);
  const double accuracy = right.item<double>() / static_cast<double>(rows);
  if (group->rank() == 0) std::printf("test accuracy %.1f %% with %lld processes\n", 100 * accuracy, (long long)ranks);
  world.finish();  // without it the others take this process for one that failed
  return accuracy > 0.85 ? 0 : 1;
}
