#include "tern/core/autograd/captured_step.h"

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/device/backend.h"
#include "tern/core/device/capture_state.h"
#include "tern/core/memory/allocator.h"

namespace tern {
namespace {

/// The device of the first input on a GPU, otherwise the CPU.
Device device_of(const std::vector<Tensor>& inputs) {
  for (const Tensor& x : inputs)
    if (x.defined() && x.device().is_cuda()) return x.device();
  return cpu;
}

}  // namespace

/// The graph, its memory and the tensors that are written before every replay.
struct CapturedStep::Recording {
  Device device;
  int64_t pool = 0;
  void* graph = nullptr;
  int64_t nodes = 0;
  uint64_t moves = detail::moves_of_weights();
  std::vector<Tensor> inputs;
  std::vector<Tensor> weight_copies;  // autocast's copies, which replays write
  struct Draws {
    Generator generator;
    Tensor base;  // int64 [1]
    uint64_t first = 0, count = 0;
  };
  std::vector<Draws> draws;

  ~Recording() {
    if (graph) cuda::destroy_graph(graph);
    if (pool) allocator(device).release_private_pool(pool);
  }
};

CapturedStep::CapturedStep(Function function, const CapturedStepOptions& options)
    : function_(std::move(function)), options_(options) {
  TERN_CHECK(options.warmup >= 1, "captured step: warmup must be at least 1, got ", options.warmup);
}

CapturedStep::~CapturedStep() = default;

bool CapturedStep::captured() const { return recording_ != nullptr; }
int64_t CapturedStep::nodes() const { return recording_ ? recording_->nodes : 0; }

void CapturedStep::reset() {
  results_.clear();
  recording_.reset();
}

const std::vector<Tensor>& CapturedStep::operator()(const std::vector<Tensor>& inputs) {
  if (!recording_ && (!options_.enabled || device_of(inputs).is_cpu() || runs_ < options_.warmup)) {
    const detail::GeneratorTrace trace(generators_);
    results_ = function_(inputs);
    ++runs_;
    return results_;
  }
  if (!recording_) record(inputs);
  replay(inputs);
  return results_;
}

void CapturedStep::record(const std::vector<Tensor>& inputs) {
  TERN_CHECK(!detail::is_recording(), "captured step: one is being recorded by this thread already");
  auto made = std::make_unique<Recording>();
  made->device = device_of(inputs);
  for (const Tensor& x : inputs) {
    if (x.defined() && x.device() == made->device)
      made->inputs.push_back(x.detach().clone());
    else
      made->inputs.push_back(x.defined() ? x.detach().to(made->device) : Tensor());
  }
  for (const Generator& generator : generators_)
    made->draws.push_back({generator, zeros({1}, {.dtype = int64, .device = made->device}), generator.offset(), 0});
  const kernels::Stream stream = current_stream(made->device);

  CachingAllocator& memory = allocator(made->device);
  made->pool = memory.begin_private_pool();
  std::vector<Generator> drawn;
  detail::expire_weight_copies();
  const auto end = [&]() noexcept {
    detail::set_recording(false);
    detail::expire_weight_copies();  // capture executes nothing: the copies hold no new values
    for (Recording::Draws& d : made->draws) {
      d.generator.set_base({});
      d.count = d.generator.offset() - d.first;
      d.generator.set_offset(d.first);
    }
    memory.end_private_pool(made->pool);
  };
  try {
    for (Recording::Draws& d : made->draws) d.generator.set_base(d.base);
    cuda::begin_capture(made->device.index, stream.handle);
    detail::set_recording(true);
    {
      const detail::GeneratorTrace trace(drawn);
      results_ = function_(made->inputs);
    }
    for (const Generator& g : drawn)
      TERN_CHECK(std::find(generators_.begin(), generators_.end(), g) != generators_.end(),
                 "captured step: a generator draws numbers that drew none in the earlier calls; make all calls alike");
    made->weight_copies = detail::weight_copies();
    made->graph = cuda::end_capture(made->device.index, stream.handle, made->nodes);
  } catch (...) {
    results_.clear();
    cuda::abandon_capture(made->device.index, stream.handle);
    end();
    throw;
  }
  end();
  recording_ = std::move(made);
}

void CapturedStep::replay(const std::vector<Tensor>& inputs) {
  Recording& r = *recording_;
  TERN_CHECK(inputs.size() == r.inputs.size(), "captured step: recorded with ", r.inputs.size(),
             " inputs, called with ", inputs.size());
  TERN_CHECK(r.moves == detail::moves_of_weights(),
             "captured step: nn::Module::to has moved or converted weights since the step was recorded, and the "
             "recording works on the memory that they had; call reset() to record again");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor &x = inputs[i], &fixed = r.inputs[i];
    TERN_CHECK(
        x.defined() == fixed.defined() && (!x.defined() || (x.shape() == fixed.shape() && x.dtype() == fixed.dtype())),
        "captured step: input ", i, " was ", fixed.describe(), " when the step was recorded and is now ", x.describe(),
        "; give batches of one shape, or call reset() to record again");
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined()) r.inputs[i].copy_(inputs[i].detach());
  for (Recording::Draws& d : r.draws) {
    // The recorded draws have the numbers first, first + 1, ...; those of this replay begin at the generator's offset.
    const Tensor ahead = empty({1}, {.dtype = int64});
    *ahead.data<int64_t>() = static_cast<int64_t>(d.generator.offset() - d.first);
    d.base.copy_(ahead);
    d.generator.set_offset(d.generator.offset() + d.count);
  }
  detail::expire_weight_copies();
  cuda::launch_graph(r.graph, current_stream(r.device).handle);
}

}  // namespace tern
