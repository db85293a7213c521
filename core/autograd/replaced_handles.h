#pragma once
// Handles of parameters and buffers that name other tensors for a time: what nn::functional_call is made of.

#include <memory>
#include <utility>
#include <vector>

#include "tern/core/tensor.h"

namespace tern::detail {

/// During its lifetime, in one thread, the handles name other tensors.
class ReplacedHandles {
 public:
  /// A handle may occur several times: the last tensor counts.
  using List = std::vector<std::pair<std::shared_ptr<Tensor>, Tensor>>;

  [[nodiscard]] explicit ReplacedHandles(List tensors);
  ~ReplacedHandles();
  ReplacedHandles(const ReplacedHandles&) = delete;
  ReplacedHandles& operator=(const ReplacedHandles&) = delete;

  /// What this thread has replaced now, from the outermost object on, and the tensors that were replaced, from the
  /// innermost on: a function that runs later sets the second list and then the first of when it began.
  static List now();
  static List before();

 private:
  List tensors_, before_;
  const ReplacedHandles* outer_;
  static constinit thread_local const ReplacedHandles* top_;
};

}  // namespace tern::detail
