#include "tern/kernels/cuda/cudnn/attention.h"

#if __has_include(<cudnn.h>)

#include <algorithm>
#include <atomic>
#include <cmath>
#include <sstream>

#include "tern/kernels/cuda/attention/alternative.h"
#include "tern/kernels/cuda/attention/ragged.h"
#include "tern/kernels/cuda/cudnn/graph.h"
#include "tern/kernels/cuda/support/cudnn_info.h"
#include "tern/kernels/cuda/support/measured_choices.h"
#include "tern/kernels/cuda/support/timing.h"
#include "tern/kernels/workspace_parts.h"

namespace tern::kernels::cuda {
namespace {

using Tensor = CudnnGraph::Tensor;

constexpr size_t kMinVersion = 91000;    // graphs of packed sequences need other masks before this version
constexpr int64_t kPlanFamily = 0;       // of CudnnDevice::plan
constexpr int64_t kPart = 256;           // alignment of the parts of a workspace
constexpr int64_t kWorkspace = 8 << 20;  // for cuDNN, in addition to what is known to be needed
constexpr float kMinusInfinity = -INFINITY;

std::atomic<bool> autotune_on = false;

size_t version_number() {
  static const size_t number = [] {
    size_t parts[3] = {};
    std::istringstream text(cudnn_info().version);
    char dot = 0;
    text >> parts[0] >> dot >> parts[1] >> dot >> parts[2];
    return parts[0] * 10000 + parts[1] * 100 + parts[2];
  }();
  return number;
}

/// True when cuDNN supports the call, apart from its tensors.
bool takes(const AttentionParams& p, DType dtype) {
  return is_low_precision(dtype) && p.sequences > 0 && p.max_query_length > 0 && p.heads > 0 && p.heads == p.kv_heads &&
         p.head_dim % 8 == 0 && p.head_dim > 0 && p.head_dim <= 128 && p.query_offsets == p.key_offsets &&
         p.max_query_length == p.max_key_length && p.window < 0 && !p.key_mask && !p.bias && p.dropout.p == 0 &&
         cudnn_info().found && version_number() >= kMinVersion;
}

template <class AnyView>
bool has_aligned_rows(const AnyView& v) {
  return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.strides[0] % 8 == 0 && v.strides[1] % 8 == 0 &&
         v.strides[0] > 0 && v.strides[1] > 0;
}

// --- choices ---

/// A kind of call: device (major, minor, multiprocessors), backward, dtype, sequences, heads, head_dim, length, causal.
using Kind = std::array<int64_t, 10>;

Kind kind_of(Stream stream, bool backward, const AttentionParams& p, DType dtype) {
  const DeviceKind device = device_kind(stream.index);
  return {device.major, device.minor, device.multiprocessors, backward, static_cast<int64_t>(dtype), p.sequences,
          p.heads,      p.head_dim,   p.max_query_length,     p.causal};
}

using Choices = MeasuredChoices<std::tuple_size_v<Kind>>;
/// 1: by cuDNN, where it was measured to be faster.
Choices& choices() {
  static Choices& instance = *new Choices("attention", 0, 1);
  return instance;
}

// --- workspace ---

struct Workspace {
  int32_t* lengths;
  int64_t* elements;  // TokenStrides::kMax arrays, offsets_pitch() apart
  float *by_token, *sums;
  char* cudnn;
  int64_t cudnn_bytes, bytes;

