#include "tern/kernels/cuda/cudnn/convolution.h"

#if __has_include(<cudnn.h>)

#include <algorithm>
#include <atomic>
#include <cmath>

#include "tern/kernels/convolution/columns.h"
#include "tern/kernels/cuda/cudnn/graph.h"
#include "tern/kernels/cuda/gemm/settings.h"
#include "tern/kernels/cuda/support/cudnn_info.h"
#include "tern/kernels/cuda/support/measured_choices.h"
#include "tern/kernels/cuda/support/timing.h"

namespace tern::kernels::cuda {
namespace {

using Pass = CudnnGraph::Pass;
using Numbers = CudnnGraph::Numbers;

constexpr int64_t kPlanFamily = 1;        // of CudnnDevice::plan
constexpr int64_t kPart = 256;            // alignment of the parts of a workspace
constexpr int64_t kWorkspace = 32 << 20;  // of cuDNN: constant, because it determines which plans there are
constexpr int64_t kMostSuggestions = 64;
constexpr int64_t kColumns = -1;  // the choice of columns

std::atomic<bool> autotune_on = false;

/// A kind of call: device (major, minor, multiprocessors), pass, dtypes of the images, of the result and of the bias
/// (-1: none), residual, activation, TF32, and the numbers of the shape.
constexpr size_t kKindSize = 10 + 4 + 6 * 3;
using Choices = MeasuredChoices<kKindSize>;
using Kind = Choices::Kind;
Choices& choices() {
  static Choices& instance = *new Choices("convolution", kColumns, kMostSuggestions);
  return instance;
}

cudnnDataType_t type_of(DType dtype) {
  return dtype == DType::kBFloat16  ? CUDNN_DATA_BFLOAT16
         : dtype == DType::kFloat16 ? CUDNN_DATA_HALF
                                    : CUDNN_DATA_FLOAT;
}

/// Zeros behind the image along dimension d, as many as before it if the result then has its size; -1 when it has that
/// with no number of zeros.
int64_t zeros_behind(const ConvolutionShape& s, size_t d) {
  const int64_t reach = (s.kernel[d] - 1) * s.dilation[d] + 1, before = s.in[d] + s.padding[d] - reach;
  const int64_t fewest = std::max<int64_t>((s.out[d] - 1) * s.stride[d] - before, 0);
  for (const int64_t behind : {s.padding[d], fewest})
    if (before + behind >= 0 && (before + behind) / s.stride[d] + 1 == s.out[d]) return behind;
  return -1;
}

/// True when cuDNN may compute the call, apart from its tensors.
bool takes(const ConvolutionShape& s, DType dtype) {
  if (dtype != DType::kFloat32 && !is_low_precision(dtype)) return false;
  if (s.batch * s.in_pixels() * s.out_pixels() * s.in_channels * s.out_channels == 0 || s.is_product()) return false;
  for (size_t d = 0; d < 3; ++d)
    if (zeros_behind(s, d) < 0) return false;
  return cudnn_info().found;
}

/// cuDNN's name of an activation; none for those that it lacks.
std::optional<cudnnPointwiseMode_t> mode_of(ImageActivation activation) {
  switch (activation) {
    case ImageActivation::kRelu:
      return CUDNN_POINTWISE_RELU_FWD;
    case ImageActivation::kSilu:
      return CUDNN_POINTWISE_SWISH_FWD;
    case ImageActivation::kGelu:
      return CUDNN_POINTWISE_GELU_FWD;
    default:
      return std::nullopt;
  }
}

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

/// A call for as many images as cuDNN takes at once.
struct Call {
  Pass pass;
  ConvolutionShape shape;
  DType dtype, result;                       // result: of a weight's gradient; dtype otherwise
  std::optional<DType> bias = std::nullopt;  // of the epilogue that the graph computes too
  bool residual = false;
  ImageActivation activation = ImageActivation::kNone;

  bool ends() const { return bias || residual || activation != ImageActivation::kNone; }
  Kind kind(const DeviceKind& device) const {
    Kind kind = {device.major,
                 device.minor,
                 device.multiprocessors,
                 static_cast<int64_t>(pass),
                 static_cast<int64_t>(dtype),
                 static_cast<int64_t>(result),
                 bias ? static_cast<int64_t>(*bias) : -1,
                 residual,
                 static_cast<int64_t>(activation),
                 dtype == DType::kFloat32 && tf32(),
                 shape.batch,
                 shape.in_channels,
                 shape.out_channels,
                 shape.groups};
    auto* to = kind.data() + 14;
    for (const auto* numbers : {&shape.in, &shape.out, &shape.kernel, &shape.stride, &shape.padding, &shape.dilation})
      to = std::copy(numbers->begin(), numbers->end(), to);
    return kind;
  }

