#pragma once
// Tensor: a cheap handle to shape, strides, dtype, device, storage and autograd record.
//
// Copying a Tensor copies the handle. Views (transpose, slice, ...) share storage and version counter. There is no
// global default device or dtype: factories take options whose defaults are float32 on the CPU.
//
// The methods are defined on the floors that they need: in core/tensor, core/autograd (gradients and hooks) and
// core/ops (conversions, views, in-place ops).
//
// Threads: different tensors may be used on different threads; one tensor must not be written while another thread uses
// it. Gradient mode, autocast and the default generator are per thread.

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tern/core/device/device.h"
#include "tern/core/memory/storage.h"
#include "tern/core/tensor/generator.h"
#include "tern/core/tensor/shape.h"
#include "tern/kernels/base/check.h"

namespace tern {

namespace detail {
class Node;
struct AutogradMeta;
struct TensorImpl;
}  // namespace detail

struct TensorOptions {
  DType dtype = DType::kFloat32;
  Device device = {};
  bool requires_grad = false;
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(std::shared_ptr<detail::TensorImpl> impl) : impl_(std::move(impl)) {}

  /// False for a default-constructed handle ("no tensor"): optional arguments and absent gradients.
  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const = delete;

  const Shape& shape() const;
  const Strides& strides() const;
  int dim() const { return shape().dims(); }
  int64_t size(int dim) const { return shape().size(dim); }
  int64_t numel() const { return shape().numel(); }
  int64_t nbytes() const { return numel() * size_of(dtype()); }
  DType dtype() const;
  Device device() const;
  TensorOptions options() const { return {dtype(), device(), false}; }
  bool is_contiguous() const;

  /// Address of the first element. The typed form throws Error when T is not the dtype or the tensor is on a GPU.
  void* raw_data() const;
  template <class T>
  T* data() const {
    check_data_access(dtype_of<T>());
    return static_cast<T*>(raw_data());
  }
  /// The kernels' view. An undefined tensor gives the absent view.
  kernels::View view() const;
  kernels::ConstView const_view() const { return view(); }
  const std::shared_ptr<Storage>& storage() const;
  int64_t storage_offset() const;

  /// The one element of a one-element tensor, converted to T (double, float, int64_t, bool). Waits for the device.
  template <class T>
  T item() const;
  /// All elements in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector() const;

  // Conversions: the tensor itself when nothing changes. Differentiable.
  Tensor to(DType dtype) const;
  /// Between host and device through pinned memory: a copy to a device is queued, one to the host waits for it.
  Tensor to(Device device) const;
  Tensor contiguous() const;
  Tensor clone() const;

  // Views. Differentiable; dimensions may be negative (from the end).
  /// One size may be -1. Copies only when the strides do not allow a view.
  Tensor reshape(const std::vector<int64_t>& sizes) const;
  Tensor reshape(std::initializer_list<int64_t> sizes) const { return reshape(std::vector<int64_t>(sizes)); }
  Tensor reshape(const Shape& shape) const { return reshape(shape.vec()); }
  Tensor flatten(int start = 0, int end = -1) const;
  Tensor transpose(int a, int b) const;
  Tensor t() const { return transpose(-2, -1); }
  Tensor permute(const std::vector<int>& order) const;
  Tensor squeeze(int dim) const;
  Tensor unsqueeze(int dim) const;
  /// Broadcasts without a copy; -1 keeps a size.
  Tensor expand(const std::vector<int64_t>& sizes) const;
  Tensor expand(std::initializer_list<int64_t> sizes) const { return expand(std::vector<int64_t>(sizes)); }
  Tensor expand(const Shape& shape) const { return expand(shape.vec()); }
  /// Elements begin, begin + step, ... < end of dimension dim; begin and end may be negative and are clamped (Python).
  Tensor slice(int dim, int64_t begin, int64_t end = INT64_MAX, int64_t step = 1) const;
  /// Element `index` of dimension dim, which disappears.
  Tensor select(int dim, int64_t index) const;
  Tensor operator[](int64_t index) const { return select(0, index); }
  // One op for all pieces, whose backward joins their gradients (a piece that is not used counts as zeros): cheaper
  // than a slice for each.
  /// Views of sizes[i] along dim, whose sum must be the dimension; or equal pieces.
  std::vector<Tensor> split(const std::vector<int64_t>& sizes, int dim = 0) const;
  std::vector<Tensor> chunk(int64_t pieces, int dim = 0) const;
  /// The elements along dim, which disappears.
  std::vector<Tensor> unbind(int dim = 0) const;