  Workspace(bool backward, const AttentionParams& p, void* memory) {
    WorkspaceParts parts(memory, kPart);
    const int64_t tokens = p.sequences * p.max_query_length;
    lengths = parts.take<int32_t>(p.sequences);
    elements = parts.take<int64_t>(TokenStrides::kMax * offsets_pitch(p.sequences));
    by_token = parts.take<float>(tokens * p.heads);
    sums = backward ? parts.take<float>(tokens * p.heads) : nullptr;
    // Backward without atomic additions stores the gradient of the scores, in tiles.
    const int64_t rows = (p.max_query_length + 127) / 128 * 128;
    cudnn_bytes = kWorkspace + (backward ? p.sequences * p.heads * rows * rows * 2 : 0);
    cudnn = parts.take<char>(cudnn_bytes);
    bytes = parts.bytes();
  }
};

int64_t workspace_bytes(Stream stream, bool backward, const AttentionParams& p, DType dtype) {
  if (!takes(p, dtype)) return 0;
  const std::optional<int64_t> choice = choices().find(kind_of(stream, backward, p, dtype));
  return choice.value_or(autotune_on) ? Workspace(backward, p, nullptr).bytes : 0;
}

// --- graphs ---

/// The tensors that a graph reads and writes, in the order of their declaration: q, k, v, out; for backward also dout,
/// dq, dk, dv.
class ExternalTensors {
 public:
  ExternalTensors(bool backward, const AttentionParams& p, DType dtype, const std::vector<ConstView>& views,
                  const Workspace& workspace)
      : backward_(backward),
        p_(p),
        type_(dtype == DType::kBFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF),
        views_(views),
        scale_(static_cast<float>(p.scale)) {
    pointers_.push_back(workspace.lengths);
    const auto add = [&](int64_t stride, const void* data) {
      pointers_.push_back(workspace.elements + strides_.count * offsets_pitch(p.sequences));
      strides_.values[strides_.count++] = stride;
      pointers_.push_back(const_cast<void*>(data));
    };
    for (const ConstView& v : views) add(v.strides[0], v.data);
    add(p.heads, workspace.by_token);
    if (backward) pointers_.push_back(workspace.sums);
    pointers_.push_back(&scale_);
    pointers_.push_back(&minus_infinity_);
    if (backward) pointers_.push_back(&one_);
  }
  ExternalTensors(const ExternalTensors&) = delete;

  const std::vector<void*>& pointers() const { return pointers_; }
  const TokenStrides& strides() const { return strides_; }
  /// The key of a plan in addition to the kind of call.
  std::vector<int64_t> layout() const {
    std::vector<int64_t> layout;
    for (const ConstView& v : views_) layout.insert(layout.end(), {v.strides[0], v.strides[1]});
    return layout;
  }

  struct Tensors {
    Tensor lengths, q, k, v, out, dout, dq, dk, dv;  // k, and v of backward, as [head_dim, tokens]
    Tensor statistics, sums, scale, minus_infinity, one;
    cudnnDataType_t type;
    bool causal;
  };
  Tensors name(CudnnGraph& g) const {
    const int64_t n = p_.sequences, h = p_.heads, length = p_.max_query_length;
    const auto offsets = [&] { return g.memory(CUDNN_DATA_INT64, {n + 1, 1, 1, 1}, {1, 1, 1, 1}); };
    Tensors t = {};
    t.type = type_;
    t.causal = p_.causal;
    t.lengths = g.memory(CUDNN_DATA_INT32, {n, 1, 1, 1}, {1, 1, 1, 1});
    Tensor* const rows[] = {&t.q, &t.k, &t.v, &t.out, &t.dout, &t.dq, &t.dk, &t.dv};
    for (size_t i = 0; i < views_.size(); ++i) {
      const ConstView& v = views_[i];
      CudnnGraph::Numbers dims = {n, h, length, p_.head_dim};
      CudnnGraph::Numbers strides = {length * v.strides[0], v.strides[1], v.strides[0], 1};
      if (i == 1 || (i == 2 && backward_)) {
        dims = CudnnGraph::exchanged(dims);
        strides = CudnnGraph::exchanged(strides);
      }
      const Tensor ragged = offsets();
      *rows[i] = g.memory(type_, dims, strides, &ragged);
    }
    const Tensor ragged = offsets();
    t.statistics = g.memory(CUDNN_DATA_FLOAT, {n, h, length, 1}, {length * h, 1, h, 1}, &ragged);
    if (backward_) t.sums = g.memory(CUDNN_DATA_FLOAT, {n, h, length, 1}, {h * length, length, 1, 1});
    t.scale = g.scalar(CUDNN_DATA_FLOAT);
    t.minus_infinity = g.scalar(CUDNN_DATA_FLOAT);
    if (backward_) t.one = g.scalar(CUDNN_DATA_FLOAT);
    return t;
  }