  std::optional<CudnnPlan> build(cudnnHandle_t handle, int64_t first) const {
    CudnnGraph graph;
    const size_t skipped = plane() ? 1 : 0;  // dimensions
    const auto tensor = [&](DType type, int64_t n, int64_t channels, const std::array<int64_t, 3>& space) {
      Numbers dims = {n, channels}, strides(5 - skipped, 1);
      dims.insert(dims.end(), space.begin() + static_cast<int64_t>(skipped), space.end());
      int64_t stride = channels;
      for (size_t d = dims.size(); d-- > 2; stride *= dims[d]) strides[d] = stride;
      strides[0] = stride;
      return graph.memory(type_of(type), dims, strides);
    };
    const auto x = tensor(dtype, shape.batch, shape.in_channels, shape.in);
    const auto w = tensor(result, shape.out_channels, shape.group_in(), shape.kernel);
    const auto y = tensor(dtype, shape.batch, shape.out_channels, shape.out);
    CudnnGraph::Window window;
    for (size_t d = skipped; d < 3; ++d) {
      window.stride.push_back(shape.stride[d]);
      window.before.push_back(shape.padding[d]);
      window.behind.push_back(zeros_behind(shape, d));
      window.dilation.push_back(shape.dilation[d]);
    }
    auto z = ends() ? graph.inside_like(y, CUDNN_DATA_FLOAT) : y;
    graph.convolution(pass, window, x, w, z);
    const auto add = [&](const CudnnGraph::Tensor& term, bool last) {
      const auto sum = last ? y : graph.inside_like(y, CUDNN_DATA_FLOAT);
      z = graph.pointwise(CUDNN_POINTWISE_ADD, {z, term}, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, &sum);
    };
    const std::optional<cudnnPointwiseMode_t> mode = mode_of(activation);
    if (bias) add(tensor(*bias, 1, shape.out_channels, {1, 1, 1}), !residual && !mode);
    if (residual) add(tensor(dtype, shape.batch, shape.out_channels, shape.out), !mode);
    if (mode) graph.pointwise(*mode, {z}, y.type, CUDNN_DATA_FLOAT, &y);
    CudnnLimits limits{kWorkspace, {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}};
    if (dtype != DType::kFloat32)
      limits.excluded.push_back(CUDNN_NUMERICAL_NOTE_WINOGRAD);
    else if (!tf32())
      for (const auto note : {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, CUDNN_NUMERICAL_NOTE_TENSOR_CORE})
        limits.excluded.push_back(note);
    return graph.plan(handle, limits, first);
  }

  /// True when the dimension of depth is of no use.
  bool plane() const { return shape.in[0] == 1 && shape.out[0] == 1 && shape.kernel[0] == 1 && shape.padding[0] == 0; }
};

/// Null when cuDNN has no plan from that place of its suggestions.
std::shared_ptr<const CudnnPlan> plan_of(Stream stream, const Call& call, const Kind& kind, int64_t first) {
  std::vector<int64_t> key = {kPlanFamily, first};
  key.insert(key.end(), kind.begin(), kind.end());
  return CudnnDevice::of(stream.index).plan(key, [&](cudnnHandle_t handle) { return call.build(handle, first); });
}

/// Times cuDNN's plans and columns, and returns the choice.
template <class RunPlan>
int64_t measure(Stream stream, const Call& call, const Kind& kind, const RunPlan& run_plan,
                const std::function<void()>& columns) {
  int64_t best = kColumns;
  float best_time = time_of(stream, [&] {
    columns();
    return true;
  });
  for (int64_t first = 0; first <= kMostSuggestions; ++first) {
    const auto plan = plan_of(stream, call, kind, first);
    if (!plan) break;
    first = plan->suggestion();
    const float time = time_of(stream, [&] {
      run_plan(*plan);
      return true;
    });
    if (time >= best_time) continue;
    best = first;
    best_time = time;
  }
  choices().set(kind, best);
  return best;
}

/// Runs the call by the choice for its kind, which autotune makes first; false: columns must compute it.
template <class RunPlan>
bool run_chosen(Stream stream, const Call& call, const RunPlan& run_plan, const std::function<void()>& columns) {
  const Kind kind = call.kind(device_kind(stream.index));
  std::optional<int64_t> choice = choices().find(kind);
  if (!choice && autotune_on && !is_capturing(stream)) choice = measure(stream, call, kind, run_plan, columns);
  if (choice == kColumns) return false;
  const auto plan = plan_of(stream, call, kind, choice.value_or(0));
  if (!plan) return false;
  run_plan(*plan);
  return true;
}

/// One call of a kernel: its memory, and its parts of the batch.
class Convolution {
 public:
  Convolution(Stream stream, const ConvolutionShape& shape, DType dtype, void* workspace, int64_t max_elements)
      : stream_(stream), shape_(shape), dtype_(dtype), by_columns_(stream, shape, dtype), workspace_(workspace) {
    const int64_t image = std::max(shape.in_pixels() * shape.in_channels, shape.out_pixels() * shape.out_channels);
    images_ = std::min(shape.batch, max_elements / std::max<int64_t>(image, 1));
    const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(workspace));
    weight_ = static_cast<char*>(workspace) + (-address & (kPart - 1));
    memory_ = weight_ + std::max(by_columns_.weight_bytes(), by_columns_.channel_bytes());
  }
  static int64_t workspace_bytes(Stream stream, const ConvolutionShape& shape, DType dtype) {
    const ConvolutionByColumns columns(stream, shape, dtype);
    return kPart + std::max(columns.weight_bytes(), columns.channel_bytes()) + kWorkspace;
  }

