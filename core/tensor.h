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
#include <type_traits>
#include <variant>
#include <vector>

#include "tern/core/device/device.h"
#include "tern/core/memory/storage.h"
#include "tern/core/tensor/generator.h"
#include "tern/core/tensor/shape.h"
#include "tern/kernels/base/check.h"

namespace tern {

class TensorIndex;
enum class ScatterReduction : uint8_t;

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

/// [[nodiscard]]: x.to(float16) leaves x as it is, and its result is all it does. Ops that write end in _ and return a
/// reference.
class [[nodiscard]] Tensor {
 public:
  Tensor() = default;
  explicit Tensor(std::shared_ptr<detail::TensorImpl> impl) : impl_(std::move(impl)) {}
  explicit Tensor(std::nullptr_t) = delete;  // Tensor(0) is no number: full({}, 0)
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  ~Tensor() = default;
  // An assignment gives a handle another tensor. x[0] = y would give one to a handle that is gone at once, and write
  // nothing, so that it does not compile: x[0].copy_(y) and x.index_put_({0}, y) write, and x[0] += y does.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;

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
  /// [batch, channels, spatial...] with the channels last in memory: strides of [batch, spatial..., channels]. Results
  /// of convolutions lie so, and results of element-wise ops on such a tensor do too; shapes do not show it.
  Tensor channels_last() const;
  bool is_channels_last() const;

  // Views. Differentiable; dimensions may be negative (from the end).
  /// One size may be -1. Copies only when the strides do not allow a view.
  Tensor reshape(const std::vector<int64_t>& sizes) const;
  Tensor reshape(std::initializer_list<int64_t> sizes) const { return reshape(std::vector<int64_t>(sizes)); }
  Tensor reshape(const Shape& shape) const { return reshape(shape.vec()); }
  Tensor flatten(int start = 0, int end = -1) const;
  Tensor transpose(int a, int b) const;
  Tensor t() const { return transpose(-2, -1); }
  Tensor permute(const std::vector<int>& order) const;
  /// Moves dimensions source[i] to places destination[i]; the others keep their order.
  Tensor movedim(const std::vector<int>& source, const std::vector<int>& destination) const;
  Tensor movedim(int source, int destination) const { return movedim(std::vector{source}, std::vector{destination}); }
  /// The same memory as elements of another dtype of the same size, such as int32 for float32: the bits stay. No
  /// gradient. Not to bool, whose bytes must be 0 or 1: compare with 0 instead.
  Tensor view(DType dtype) const;
  /// Replaces a dimension by several, whose sizes have its size as product; one may be -1.
  Tensor unflatten(int dim, const std::vector<int64_t>& sizes) const;
  /// Drops a dimension of size 1, those of the list, or all; a dimension of another size stays.
  Tensor squeeze(int dim) const;
  Tensor squeeze(const std::vector<int>& dims) const;
  Tensor squeeze() const;
  Tensor unsqueeze(int dim) const;
  /// Broadcasts without a copy; -1 keeps a size.
  Tensor expand(const std::vector<int64_t>& sizes) const;
  Tensor expand(std::initializer_list<int64_t> sizes) const { return expand(std::vector<int64_t>(sizes)); }
  Tensor expand(const Shape& shape) const { return expand(shape.vec()); }
  /// Elements begin, begin + step, ... < end of dimension dim; begin and end may be negative and are clamped (Python).
  Tensor slice(int dim, int64_t begin, int64_t end = INT64_MAX, int64_t step = 1) const;
  /// Elements start ... start + length - 1 of dimension dim; start may be negative (from the end).
  Tensor narrow(int dim, int64_t start, int64_t length) const;
  /// The elements [..., i, ..., i + offset, ...] of dimensions dim1 and dim2, which disappear, as a new last dimension;
  /// with a negative offset [..., i - offset, ..., i, ...].
  Tensor diagonal(int64_t offset = 0, int dim1 = 0, int dim2 = 1) const;
  /// Element `index` of dimension dim, which disappears.
  Tensor select(int dim, int64_t index) const;
  Tensor operator[](int64_t index) const { return select(0, index); }
  /// Neither a fraction, which would be cut off, nor a bool, which in Python is a mask.
  template <class T>
  requires std::is_floating_point_v<T> || std::is_same_v<T, bool> Tensor operator[](T) const = delete;
  // One op for all pieces, whose backward joins their gradients (a piece that is not used counts as zeros): cheaper
  // than a slice for each.
  /// Views of sizes[i] along dim, whose sum must be the dimension; or of one size, where the last may be smaller.
  std::vector<Tensor> split(const std::vector<int64_t>& sizes, int dim = 0) const;
  std::vector<Tensor> split(std::initializer_list<int64_t> sizes, int dim = 0) const {
    return split(std::vector<int64_t>(sizes), dim);
  }
  std::vector<Tensor> split(int64_t size, int dim = 0) const;
  /// At most `pieces` views of equal size, rounded up; the last may be smaller (PyTorch's rule: 5 elements in 4 pieces
  /// are 2, 2 and 1). tensor_split gives exactly `pieces`, of which the first are larger by one; or it splits before
  /// each of the indices, which are clamped as in slice.
  std::vector<Tensor> chunk(int64_t pieces, int dim = 0) const;
  std::vector<Tensor> tensor_split(int64_t pieces, int dim = 0) const;
  std::vector<Tensor> tensor_split(const std::vector<int64_t>& indices, int dim = 0) const;
  std::vector<Tensor> tensor_split(std::initializer_list<int64_t> indices, int dim = 0) const {
    return tensor_split(std::vector<int64_t>(indices), dim);
  }
  /// The elements along dim, which disappears.
  std::vector<Tensor> unbind(int dim = 0) const;