 private:
  const bool backward_;
  const AttentionParams& p_;
  const cudnnDataType_t type_;
  const std::vector<ConstView> views_;
  float scale_, minus_infinity_ = kMinusInfinity, one_ = 1;
  std::vector<void*> pointers_;
  TokenStrides strides_;
};

constexpr cudnnDataType_t kF = CUDNN_DATA_FLOAT, kI = CUDNN_DATA_INT32, kB = CUDNN_DATA_BOOLEAN;

Tensor multiply(CudnnGraph& g, const Tensor& a, const Tensor& b, const Tensor* to = nullptr) {
  return g.pointwise(CUDNN_POINTWISE_MUL, {a, b}, kF, kF, to);
}
Tensor subtract(CudnnGraph& g, const Tensor& a, const Tensor& b) {
  return g.pointwise(CUDNN_POINTWISE_SUB, {a, b}, kF, kF);
}

/// Sets scores outside the sequence and, in causal calls, above the diagonal to -infinity.
Tensor mask(CudnnGraph& g, const ExternalTensors::Tensors& t, Tensor scores) {
  const auto select = [&](const Tensor& keep) {
    return g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores, t.minus_infinity, keep}, kF, kF);
  };
  const Tensor row = g.index(scores, 2), column = g.index(scores, 3);
  const Tensor row_in = g.pointwise(CUDNN_POINTWISE_CMP_LT, {row, t.lengths}, kB, kB),
               column_in = g.pointwise(CUDNN_POINTWISE_CMP_LT, {column, t.lengths}, kB, kB);
  scores = select(g.pointwise(CUDNN_POINTWISE_LOGICAL_AND, {row_in, column_in}, kB, kB));
  if (!t.causal) return scores;
  const Tensor query = g.index(scores, 2), key = g.index(scores, 3);
  return select(g.pointwise(CUDNN_POINTWISE_CMP_GE, {query, key}, kB, kB));
}

/// out = softmax(scale q k^T) v
void describe_forward(CudnnGraph& g, const ExternalTensors::Tensors& t) {
  const Tensor scores = multiply(g, g.matmul(t.q, t.k, {.m = &t.lengths, .n = &t.lengths}), t.scale);
  const Tensor masked = mask(g, t, scores);
  const Tensor row_maximum = g.reduce(CUDNN_REDUCE_TENSOR_MAX, masked);
  const Tensor powers = g.pointwise(CUDNN_POINTWISE_EXP, {subtract(g, masked, row_maximum)}, kF, kF);
  const Tensor sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, powers);
  const Tensor logarithm = g.pointwise(CUDNN_POINTWISE_LOG, {sum}, kF, kF);
  g.pointwise(CUDNN_POINTWISE_ADD, {row_maximum, logarithm}, kF, kF, &t.statistics);
  const Tensor shares = g.pointwise(CUDNN_POINTWISE_DIV, {powers, sum}, t.type, kF);
  g.matmul(shares, t.v, {.m = &t.lengths, .k = &t.lengths}, &t.out);
}

/// P = exp(scale q k^T - log_sum_exp); dv = P^T dout; dS = scale P (dout v^T - sum(dout out)); dk = dS^T q; dq = dS k
void describe_backward(CudnnGraph& g, const ExternalTensors::Tensors& t) {
  const CudnnGraph::Lengths rows_and_columns = {.m = &t.lengths, .n = &t.lengths},
                            rows_and_sums = {.m = &t.lengths, .k = &t.lengths};
  multiply(g, g.reduce(CUDNN_REDUCE_TENSOR_ADD, multiply(g, t.dout, t.out)), t.one, &t.sums);
  const Tensor scores = multiply(g, g.matmul(t.q, t.k, rows_and_columns), t.scale);
  const Tensor masked = mask(g, t, subtract(g, scores, t.statistics));
  const Tensor shares = g.pointwise(CUDNN_POINTWISE_EXP, {masked}, kF, kF);
  g.matmul(g.transpose(shares, t.type), t.dout, rows_and_sums, &t.dv);
  const Tensor dshares = g.matmul(t.dout, t.v, rows_and_columns);
  const Tensor dscores = multiply(g, multiply(g, subtract(g, dshares, t.sums), shares), t.scale);
  g.matmul(g.transpose(dscores, t.type), t.q, rows_and_sums, &t.dk);
  g.matmul(dscores, g.transpose(t.k, t.type), rows_and_sums, &t.dq);
}

// --- calls ---

/// Runs the call's plan on the stream, after building it on first use; false when cuDNN has none.
bool run_plan(Stream stream, bool backward, const Kind& kind, const AttentionParams& p, DType dtype,
              const std::vector<ConstView>& views, const Workspace& workspace) {
  const ExternalTensors outside(backward, p, dtype, views, workspace);
  std::vector<int64_t> key = {kPlanFamily};
  key.insert(key.end(), kind.begin(), kind.end());
  for (const int64_t number : outside.layout()) key.push_back(number);
  CudnnDevice& device = CudnnDevice::of(stream.index);
  const auto plan = device.plan(key, [&](cudnnHandle_t handle) {
    CudnnGraph graph;
    const ExternalTensors::Tensors tensors = outside.name(graph);
    backward ? describe_backward(graph, tensors) : describe_forward(graph, tensors);
    return graph.plan(handle, {.workspace = workspace.cudnn_bytes, .excluded = {}});
  });
  if (!plan) return false;
  ragged_offsets(stream, p.query_offsets, p.sequences, outside.strides(), workspace.lengths, workspace.elements);
  device.run(stream, *plan, outside.pointers(), workspace.cudnn);
  return true;
}