  bool forward(ConstView x, ConstView weight, const ConvolutionEpilogue& epilogue, View y) {
    if (!can(x.data, y.data)) return false;
    const auto columns = [&] { by_columns_.forward(x, weight, epilogue, y, workspace_); };
    Call whole{Pass::kForward, shape_, dtype_, dtype_};
    if (epilogue.bias) whole.bias = epilogue.bias.dtype;
    whole.residual = bool(epilogue.residual);
    whole.activation = epilogue.activation;
    const bool fits = (epilogue.activation == ImageActivation::kNone || mode_of(epilogue.activation)) &&
                      is_aligned(epilogue.bias.data) && is_aligned(epilogue.residual.data);
    if (fits && whole.ends()) {
      if (each_part(whole, x.data, weight, y.data, epilogue, columns)) return true;
      // Columns were faster than the graph with its epilogue, and round once, which two passes do not.
      if (can_plan(whole)) return false;
    }
    const Call plain{Pass::kForward, shape_, dtype_, dtype_};
    if (!each_part(plain, x.data, weight, y.data, {}, columns)) return false;
    by_columns_.apply_epilogue(epilogue, y, weight_);
    return true;
  }

  bool backward_input(ConstView dy, ConstView weight, View dx) {
    if (!can(dx.data, dy.data)) return false;
    const auto columns = [&] { by_columns_.backward_input(dy, weight, dx, workspace_); };
    return each_part({Pass::kInput, shape_, dtype_, dtype_}, dx.data, weight, dy.data, {}, columns);
  }

  bool backward_weight(ConstView dy, ConstView x, View dweight) {
    if (!can(x.data, dy.data) || images_ < shape_.batch) return false;
    const auto columns = [&] { by_columns_.backward_weight(dy, x, dweight, workspace_); };
    // Sums of 16 bits only where cuDNN has no plan that keeps those of fp32.
    for (const DType sums : {by_columns_.sum_type(), dtype_}) {
      const Call call{Pass::kWeight, shape_, dtype_, sums};
      const bool direct = keeps_layout() && dweight.dtype == sums && is_aligned(dweight.data);
      const auto run = [&](const CudnnPlan& plan) {
        execute(plan, {at(x.data, 0), direct ? dweight.data : weight_, at(dy.data, 0)});
        if (!direct) by_columns_.copy_weight(dweight, by_columns_.weight_view(weight_, sums));
      };
      if (run_chosen(stream_, call, run, columns)) return true;
      if (sums == dtype_ || choices().find(call.kind(device_kind(stream_.index))) == kColumns) return false;
    }
    return false;
  }

