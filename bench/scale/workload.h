#pragma once
// The work of each process in the scaling benchmark: a model and random batches of full length.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tern/core/tensor.h"
#include "tern/nn/module.h"

namespace tern::bench {

class Workload {
 public:
  /// model: "text" (DistilBERT 256 wide, 4 layers, 4 heads, batch x length tokens) or "vit" (192 wide, 9 layers, 3
  /// heads, patches of 4 x 4 in `batch` images of 32 x 32). All ranks have equal weights and different batches.
  Workload(const std::string& model, int64_t batch, int64_t length, int rank);

  nn::Module& module() { return *module_; }
  /// The loss of the next batch, recorded for backward.
  Tensor loss(DType dtype) { return loss_(dtype); }

 private:
  void make_text(int64_t batch, int64_t length, uint64_t seed);
  void make_vit(int64_t batch, uint64_t seed);

  std::unique_ptr<nn::Module> module_;
  std::function<Tensor(DType)> loss_;
};

}  // namespace tern::bench