  /// x[indices] of Python, by PyTorch's rules: x.index({0, Slice{1, 3}, rows, NewAxis{}}). See TensorIndex, below. With
  /// numbers and slices alone it is a view, otherwise a copy.
  Tensor index(const std::vector<TensorIndex>& indices) const;

  // In place: the result replaces the contents and bumps the version. Differentiable on a tensor that is neither a view
  // nor a leaf; a leaf that needs a gradient may only be changed under NoGrad.
  Tensor& copy_(const Tensor& source);  // source broadcasts and converts
  Tensor& fill_(double value);
  Tensor& zero_() { return fill_(0); }
  Tensor& add_(const Tensor& other, double alpha = 1);
  Tensor& add_(double value);
  Tensor& sub_(const Tensor& other);
  Tensor& sub_(double value);
  Tensor& mul_(const Tensor& other);
  Tensor& mul_(double value);
  Tensor& div_(const Tensor& other);
  Tensor& div_(double value);
  // What the op without _ makes of the tensor, in its shape and dtype.
  Tensor& neg_();
  Tensor& abs_();
  Tensor& exp_();
  Tensor& expm1_();
  Tensor& log_();
  Tensor& log1p_();
  Tensor& erf_();
  Tensor& sqrt_();
  Tensor& rsqrt_();
  Tensor& square_();
  Tensor& reciprocal_();
  Tensor& sign_();
  Tensor& floor_();
  Tensor& ceil_();
  Tensor& trunc_();
  Tensor& round_();
  Tensor& sin_();
  Tensor& cos_();
  Tensor& sigmoid_();
  Tensor& tanh_();
  Tensor& relu_();
  Tensor& leaky_relu_(double slope = 0.01);
  Tensor& clamp_(double low, double high);
  Tensor& clamp_(const Tensor& low, const Tensor& high);
  Tensor& nan_to_num_(double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {});
  Tensor& pow_(double exponent);
  Tensor& pow_(const Tensor& exponent);
  Tensor& remainder_(const Tensor& other);
  Tensor& fmod_(const Tensor& other);
  Tensor& floor_divide_(const Tensor& other);
  Tensor& lerp_(const Tensor& end, double weight);
  Tensor& lerp_(const Tensor& end, const Tensor& weight);
  Tensor& addcmul_(const Tensor& a, const Tensor& b, double value = 1);
  Tensor& addcdiv_(const Tensor& a, const Tensor& b, double value = 1);
  Tensor& tril_(int64_t diagonal = 0);
  Tensor& triu_(int64_t diagonal = 0);
  Tensor& cumsum_(int dim);
  Tensor& cumprod_(int dim);
  Tensor& masked_fill_(const Tensor& mask, double value);
  /// x[indices] = values, which broadcast and convert. Of several values for one element the last is taken, in the
  /// row-major order of the indices; with accumulate all are added to it. core/ops/indexing/index.h has the op that
  /// returns a new tensor, and those whose in-place forms follow.
  Tensor& index_put_(const std::vector<TensorIndex>& indices, const Tensor& values, bool accumulate = false);
  Tensor& index_put_(const std::vector<TensorIndex>& indices, double value);
  Tensor& index_fill_(int dim, const Tensor& index, double value);
  Tensor& index_copy_(int dim, const Tensor& index, const Tensor& source);
  Tensor& index_add_(int dim, const Tensor& index, const Tensor& source, double alpha = 1);
  Tensor& scatter_(int dim, const Tensor& index, const Tensor& source);
  Tensor& scatter_(int dim, const Tensor& index, double value);
  Tensor& scatter_add_(int dim, const Tensor& index, const Tensor& source);
  Tensor& scatter_reduce_(int dim, const Tensor& index, const Tensor& source, ScatterReduction reduction,
                          bool include_self = true);
  Tensor& put_(const Tensor& index, const Tensor& source, bool accumulate = false);
  Tensor& masked_scatter_(const Tensor& mask, const Tensor& source);
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

/// Elements begin, begin + step, ... < end, as Tensor::slice takes them.
struct Slice {
  int64_t begin = 0, end = INT64_MAX, step = 1;
};
/// All dimensions that the other entries do not name.
struct Ellipsis {};
/// A new dimension of size 1.
struct NewAxis {};

/// One entry of Tensor::index: a number, which drops a dimension; a Slice; an integer tensor, whose elements may be
/// negative (from the end); a bool tensor, which takes as many dimensions as it has and stands for the indices of its
/// true elements; NewAxis; or once Ellipsis. Dimensions without an entry are taken whole. Tensors broadcast to a common
/// shape, which replaces the dimensions they index: at their place, or in front if other entries than numbers lie
/// between them.
class TensorIndex {
 public:
  using Value = std::variant<int64_t, Slice, Tensor, Ellipsis, NewAxis>;
  // Not explicit, so that a list of entries is written in braces. A bool is no entry.
  template <class T>
  requires std::is_constructible_v<Value, T> &&
      (!std::is_same_v<std::decay_t<T>, bool>)TensorIndex(const T& value)  // NOLINT(google-explicit-constructor)
      : value_(value) {}
  const Value& value() const { return value_; }