  // In place: the result replaces the contents and bumps the version. Differentiable on a tensor that is neither a view
  // nor a leaf; a leaf that needs a gradient may only be changed under NoGrad.
  Tensor& copy_(const Tensor& source);  // source broadcasts and converts
  Tensor& fill_(double value);
  Tensor& zero_() { return fill_(0); }
  Tensor& add_(const Tensor& other, double alpha = 1);
  Tensor& add_(double value);
  Tensor& sub_(const Tensor& other);
  Tensor& mul_(const Tensor& other);
  Tensor& mul_(double value);
  Tensor& div_(const Tensor& other);
  uint32_t version() const;
  void bump_version() const;

  // Autograd.
  bool requires_grad() const;
  /// For leaves of floating dtype. Returns the tensor, so that it can be chained.
  Tensor& set_requires_grad(bool value);
  bool is_leaf() const;
  /// Whether the gradient is zero in all but a few rows (Parameter::set_few_gradient_rows).
  bool has_few_gradient_rows() const;
  /// The gradient accumulated by backward(); undefined before. Meaningful on leaves and after retain_grad().
  Tensor grad() const;
  void set_grad(const Tensor& grad);
  void retain_grad();
  /// Shares storage, has no history.
  Tensor detach() const;
  /// Accumulates d(this)/d(leaf) into every leaf. `gradient` may be left out for a one-element tensor. With
  /// create_graph a leaf's grad() holds a graph that holds the leaf: set_grad({}) frees both (grad() in engine.h makes
  /// no such cycle).
  void backward(const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false) const;
  /// Runs on the gradient of this tensor before it is accumulated or passed on; may return a replacement (same shape)
  /// or an undefined tensor. The returned number removes it.
  int64_t register_hook(std::function<Tensor(const Tensor&)> hook);
  /// Leaves only: runs after the gradient was added to grad(). Data parallelism hangs on this one.
  int64_t register_post_accumulate_hook(std::function<void(const Tensor& leaf)> hook);
  void remove_hook(int64_t handle);
  /// The op that made this tensor; null for leaves.
  std::shared_ptr<detail::Node> grad_fn() const;

  /// "float32 [2, 3] on cpu".
  std::string describe() const;
  /// True when both handles name the same tensor.
  friend bool same(const Tensor& a, const Tensor& b) { return a.impl_ == b.impl_; }
  detail::TensorImpl* impl() const { return impl_.get(); }
  const std::shared_ptr<detail::TensorImpl>& shared_impl() const { return impl_; }

 private:
  void check_data_access(DType wanted) const;
  std::shared_ptr<detail::TensorImpl> impl_;
};

// Factories. Throw OutOfMemoryError, or Error on bad shapes.
Tensor empty(const Shape& shape, const TensorOptions& options = {});
Tensor empty_like(const Tensor& other);
/// On the CPU, in memory that devices copy from and to while the host goes on.
Tensor empty_pinned(const Shape& shape, DType dtype);
Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor zeros_like(const Tensor& other);
Tensor ones(const Shape& shape, const TensorOptions& options = {});
Tensor full(const Shape& shape, double value, const TensorOptions& options = {});
/// start, start + step, ... < end.
Tensor arange(double start, double end, double step = 1, const TensorOptions& options = {.dtype = DType::kInt64});
/// Uniform in [0, 1) and standard normal, from the generator's next draw: equal on every device.
Tensor rand(const Shape& shape, Generator& generator, const TensorOptions& options = {});
Tensor randn(const Shape& shape, Generator& generator, const TensorOptions& options = {});
/// Copies values; their number must be the shape's.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape,
                   const TensorOptions& options = {.dtype = dtype_of<T>()});
/// A one-dimensional tensor of the values: tensor({1., 2.}).
Tensor tensor(const std::vector<double>& values, const TensorOptions& options = {});
/// Wraps memory without a copy. It must stay valid until `release` runs; on the CPU only.
Tensor from_blob(void* data, const Shape& shape, DType dtype, std::function<void()> release = {});
/// A tensor over existing storage, checked to lie inside it.
Tensor from_storage(std::shared_ptr<Storage> storage, int64_t offset, const Shape& shape, const Strides& strides,
                    DType dtype);

/// Prints values as PyTorch does: edges only above 1,000 elements.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// A tensor and its name: parameters, buffers, the entries of a file.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// An ordered list of named tensors: what state_dict() returns and load_state_dict() takes.
using StateView = std::vector<NamedTensor>;
/// The entry of that name, or an undefined tensor.
Tensor find(const StateView& state, const std::string& name);

}  // namespace tern