 private:
  bool can(const void* x, const void* y) const {
    return takes(shape_, dtype_) && images_ > 0 && is_aligned(x) && is_aligned(y);
  }
  bool can_plan(Call call) const {
    call.shape.batch = images_;
    return plan_of(stream_, call, call.kind(device_kind(stream_.index)), 0) != nullptr;
  }
  /// True when the channels of a weight may be said to be last.
  bool keeps_layout() const { return shape_.kernel_size() == 1 || shape_.group_in() == 1; }
  void execute(const CudnnPlan& plan, const std::vector<void*>& pointers) const {
    CudnnDevice::of(stream_.index).run(stream_, plan, pointers, memory_);
  }
  /// x is written with Pass::kInput, y with kForward.
  bool each_part(Call call, const void* x, const ConstView& weight, const void* y, const ConvolutionEpilogue& epilogue,
                 const std::function<void()>& columns) {
    const int64_t size = size_of(dtype_), x_image = shape_.in_pixels() * shape_.in_channels * size,
                  y_image = shape_.out_pixels() * shape_.out_channels * size;
    const bool direct = keeps_layout() && is_aligned(weight.data);
    for (int64_t n = 0; n < shape_.batch; n += images_) {
      call.shape.batch = std::min(images_, shape_.batch - n);
      std::vector<void*> pointers = {at(x, n * x_image), direct ? at(weight.data, 0) : weight_, at(y, n * y_image)};
      if (epilogue.bias) pointers.push_back(at(epilogue.bias.data, 0));
      if (epilogue.residual) pointers.push_back(at(epilogue.residual.data, n * y_image));
      for (const void* p : pointers)
        if (!is_aligned(p)) return false;
      const auto run = [&](const CudnnPlan& plan) {  // columns, which are timed too, use the same workspace
        if (!direct) by_columns_.copy_weight(weight, by_columns_.weight_view(weight_, dtype_));
        execute(plan, pointers);
      };
      if (!run_chosen(stream_, call, run, columns)) return false;
    }
    return true;
  }
  static void* at(const void* data, int64_t bytes) { return static_cast<char*>(const_cast<void*>(data)) + bytes; }

  const Stream stream_;
  const ConvolutionShape shape_;
  const DType dtype_;
  ConvolutionByColumns by_columns_;
  void* const workspace_;
  int64_t images_ = 0;  // at a time
  char *weight_ = nullptr, *memory_ = nullptr;
};

}  // namespace

int64_t cudnn_convolution_workspace(Stream stream, const ConvolutionShape& shape, DType dtype) {
  return takes(shape, dtype) ? Convolution::workspace_bytes(stream, shape, dtype) : 0;
}
bool cudnn_convolution_forward(Stream stream, const ConvolutionShape& shape, ConstView x, ConstView weight,
                               const ConvolutionEpilogue& epilogue, View y, void* workspace, int64_t max_elements) {
  return Convolution(stream, shape, x.dtype, workspace, max_elements).forward(x, weight, epilogue, y);
}
bool cudnn_convolution_backward_input(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView weight,
                                      View dx, void* workspace, int64_t max_elements) {
  return Convolution(stream, shape, dx.dtype, workspace, max_elements).backward_input(dy, weight, dx);
}
bool cudnn_convolution_backward_weight(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView x,
                                       View dweight, void* workspace, int64_t max_elements) {
  return Convolution(stream, shape, x.dtype, workspace, max_elements).backward_weight(dy, x, dweight);
}

void set_convolution_autotune(bool on) { autotune_on = on; }
std::string convolution_choices() { return choices().text(); }
void restore_convolution_choices(const std::string& text) { choices().restore(text); }

}  // namespace tern::kernels::cuda

#else  // cuDNN's headers are a separate package

#include "tern/kernels/base/check.h"

namespace tern::kernels::cuda {

int64_t cudnn_convolution_workspace(Stream, const ConvolutionShape&, DType) { return 0; }
bool cudnn_convolution_forward(Stream, const ConvolutionShape&, ConstView, ConstView, const ConvolutionEpilogue&, View,
                               void*, int64_t) {
  return false;
}
bool cudnn_convolution_backward_input(Stream, const ConvolutionShape&, ConstView, ConstView, View, void*, int64_t) {
  return false;
}
bool cudnn_convolution_backward_weight(Stream, const ConvolutionShape&, ConstView, ConstView, View, void*, int64_t) {
  return false;
}

void set_convolution_autotune(bool) {}
std::string convolution_choices() { return {}; }
void restore_convolution_choices(const std::string& text) {
  TERN_CHECK(text.empty(), "the recorded choices of convolution need cuDNN, whose headers this build did not have");
}

}  // namespace tern::kernels::cuda

#endif
