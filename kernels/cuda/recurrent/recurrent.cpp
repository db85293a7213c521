// Recurrent layers: each step is a matrix product and a kernel for the cells.

#include "tern/kernels/recurrent/recurrent.h"

#include <algorithm>

#include "tern/kernels/cuda/recurrent/steps.h"
#include "tern/kernels/gemm.h"
#include "tern/kernels/workspace_parts.h"

namespace tern::kernels::cuda {
namespace {

constexpr int64_t kPart = 256;  // alignment of the parts of a workspace

/// What both passes have.
template <class T>
class Pass {
 protected:
  using F = ComputeType<T>;
  Pass(Stream stream, const RecurrentLayer& layer, void* memory)
      : stream_(stream),
        layer_(layer),
        memory_(memory, kPart),
        batch_(layer.batch()),
        hidden_(layer.hidden()),
        state_(layer.state()),
        width_(gates_of(layer.kind) * hidden_) {}

  RecurrentStep step(int64_t t) const {
    const RecurrentSteps& s = layer_.steps;
    return {s.first.as<int64_t>(),
            s.order.as<int64_t>(),
            t * s.stride,
            s.stride,
            s.counts[t],
            t + 1 < s.steps ? s.counts[t + 1] : 0,
            t == 0};
  }
  template <class To>
  void gather(ConstView from, int64_t width, To* to) const {
    launch_recurrent_gather(stream_, from.as<T>(), layer_.steps.order.as<int64_t>(), batch_, width, to);
  }
  void scatter(const F* from, int64_t width, View to) const {
    if (to) launch_recurrent_scatter(stream_, from, layer_.steps.order.as<int64_t>(), batch_, width, to.as<T>());
  }

  Stream stream_;
  const RecurrentLayer& layer_;
  WorkspaceParts memory_;
  int64_t batch_, hidden_, state_, width_;

 public:
  int64_t bytes() const { return memory_.bytes(); }
};

template <class T>
class Forward : public Pass<T> {
  using Base = Pass<T>;
  using Base::stream_, Base::layer_, Base::memory_, Base::batch_, Base::hidden_, Base::state_, Base::width_;
  using typename Base::F;

 public:
  Forward(Stream stream, const RecurrentLayer& layer, void* memory) : Base(stream, layer, memory) {
    states_ = memory_.template take<T>(batch_ * state_);
    product_ = memory_.template take<F>(batch_ * width_);
    if (layer.kind == RecurrentKind::kLstm) cells_ = memory_.template take<F>(batch_ * hidden_);
    if (layer.projection) unprojected_ = memory_.template take<T>(batch_ * hidden_);
    int64_t bytes = gemm_workspace(stream, false, true, make_view(states_, batch_, state_), layer.weight,
                                   make_view(product_, batch_, width_));
    if (layer.projection)
      bytes = std::max(bytes, gemm_workspace(stream, false, true, make_view(unprojected_, batch_, hidden_),
                                             layer.projection, make_view(states_, batch_, state_)));
    product_memory_ = memory_.template take<char>(bytes);
  }

  void run(const RecurrentKept& kept, View output, View last, View last_cell) const {
    this->gather(layer_.initial, state_, states_);
    if (cells_) this->gather(layer_.initial_cell, hidden_, cells_);
    for (int64_t t = 0; t < layer_.steps.steps; ++t) {
      const RecurrentStep step = this->step(t);
      gemm(stream_, false, true, 1, make_view(states_, step.running, state_), layer_.weight, 0,
           make_view(product_, step.running, width_), product_memory_);
      const bool direct = !layer_.projection;
      const RecurrentForwardCall<T> call{step,
                                         hidden_,
                                         product_,
                                         layer_.bias.template as<T>(),
                                         kept.gates.as<T>(),
                                         kept.hidden.as<T>(),
                                         direct ? output.as<T>() : nullptr,
                                         direct ? last.as<T>() : nullptr,
                                         last_cell.as<T>(),
                                         kept.cells.as<F>(),
                                         cells_,
                                         direct ? states_ : unprojected_};
      launch_recurrent_forward(stream_, layer_.kind, call);
      if (!direct) project(step, output, last);
    }
  }

 private:
  void project(const RecurrentStep& step, View output, View last) const {
    gemm(stream_, false, true, 1, make_view(unprojected_, step.running, hidden_), layer_.projection, 0,
         make_view(states_, step.running, state_), product_memory_);
    launch_recurrent_output(stream_, step, states_, state_, output.as<T>(), last.as<T>());
  }

  T *states_, *unprojected_ = nullptr;
  F *product_, *cells_ = nullptr;
  char* product_memory_;
};

template <class T>
class Backward : public Pass<T> {
  using Base = Pass<T>;
  using Base::stream_, Base::layer_, Base::memory_, Base::batch_, Base::hidden_, Base::state_, Base::width_;
  using typename Base::F;

