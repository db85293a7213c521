#pragma once
// A graph of cuDNN's backend API: tensors, operations and the plan that runs them. Include it only after a check of
// __has_include(<cudnn.h>).

#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "tern/kernels/cuda/support/cudnn.h"

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
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// `pointers`: in the order of the graph's memory() and scalar() calls; scalars are read from the host immediately.
  void run(cudnnHandle_t handle, const std::vector<void*>& pointers, void* workspace) const;

 private:
  friend class CudnnGraph;
  explicit CudnnPlan(CudnnDescriptor plan) : plan_(std::move(plan)) {}
  CudnnDescriptor plan_;
  std::vector<int64_t> ids_;
  int64_t workspace_bytes_ = 0;
};

/// Builds a graph. All tensors have four dimensions: sequence, head, row, column. Functions that return a tensor add
/// the operation that computes it.
class CudnnGraph {
 public:
  using Numbers = std::array<int64_t, 4>;
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
  /// Exchanges rows and columns in the description; adds no operation.
  static Numbers exchanged(const Numbers& n) { return {n[0], n[1], n[3], n[2]}; }

  /// The first of cuDNN's suggestions that gives the same bits every time and needs at most this workspace; nullopt
  /// when there is none.
  std::optional<CudnnPlan> plan(cudnnHandle_t handle, int64_t max_workspace);

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

}  // namespace tern::kernels::cuda
