#pragma once
// Low-rank adaptation of linear layers.

#include <optional>
#include <string>
#include <vector>

#include "tern/nn/layers/linear.h"

namespace tern::nn {

struct LoRAOptions {
  int64_t rank = 8;
  double alpha = 8;    // the addition is scaled by alpha / rank
  double dropout = 0;  // of what A is multiplied with, in training
};

/// The addition of low rank (Hu et al., arXiv:2106.09685): x weight^T + bias + alpha / rank * dropout(x) A^T B^T.
/// Parameters: "A" [rank, in], at first as a linear layer's weight, "B" [out, rank], zeros at first, so that the layer
/// begins as it was.
class LoRA final : public LinearAdapter {
 public:
  LoRA(const Scope& s, const Linear& linear, const LoRAOptions& options = {});

  Tensor forward(const Linear& linear, const Tensor& x, Activation activation) const override;
  /// Adds alpha / rank * B A to the layer's weight, which then computes alone. The weight before is kept, so that
  /// unmerge() restores its bits. Throws Error when it is merged (unmerge: when it is not).
  void merge(const Linear& linear);
  void unmerge(const Linear& linear);
  bool is_merged() const { return before_.defined(); }

 private:
  void copy_own_from(const Module& source) override;

  double scale_, dropout_;
  Parameter a_, b_;
  Tensor before_;  // the weight before merge()
};

struct AddLoRAOptions {
  LoRAOptions lora = {};
  std::string target = "*";                 // pattern of the names of linear layers, see Module::parameters(pattern)
  std::vector<std::string> trainable = {};  // patterns of other parameters that stay trainable: {"head.*"}
};

/// Gives every linear layer below `module` whose name, relative to it, matches the target an adapter "lora", freezes
/// all parameters but those of adapters and the trainable ones, and returns the number of layers. Make optimizers
/// afterwards. Throws Error, and changes nothing, when no layer matches, when one has an adapter, and when a trainable
/// pattern matches no parameter.
int64_t add_lora(Module& module, const AddLoRAOptions& options = {});
/// LoRA::merge and unmerge of every adapter below `module`. Throw Error when there is none.
void merge_lora(Module& module);
void unmerge_lora(Module& module);
/// The adapters' parameters: what is saved; load_state(lora_state(module), saved) loads it.
StateView lora_state(const Module& module);

}  // namespace tern::nn