 public:
  Backward(Stream stream, const RecurrentLayer& layer, void* memory) : Base(stream, layer, memory) {
    dstates_ = memory_.template take<F>(batch_ * state_);
    dproduct_ = memory_.template take<T>(batch_ * width_);
    if (layer.kind == RecurrentKind::kLstm) dcells_ = memory_.template take<F>(batch_ * hidden_);
    int64_t bytes = gemm_workspace(stream, false, false, make_view(dproduct_, batch_, width_), layer.weight,
                                   make_view(dstates_, batch_, state_));
    if (layer.projection) {
      dprojected_ = memory_.template take<T>(batch_ * state_);
      dunprojected_ = memory_.template take<F>(batch_ * hidden_);
      bytes = std::max(bytes, gemm_workspace(stream, false, false, make_view(dprojected_, batch_, state_),
                                             layer.projection, make_view(dunprojected_, batch_, hidden_)));
    }
    product_memory_ = memory_.template take<char>(bytes);
  }

  void run(const RecurrentKept& kept, ConstView output, const RecurrentGradients& gradients) const {
    this->gather(gradients.last, state_, dstates_);
    if (dcells_) this->gather(gradients.last_cell, hidden_, dcells_);
    for (int64_t t = layer_.steps.steps - 1; t >= 0; --t) run_step(this->step(t), kept, output, gradients);
    this->scatter(dstates_, state_, gradients.initial);
    if (dcells_) this->scatter(dcells_, hidden_, gradients.initial_cell);
  }

 private:
  void run_step(const RecurrentStep& step, const RecurrentKept& kept, ConstView output,
                const RecurrentGradients& gradients) const {
    const bool direct = !layer_.projection;
    const T* const doutput = gradients.output.as<T>();
    if (!direct) {
      launch_recurrent_total(stream_, step, dstates_, doutput, state_, gradients.projected.as<T>(), dprojected_);
      gemm(stream_, false, false, 1, make_view(dprojected_, step.running, state_), layer_.projection, 0,
           make_view(dunprojected_, step.running, hidden_), product_memory_);
    }
    RecurrentBackwardCall<T> call;
    call.step = step;
    call.hidden = hidden_;
    call.state = state_;
    call.gates = kept.gates.as<T>();
    call.kept_hidden = kept.hidden.as<T>();
    call.output = output.as<T>();
    call.initial = layer_.initial.template as<T>();
    call.initial_cell = layer_.initial_cell.template as<T>();
    call.kept_cells = kept.cells.as<F>();
    call.doutput = direct ? doutput : nullptr;
    call.dstates = direct ? dstates_ : dunprojected_;
    call.dcells = dcells_;
    call.dproduct = dproduct_;
    call.dgates = gradients.gates.as<T>();
    call.state_gates = gradients.state_gates.as<T>();
    call.unprojected = gradients.unprojected.as<T>();
    call.previous = gradients.previous.as<T>();
    launch_recurrent_backward(stream_, layer_.kind, call);
    gemm(stream_, false, false, 1, make_view(dproduct_, step.running, width_), layer_.weight,
         layer_.kind == RecurrentKind::kGru ? 1 : 0, make_view(dstates_, step.running, state_), product_memory_);
  }

  F *dstates_, *dcells_ = nullptr, *dunprojected_ = nullptr;
  T *dproduct_, *dprojected_ = nullptr;
  char* product_memory_;
};

}  // namespace

int64_t recurrent_packed_bytes(Stream, RecurrentLayer, bool) { return 0; }
void recurrent_pack(Stream, RecurrentLayer, bool, void*) {}

int64_t recurrent_forward_workspace(Stream stream, RecurrentLayer layer) {
  return dispatch_float(layer.weight.dtype, [&]<class T>() { return Forward<T>(stream, layer, nullptr).bytes(); });
}
void recurrent_forward(Stream stream, RecurrentLayer layer, RecurrentKept kept, View output, View last, View last_cell,
                       void* workspace) {
  if (layer.batch() == 0) return;
  dispatch_float(layer.weight.dtype,
                 [&]<class T>() { Forward<T>(stream, layer, workspace).run(kept, output, last, last_cell); });
}

int64_t recurrent_backward_workspace(Stream stream, RecurrentLayer layer) {
  return dispatch_float(layer.weight.dtype, [&]<class T>() { return Backward<T>(stream, layer, nullptr).bytes(); });
}
void recurrent_backward(Stream stream, RecurrentLayer layer, RecurrentKept kept, ConstView output,
                        RecurrentGradients gradients, void* workspace) {
  if (layer.batch() == 0) return;
  dispatch_float(layer.weight.dtype,
                 [&]<class T>() { Backward<T>(stream, layer, workspace).run(kept, output, gradients); });
}

}  // namespace tern::kernels::cuda
