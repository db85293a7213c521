#include "tern/dist/gradients/batch_norm.h"

#include "tern/nn/layers/batch_norm.h"

namespace tern::dist {

int64_t synchronize_batch_norms(nn::Module& module, const std::shared_ptr<Communicator>& communicator) {
  int64_t count = 0;
  module.apply([&](nn::Module& m) {
    auto* const norm = dynamic_cast<nn::BatchNorm*>(&m);
    if (!norm) return;
    norm->synchronize({.rank = communicator->rank(),
                       .count = communicator->size(),
                       .sum = [communicator](Tensor& tensor) { communicator->all_reduce(tensor); }});
    ++count;
  });
  return count;
}

}  // namespace tern::dist
