#pragma once
// Parameter: a named leaf tensor that belongs to an owner (a Module); loading of a StateView.

#include <functional>
#include <memory>
#include <string>

#include "tern/core/tensor.h"
#include "tern/core/tensor/generator.h"

namespace tern {

class Parameter;

/// How a new parameter is filled (under NoGrad). Initialisers are in nn/init.h.
using Initializer = std::function<void(Tensor&, Generator&)>;

/// What registers parameters: nn::Module is one.
class ParameterOwner {
 public:
  virtual ~ParameterOwner() = default;
  /// Called by Parameter's constructors. Throws Error on a duplicate name.
  virtual void add_parameter(Parameter& parameter) = 0;
  virtual void add_buffer(const std::string& name, const Tensor& buffer) = 0;
  virtual TensorOptions parameter_options() const = 0;
  virtual Generator& parameter_generator() = 0;
  /// Full name of a member: "encoder.layer.0.weight".
  virtual std::string qualified_name(const std::string& name) const = 0;
};

/// A request to share another parameter's tensor (tied weights): Parameter(this, "weight", share(embedding.weight())).
struct Shared {
  const Parameter& source;
};
inline Shared share(const Parameter& source) { return {source}; }

/// A leaf tensor that requires a gradient. It is written through copy_ and not re-seated, so every handle on it stays
/// true; during nn::functional_call alone it is another tensor. Converts to const Tensor&.
class Parameter {
 public:
  /// Zeros unless an initialiser is given; dtype, device and generator are the owner's.
  Parameter(ParameterOwner* owner, const std::string& name, const Shape& shape, const Initializer& initializer = {});
  /// Shares the source's tensor: one entry in parameters(), either name accepted when loading, the first written.
  Parameter(ParameterOwner* owner, const std::string& name, const Shared& shared);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const { return name_; }
  const Tensor& tensor() const { return *tensor_; }
  operator const Tensor&() const { return *tensor_; }  // NOLINT(google-explicit-constructor): a parameter is a tensor
  /// What tensor() refers to: the owner may replace it for a time.
  const std::shared_ptr<Tensor>& handle() const { return tensor_; }
  const Shape& shape() const { return tensor_->shape(); }
  Tensor grad() const { return tensor_->grad(); }
  bool is_shared() const { return shared_; }
  /// Says that the gradient of a step is zero in all but a few rows, as that of an embedding is. It holds for every
  /// handle on the tensor; data-parallel ranks on the CPU then exchange those rows alone. Wrong, it costs time and no
  /// bit.
  void set_few_gradient_rows();
  /// Replaces the values; shapes must be equal, dtype and device are converted.
  void copy_(const Tensor& source);

 private:
  std::string name_;
  std::shared_ptr<Tensor> tensor_;
  bool shared_ = false;
};

struct LoadOptions {
  bool strict = true;  // missing or unexpected names are errors
};
/// Copies `source` into `target` by name. All missing, unexpected and mis-shaped entries are listed in one Error, and
/// nothing is written then. dtypes are converted.
void load_state(const StateView& target, const StateView& source, const LoadOptions& options = {});

}  // namespace tern
