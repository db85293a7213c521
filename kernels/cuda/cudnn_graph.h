#pragma once
// A graph of cuDNN's backend API: tensors, operations and the plan that runs them. Only files that ask
// __has_include(<cudnn.h>) before include this.

#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "tern/kernels/cuda/support/cudnn.h"

namespace tern::kernels::cuda {

/// Owner of a backend descriptor.
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
  /// The status, for what cuDNN may refuse.
  cudnnStatus_t try_finalize();

 private:
  void set_bytes(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, int64_t count,
                 const void* values);
  struct Destroy {
    void operator()(void* handle) const { cudnn().BackendDestroyDescriptor(handle); }
  };
  std::unique_ptr<void, Destroy> handle_;
};

/// A plan that has been built for a graph. Runs on one thread at a time.
class CudnnPlan {
 public:
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// `pointers`: in the order of the graph's memory() and scalar() calls; scalars are read from the host at once.
  void run(cudnnHandle_t handle, const std::vector<void*>& pointers, void* workspace) const;

 private:
  friend class CudnnGraph;
  explicit CudnnPlan(CudnnDescriptor plan) : plan_(std::move(plan)) {}
  CudnnDescriptor plan_;
  std::vector<int64_t> ids_;
  int64_t workspace_bytes_ = 0;
};

/// Builds a graph. All tensors have four dimensions: sequence, head, row, column. Functions that return a tensor add
/// the operation that makes it.
class CudnnGraph {
 public:
  using Numbers = std::array<int64_t, 4>;
  struct Tensor {
    cudnnBackendDescriptor_t descriptor = nullptr;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    Numbers dims = {}, strides = {};
    cudnnBackendDescriptor_t ragged = nullptr;
  };

  /// In the caller's memory, aligned to 16 bytes; `ragged`: where each sequence begins, in elements.
  Tensor memory(cudnnDataType_t type, const Numbers& dims, const Numbers& strides, const Tensor* ragged = nullptr);
  /// One number, read on the host.
  Tensor scalar(cudnnDataType_t type);

  /// Elementwise; `to` given: written there. Without, the result stays inside, of the largest of the shapes.
  Tensor pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> inputs, cudnnDataType_t result,
                   cudnnDataType_t compute, const Tensor* to = nullptr);
  /// The index of the elements of `like` along a dimension, int32.
  Tensor index(const Tensor& like, int64_t axis);
  /// Over the last dimension, fp32.
  Tensor reduce(cudnnReduceTensorOp_t op, const Tensor& x);
  /// a [.., m, k] times b [.., k, n]. Lengths: how many of m, n, k each sequence has; null: all.
  struct Lengths {
    const Tensor *m = nullptr, *n = nullptr, *k = nullptr;
  };
  Tensor matmul(const Tensor& a, const Tensor& b, const Lengths& lengths, const Tensor* to = nullptr);
  /// The same memory with rows and columns exchanged, in another type if it is inside the graph.
  Tensor transpose(const Tensor& x, cudnnDataType_t type);
  /// The tensor seen with rows and columns exchanged: another description, no operation.
  static Numbers exchanged(const Numbers& n) { return {n[0], n[1], n[3], n[2]}; }

  /// The first of cuDNN's suggestions that gives the same bits every time and needs at most so much workspace; none
  /// when there is none.
  std::optional<CudnnPlan> plan(cudnnHandle_t handle, int64_t most_workspace);

 private:
  Tensor add_tensor(cudnnDataType_t type, const Numbers& dims, const Numbers& strides, bool inside, bool by_value,
                    cudnnBackendDescriptor_t ragged);
  Tensor inside(cudnnDataType_t type, const Numbers& dims);
  void add_pointwise(const CudnnDescriptor& mode, std::initializer_list<Tensor> inputs, const Tensor& y);
  CudnnDescriptor& keep(CudnnDescriptor descriptor);

  std::vector<std::unique_ptr<CudnnDescriptor>> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<int64_t> ids_;  // of the tensors outside
  int64_t next_id_ = 1;
};

}  // namespace tern::kernels::cuda
