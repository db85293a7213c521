#pragma once
// A graph of cuDNN's backend API: tensors, operations and the plan that runs them. Include it only after a check of
// __has_include(<cudnn.h>).

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tern/kernels/cuda/support/cudnn.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels::cuda {

/// Owns a backend descriptor.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  cudnnBackendDescriptor_t get() const { return handle_.get(); }

  template <class T>
  void set(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, const T* values, int64_t count) {
    set_bytes(attribute, type, count, values);
  }
  template <class T>
  void set(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, const T& value) {
    set_bytes(attribute, type, 1, &value);
  }
  void finalize();
  /// Returns the status, for descriptors that cuDNN may reject.
  cudnnStatus_t try_finalize();

 private:
  void set_bytes(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, int64_t count,
                 const void* values);
  struct Destroy {
    void operator()(void* handle) const { cudnn().BackendDestroyDescriptor(handle); }
  };
  std::unique_ptr<void, Destroy> handle_;
};

/// A plan that has been built for a graph. Only one thread may run it at a time.
class CudnnPlan {
 public:
  /// Its place in cuDNN's list of suggestions.
  int64_t suggestion() const { return suggestion_; }
  /// `pointers`: in the order of the graph's memory() and scalar() calls; scalars are read from the host immediately.
  void run(cudnnHandle_t handle, const std::vector<void*>& pointers, void* workspace) const;

 private:
  friend class CudnnGraph;
  explicit CudnnPlan(CudnnDescriptor plan) : plan_(std::move(plan)) {}
  CudnnDescriptor plan_;
  std::vector<int64_t> ids_;
  int64_t suggestion_ = 0;
};

/// Which of cuDNN's suggestions become plans. Those that do not give the same bits every time never do.
struct CudnnLimits {
  int64_t workspace = 0;                              // in bytes
  std::vector<cudnnBackendNumericalNote_t> excluded;  // engines with one of these notes
};

/// Builds a graph. Attention's tensors have four dimensions: sequence, head, row, column; those of convolutions have
/// image, channel and two or three of space. Functions that return a tensor add the operation that computes it.
class CudnnGraph {
 public:
  using Numbers = std::vector<int64_t>;
  struct Tensor {
    cudnnBackendDescriptor_t descriptor = nullptr;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    Numbers dims = {}, strides = {};
    cudnnBackendDescriptor_t ragged = nullptr;
  };

  /// A tensor in the caller's memory, aligned to 16 bytes; `ragged`: the start of each sequence, in elements.
  Tensor memory(cudnnDataType_t type, const Numbers& dims, const Numbers& strides, const Tensor* ragged = nullptr);
  /// One number, read from host memory.
  Tensor scalar(cudnnDataType_t type);

  /// An elementwise operation that writes to `to` if given; otherwise to a virtual tensor of the largest input shape.
  Tensor pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> inputs, cudnnDataType_t result,
                   cudnnDataType_t compute, const Tensor* to = nullptr);
  /// The index of the elements of `like` along a dimension, int32.
  Tensor index(const Tensor& like, int64_t axis);
  /// Reduction over the last dimension, in fp32.
  Tensor reduce(cudnnReduceTensorOp_t op, const Tensor& x);
  /// a [.., m, k] times b [.., k, n]. Lengths: the part of m, n, k that each sequence uses; null: all.
  struct Lengths {
    const Tensor *m = nullptr, *n = nullptr, *k = nullptr;
  };
  Tensor matmul(const Tensor& a, const Tensor& b, const Lengths& lengths, const Tensor* to = nullptr);
  /// The same memory with rows and columns exchanged; a virtual tensor may change its type.
  Tensor transpose(const Tensor& x, cudnnDataType_t type);
  /// The window of a convolution: a number for each dimension of space.
  struct Window {
    Numbers stride, before, behind, dilation;  // before, behind: zeros around the image
  };
  /// What an operation computes: y of x and w, dx (in place of x) of w and y, or dw (in place of w) of x and y.
  enum class Pass : uint8_t { kForward, kInput, kWeight };
  /// A convolution with sums in fp32, which writes to the tensor that `pass` computes. w: [out, in / groups, space].
  void convolution(Pass pass, const Window& window, const Tensor& x, const Tensor& w, const Tensor& y);
  /// A tensor inside the graph of the shape and strides of `like`.
  Tensor inside_like(const Tensor& like, cudnnDataType_t type);
  /// Exchanges rows and columns in the description; adds no operation.
  static Numbers exchanged(const Numbers& n) { return {n[0], n[1], n[3], n[2]}; }

  /// The first of cuDNN's suggestions within the limits, from place `first` of its list; nullopt when there is none.
  std::optional<CudnnPlan> plan(cudnnHandle_t handle, const CudnnLimits& limits, int64_t first = 0);

 private:
  Tensor add_tensor(cudnnDataType_t type, const Numbers& dims, const Numbers& strides, bool inside, bool by_value,
                    cudnnBackendDescriptor_t ragged);
  Tensor inside(cudnnDataType_t type, const Numbers& dims);
  void add_pointwise(const CudnnDescriptor& mode, std::initializer_list<Tensor> inputs, const Tensor& y);
  CudnnDescriptor& keep(CudnnDescriptor descriptor);

  std::vector<std::unique_ptr<CudnnDescriptor>> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<int64_t> ids_;  // ids of the tensors in the caller's memory
  int64_t next_id_ = 1;
};

/// cuDNN on one device: the handle, which has one stream at a time, and the plans that were built with it. Several
/// threads may use it.
class CudnnDevice {
 public:
  /// Made at the first call on the device, which must be current; never destroyed, since the CUDA runtime may end
  /// before static objects do.
  static CudnnDevice& of(int index);
  explicit CudnnDevice(int) { TERN_CUDNN_CHECK(cudnn().Create(&handle_)); }

  /// The plan of this key, which begins with a number of its family; `build` makes it on first use. Null when there is
  /// none. Old plans are forgotten when there are too many.
  using Build = std::function<std::optional<CudnnPlan>(cudnnHandle_t)>;
  std::shared_ptr<const CudnnPlan> plan(const std::vector<int64_t>& key, const Build& build);
  void run(Stream stream, const CudnnPlan& plan, const std::vector<void*>& pointers, void* workspace);
  /// Returns body(handle), which has the stream; other threads wait.
  template <class Body>
  auto with(Stream stream, const Body& body) {
    const std::lock_guard lock(mutex_);
    TERN_CUDNN_CHECK(cudnn().SetStream(handle_, static_cast<cudaStream_t>(stream.handle)));
    return body(handle_);
  }

 private:
  std::mutex mutex_;
  cudnnHandle_t handle_ = nullptr;
  std::map<std::vector<int64_t>, std::shared_ptr<const CudnnPlan>> plans_;
};

}  // namespace tern::kernels::cuda