 private:
  Value value_;
};

// Factories. Throw OutOfMemoryError, or Error on bad shapes. Results are contiguous, but zeros_like, full_like and
// ones_like have their channels last in memory where `other` has (Tensor::channels_last).
Tensor empty(const Shape& shape, const TensorOptions& options = {});
Tensor empty_like(const Tensor& other);
/// On the CPU, in memory that devices copy from and to while the host goes on.
Tensor empty_pinned(const Shape& shape, DType dtype);
Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor zeros_like(const Tensor& other);
Tensor ones(const Shape& shape, const TensorOptions& options = {});
Tensor full(const Shape& shape, double value, const TensorOptions& options = {});
Tensor full_like(const Tensor& other, double value);
Tensor ones_like(const Tensor& other);
/// Ones on the main diagonal of a matrix of zeros.
Tensor eye(int64_t rows, int64_t cols, const TensorOptions& options = {});
Tensor eye(int64_t size, const TensorOptions& options = {});
/// `steps` numbers from start to end, both of which are taken exactly, in equal distances.
Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options = {});
/// start, start + step, ... < end. An integer dtype, which is the default, takes a whole start and step only (Error).
Tensor arange(double start, double end, double step = 1, const TensorOptions& options = {.dtype = DType::kInt64});
/// Uniform in [0, 1) and standard normal, from the generator's next draw: equal on every device.
Tensor rand(const Shape& shape, Generator& generator, const TensorOptions& options = {});
Tensor randn(const Shape& shape, Generator& generator, const TensorOptions& options = {});
Tensor rand_like(const Tensor& other, Generator& generator);
Tensor randn_like(const Tensor& other, Generator& generator);
/// Copies values; their number must be the shape's.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape,
                   const TensorOptions& options = {.dtype = dtype_of<T>()});
/// A one-dimensional tensor of the values: tensor({1., 2.}).
Tensor tensor(const std::vector<double>& values, const TensorOptions& options = {});
/// Of rows: from_vector<float>({1, 2, 3, 4}, {2, 2}).
template <class T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> rows, const TensorOptions& options = {}) = delete;
/// Wraps memory of the host, or of a device, without a copy. It must stay valid until `release` runs, once, on the
/// thread where the last tensor on it goes; work that is queued on a device may then still use the memory, and ordering
/// it is the owner's task. `data` is the address of the first element, a multiple of its size. Error: the pointer is
/// null and the shape not empty, the device cannot be used; `release` then does not run.
Tensor from_blob(void* data, const Shape& shape, DType dtype, std::function<void()> release = {}, Device device = cpu);
/// With the distances of neighbours along each dimension, in elements: 0 repeats one, negative ones are an Error.
Tensor from_blob(void* data, const Shape& shape, const std::vector<int64_t>& strides, DType dtype,
                 std::function<void()> release = {}, Device device = cpu);
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
/// The tensors without their names, for grad(loss, tensors_of(net.parameters())).
std::vector<Tensor> tensors_of(const StateView& state);

}  // namespace tern
