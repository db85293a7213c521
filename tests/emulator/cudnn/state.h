#pragma once
// Declarations shared by the files of the stand-in cuDNN: descriptors and their attributes.

#include <cudnn.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tern/tests/emulator/cudnn/cudnn.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace tern::standin::dnn {

/// Keeps the reason for cudnn_message() and returns the status.
cudnnStatus_t reject(cudnnStatus_t status, const std::string& reason);
inline cudnnStatus_t bad(const std::string& reason) { return reject(CUDNN_STATUS_BAD_PARAM, reason); }
/// What set_cudnn_refuses() said.
CudnnRefuses refuses();

inline cudaDataType_t cuda_type(cudnnDataType_t type) {
  return type == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF
         : type == CUDNN_DATA_HALF   ? CUDA_R_16F
         : type == CUDNN_DATA_INT32  ? CUDA_R_32I
         : type == CUDNN_DATA_INT64  ? CUDA_R_64I
                                     : CUDA_R_32F;
}

struct Descriptor {
  struct Value {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> bytes;
  };
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  int engine = 0;  // for configurations and plans
  std::map<int, Value> values;
  std::shared_ptr<std::vector<std::shared_ptr<Descriptor>>> uses =
      std::make_shared<std::vector<std::shared_ptr<Descriptor>>>();  // descriptors set as attributes, kept alive

  bool has(int attribute) const { return values.count(attribute) != 0; }
  template <class T>
  std::vector<T> list(int attribute) const {
    const Value& value = values.at(attribute);
    std::vector<T> result(static_cast<size_t>(value.count));
    std::memcpy(result.data(), value.bytes.data(), value.bytes.size());
    return result;
  }
  template <class T>
  T get(int attribute) const {
    T value = {};
    std::memcpy(&value, values.at(attribute).bytes.data(), sizeof(T));
    return value;
  }
  /// The descriptor in an attribute; null if it is not set.
  const Descriptor* link(int attribute) const {
    return has(attribute) ? static_cast<const Descriptor*>(get<void*>(attribute)) : nullptr;
  }
};

/// The bits of a number in the images of the graph's convolution; 0 without one.
int convolution_bits(const Descriptor& graph);
/// The graph of a plan: values copied for a queued execution.
using Pointers = std::map<int64_t, void*>;                               // by unique id
using Scalars = std::map<int64_t, float>;                                // of tensors by value
std::string check_graph(const Descriptor& graph, CudnnRefuses refuses);  // "" or why it is not a supported graph
/// Runs the operations in order.
void compute(const Descriptor& graph, const Pointers& pointers, const Scalars& scalars);
/// Unique ids of the graph's external tensors: in memory, and by value.
void outside(const Descriptor& graph, std::vector<int64_t>& in_memory, std::vector<int64_t>& by_value);

}  // namespace tern::standin::dnn

/// Every function can have an injected error.
#define STANDIN_FAULT(name)                                   \
  if (const int fault = tern::standin::injected_fault(#name)) \
  return tern::standin::dnn::reject(static_cast<cudnnStatus_t>(fault), "injected")