/// Computes the call by the choice for its kind, which is made first if necessary; false: Tern's kernels must compute
/// it. `run_tern` and `run_cudnn` overwrite the same results, so that each can run many times.
template <class RunTern, class RunCudnn>
bool choose(Stream stream, const Kind& kind, const RunTern& run_tern, const RunCudnn& run_cudnn) {
  const std::optional<int64_t> choice = choices().find(kind);
  if (choice) return *choice && run_cudnn();
  if (!autotune_on || is_capturing(stream)) return false;
  const bool possible = run_cudnn();
  const bool faster = possible && time_of(stream, run_cudnn) < time_of(stream, run_tern);
  choices().set(kind, faster);
  return faster && run_cudnn();
}

bool all_aligned(const std::vector<ConstView>& views) {
  return std::all_of(views.begin(), views.end(), [](const ConstView& v) { return has_aligned_rows(v); });
}

bool forward(Stream stream, const AttentionParams& p, ConstView q, ConstView k, ConstView v, View out, View log_sum_exp,
             void* memory) {
  const std::vector<ConstView> views = {q, k, v, out};
  if (!takes(p, q.dtype) || !all_aligned(views)) return false;
  const Kind kind = kind_of(stream, false, p, q.dtype);
  const Workspace workspace(false, p, memory);
  const auto run_tern = [&] {
    tern_attention_forward(stream, p, q, k, v, out, log_sum_exp);
    return true;
  };
  const auto run_cudnn = [&] {
    if (!run_plan(stream, false, kind, p, q.dtype, views, workspace)) return false;
    heads_first(stream, p.query_offsets, p.sequences, workspace.by_token, log_sum_exp);
    clear_unused(stream, p.query_offsets, p.sequences, out);
    return true;
  };
  return choose(stream, kind, run_tern, run_cudnn);
}

bool backward(Stream stream, const AttentionParams& p, ConstView q, ConstView k, ConstView v, ConstView out,
              ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv, void* memory) {
  const std::vector<ConstView> views = {q, k, v, out, dout, dq, dk, dv};
  if (!takes(p, q.dtype) || !all_aligned(views)) return false;
  const Kind kind = kind_of(stream, true, p, q.dtype);
  const Workspace workspace(true, p, memory);
  const auto run_tern = [&] {
    tern_attention_backward(stream, p, q, k, v, out, dout, log_sum_exp, dq, dk, dv, View(), memory);
    return true;
  };
  const auto run_cudnn = [&] {
    tokens_first(stream, p.query_offsets, p.sequences, log_sum_exp, workspace.by_token);
    if (!run_plan(stream, true, kind, p, q.dtype, views, workspace)) return false;
    for (const View& view : {dq, dk, dv}) clear_unused(stream, p.query_offsets, p.sequences, view);
    return true;
  };
  return choose(stream, kind, run_tern, run_cudnn);
}

constexpr AttentionAlternative kCudnn = {
    [](Stream stream, const AttentionParams& p, DType dtype) { return workspace_bytes(stream, false, p, dtype); },
    forward,
    [](Stream stream, const AttentionParams& p, DType dtype) { return workspace_bytes(stream, true, p, dtype); },
    backward};

}  // namespace

void set_attention_autotune(bool on) {
  if (on) set_attention_alternative(&kCudnn);
  autotune_on = on;
}

std::string attention_choices() { return choices().text(); }

void restore_attention_choices(const std::string& text) {
  if (text.empty()) return;
  choices().restore(text);
  set_attention_alternative(&kCudnn);
}

}  // namespace tern::kernels::cuda

#else  // cuDNN's headers are a separate package

#include "tern/kernels/base/check.h"

namespace tern::kernels::cuda {

void set_attention_autotune(bool) {}
std::string attention_choices() { return {}; }
void restore_attention_choices(const std::string& text) {
  TERN_CHECK(text.empty(), "the recorded choices of attention need cuDNN, whose headers this build did not have");
}

}  // namespace tern::kernels::cuda

#endif
