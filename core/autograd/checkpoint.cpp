#include "tern/core/autograd/checkpoint.h"

#include <string_view>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/autograd/recomputation.h"
#include "tern/core/profiler/profiler.h"
#include "tern/kernels/base/check.h"

namespace tern {
namespace detail {

/// A running function, in its first or second run; frames nest as calls do.
struct Recomputation::Frame {
  Recomputation* owner;
  bool again;
  Frame* outer;
  size_t draws = 0;  // number of keys replayed
};

constinit thread_local Recomputation::Frame* Recomputation::top_ = nullptr;

class Recomputation::Scope {
 public:
  Scope(Recomputation& owner, bool again) : frame_{&owner, again, top_} { top_ = &frame_; }
  ~Scope() { top_ = frame_.outer; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  const Frame& frame() const { return frame_; }

 private:
  Frame frame_;
};

namespace {
constexpr const char* kDiffers = "; fn must compute the same whenever it is called with the same inputs";
}

Recomputation::Recomputation(Fn fn, const std::vector<Tensor>& inputs) : fn_(std::move(fn)) {
  inputs_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs_[i].keep(inputs[i], "checkpoint");  // inside another checkpoint this is a place of the outer one
    inputs_require_grad_.push_back(inputs[i].defined() && inputs[i].requires_grad());
  }
  for (const DeviceType type : {DeviceType::kCPU, DeviceType::kCUDA})
    autocast_[static_cast<int>(type)] = autocast_active_dtype({type, 0});
}

std::vector<Tensor> Recomputation::run(const std::vector<Tensor>& inputs) {
  const Scope scope(*this, false);
  return fn_(inputs);
}

std::shared_ptr<Recomputation> Recomputation::save(const Tensor& tensor, const char* op, int64_t& place) {
  if (!top_) return nullptr;
  Recomputation& owner = *top_->owner;
  if (top_->again) {
    const size_t next = owner.values_.size();
    TERN_CHECK(next < owner.places_.size(), "checkpoint: fn saved more than the ", owner.places_.size(),
               " tensors of its first run", kDiffers);
    const Place& want = owner.places_[next];
    TERN_CHECK(tensor.shape() == want.shape && tensor.dtype() == want.dtype && std::string_view(op) == want.op,
               "checkpoint: ", op, " saved ", tensor.describe(), " where in the first run of fn ", want.op, " saved ",
               want.dtype, " ", want.shape, kDiffers);
    owner.values_.push_back(alias(tensor));
    return nullptr;
  }
  place = static_cast<int64_t>(owner.places_.size());
  owner.places_.push_back({op, tensor.shape(), tensor.dtype()});
  return owner.shared_from_this();
}

void Recomputation::end_if_complete() {
  if (top_ && top_->again && top_->owner->values_.size() == top_->owner->places_.size()) throw Complete();
}

void Recomputation::begin_op(const Tensor* const* inputs, int count) {
  end_if_complete();
  for (Frame* frame = top_; frame; frame = frame->outer) {
    if (frame->again) continue;
    for (int i = 0; i < count; ++i) {
      const Tensor& x = *inputs[i];
      if (!x.defined() || !x.is_leaf() || !x.requires_grad()) continue;
      frame->owner->leaves_.push_back({x.storage(), x.version()});
    }
  }
}

void Recomputation::check_leaves() const {
  for (const Leaf& leaf : leaves_) {
    const std::shared_ptr<Storage> storage = leaf.storage.lock();
    TERN_CHECK(!storage || storage->version() == leaf.version,
               "checkpoint: a parameter that fn used was modified in place between forward and backward; run backward "
               "before the optimizer's step");
  }
}

Recomputation::Frame* Recomputation::innermost_rerun() {
  Frame* frame = top_;
  while (frame && !frame->again) frame = frame->outer;
  return frame;
}

kernels::RandomKey Recomputation::draw(kernels::RandomKey& next) {
  // A frame in its second run has the recorded keys; all frames inside it are in their first run and record them.
  Frame* const rerun = innermost_rerun();
  kernels::RandomKey key;
  if (rerun) {
    const std::vector<kernels::RandomKey>& draws = rerun->owner->draws_;
    TERN_CHECK(rerun->draws < draws.size(), "checkpoint: fn drew more random numbers than the ", draws.size(),
               " of its first run", kDiffers);
    key = draws[rerun->draws++];
  } else {
    key = next;
    ++next.offset;
  }
  for (Frame* frame = top_; frame != rerun; frame = frame->outer) frame->owner->draws_.push_back(key);
  return key;
}

Tensor Recomputation::value(int64_t place, const char* op) {
  TERN_CHECK(!grad_enabled(), op,
             ": a second derivative through checkpoint() is not supported; call the function directly for that");
  const size_t index = static_cast<size_t>(place);
  if (index >= values_.size() || !values_[index].defined()) run_again(op);
  return values_[index];
}

void Recomputation::drop(int64_t place) {
  if (static_cast<size_t>(place) < values_.size()) values_[static_cast<size_t>(place)] = Tensor();
}

void Recomputation::run_again(const char* op) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    inputs.push_back(inputs_[i].defined() ? alias(inputs_[i].get(op)) : Tensor());
    if (inputs_require_grad_[i]) inputs.back().set_requires_grad(true);
  }
  check_leaves();
  const ProfileRange range("recomputation");
  values_.clear();
  const GradMode recorded(true);
  const Autocast on_cpu({DeviceType::kCPU, 0}, autocast_[0]), on_cuda({DeviceType::kCUDA, 0}, autocast_[1]);
  ReplacedHandles::List handles = ReplacedHandles::before();
  handles.insert(handles.end(), handles_.begin(), handles_.end());
  const ReplacedHandles as_before(std::move(handles));
  const Scope scope(*this, true);
  try {
    fn_(inputs);
  } catch (const Complete&) {
    return;
  }
  TERN_CHECK(values_.size() == places_.size(), "checkpoint: fn saved ", values_.size(), " tensors, and ",
             places_.size(), " in its first run", kDiffers);
  TERN_CHECK(scope.frame().draws == draws_.size(), "checkpoint: fn drew ", scope.frame().draws, " random numbers, and ",
             draws_.size(), " in its first run", kDiffers);
}

kernels::RandomKey draw(kernels::RandomKey& next) { return Recomputation::draw(next); }
bool is_recomputing() { return Recomputation::running_again(); }

void Kept::keep(const Tensor& tensor, const char* op) {
  *this = Kept();
  if (!tensor.defined()) return;
  recomputation_ = Recomputation::save(tensor, op, place_);
  if (recomputation_) return;
  tensor_ = tensor;
  version_ = tensor.version();
}

Tensor Kept::get(const char* op) const {
  if (recomputation_) return recomputation_->value(place_, op);
  TERN_CHECK(tensor_.defined(), op, ": a tensor needed for backward was not saved");
  TERN_CHECK(tensor_.version() == version_, op, ": a tensor needed for backward (", tensor_.describe(),
             ") was modified in place after it was saved (version ", tensor_.version(), ", expected ", version_,
             "); use the op that returns a new tensor");
  return tensor_;
}

void Kept::drop() {
  if (recomputation_) recomputation_->drop(place_);
  *this = Kept();
}

}  // namespace detail

std::vector<Tensor> checkpoint_all(std::function<std::vector<Tensor>(const std::vector<Tensor>&)> fn,
                                   const std::vector<Tensor>& inputs) {
  if (!grad_enabled()) return fn(inputs);
  return std::make_shared<detail::Recomputation>(std::move(fn), inputs)->run(inputs);
}

}  // namespace tern
