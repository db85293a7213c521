#include "tern/optim/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>
#include <vector>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/optim/optimizer.h"

namespace tern::optim {
namespace {

constexpr const char* kLbfgs = "lbfgs";
constexpr double kDecrease = 1e-4, kCurvature = 0.9;  // c1 and c2 of the strong Wolfe conditions
constexpr double kLeastCurvature = 1e-10;             // of a pair of changes that is kept

double dot_product(const Tensor& a, const Tensor& b) { return sum(a * b).item<double>(); }
double largest(const Tensor& x) { return x.numel() == 0 ? 0 : max(abs(x)).item<double>(); }

/// The minimum within [low, high] of the cubic through two points with their slopes, or the middle if it has none.
double cubic_minimum(double x1, double f1, double g1, double x2, double f2, double g2, double low, double high) {
  const double d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2), square = d1 * d1 - g1 * g2;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double minimum = x1 <= x2 ? x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
                                  : x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2));
  return std::isfinite(minimum) ? std::clamp(minimum, low, high) : (low + high) / 2;
}

/// A point at which the search is too far: also where the loss is not finite.
bool is_too_high(double loss, double bound) { return !(loss <= bound); }

}  // namespace

LBFGS::LBFGS(const std::vector<NamedTensor>& parameters, const LBFGSOptions& options)
    : options_(options), parameters_(parameters) {
  detail::check_not_negative(kLbfgs, "lr", options.lr);
  detail::check_not_negative(kLbfgs, "tolerance_grad", options.tolerance_grad);
  detail::check_not_negative(kLbfgs, "tolerance_change", options.tolerance_change);
  TERN_CHECK(options.max_iter >= 1 && options.history_size >= 1 && options.max_eval.value_or(1) >= 1, kLbfgs,
             ": max_iter, max_eval and history_size must be at least 1, got ", options.max_iter, ", ",
             options.max_eval.value_or(1), " and ", options.history_size);
  TERN_CHECK(!parameters.empty(), kLbfgs, ": there are no parameters");
  std::unordered_set<const tern::detail::TensorImpl*> tensors;
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : parameters) {
    TERN_CHECK(tensor.defined(), kLbfgs, ": parameter '", name, "' is an undefined tensor");
    TERN_CHECK(is_floating(tensor.dtype()) && tensor.is_leaf() && tensor.is_contiguous(), kLbfgs, ": parameter '", name,
               "' must be a contiguous float32 or float64 leaf tensor, got ", tensor.describe());
    TERN_CHECK(tensors.insert(tensor.impl()).second, kLbfgs, ": parameter '", name, "' is given twice");
    TERN_CHECK(names.insert(name).second, kLbfgs, ": the name '", name, "' is given twice");
    size_ += tensor.numel();
  }
  follow_weights();
}

/// Module::to may have converted the weights since the last step: what is kept of the past follows them.
void LBFGS::follow_weights() {
  const NoGrad off;
  const Device device = parameters_.front().tensor.device();
  dtype_ = float32;
  for (const auto& [name, tensor] : parameters_) {
    TERN_CHECK(!is_low_precision(tensor.dtype()), kLbfgs, ": parameter '", name,
               "' must be a contiguous float32 or float64 leaf tensor, got ", tensor.describe());
    TERN_CHECK(tensor.device() == device, kLbfgs, ": all parameters must be on one device, but '", name, "' is on ",
               tensor.device(), " and the first on ", device);
    if (tensor.dtype() == float64) dtype_ = float64;
  }
  TERN_CHECK(!direction_.defined() || direction_.device() == device, kLbfgs, ": parameter '", parameters_.front().name,
             "' is now on ", device, ", but the state is on ", direction_.device(),
             "; after Module::to(device) make a new optimizer, and load this one's state_dict() into it");
  for (Tensor* kept : {&direction_, &previous_gradient_})
    if (kept->defined()) *kept = kept->to(dtype_);
  for (std::vector<Tensor>* changes : {&gradient_changes_, &parameter_changes_})
    for (Tensor& change : *changes) change = change.to(dtype_);
}

void LBFGS::set_lr(double lr) {
  detail::check_not_negative(kLbfgs, "lr", lr);
  options_.lr = lr;
}

void LBFGS::zero_grad() {
  for (NamedTensor& parameter : parameters_) parameter.tensor.set_grad({});
}

Tensor LBFGS::flat_gradient() const {
  std::vector<Tensor> pieces;
  for (const auto& [name, tensor] : parameters_) {
    const Tensor gradient = tensor.grad();
    pieces.push_back((gradient.defined() ? gradient.detach() : zeros_like(tensor.detach())).flatten().to(dtype_));
  }
  return pieces.size() == 1 ? pieces[0].clone() : cat(pieces);
}

/// The parameters become the origin plus length times the direction.
void LBFGS::move_to(const std::vector<Tensor>& origin, double length) {
  int64_t begin = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor weight = parameters_[i].tensor.detach();
    const Tensor piece = direction_.narrow(0, begin, weight.numel()).reshape(weight.shape());
    weight.copy_(add(origin[i], piece.to(weight.dtype()) * length));
    begin += weight.numel();
  }
}

/// Calls the closure, with gradients on, and returns the loss as a number.
double LBFGS::evaluate(const std::function<Tensor()>& closure, Tensor* loss) {
  const GradMode on(true);
  const Tensor value = closure();
  TERN_CHECK(value.defined() && value.numel() == 1, kLbfgs, ": the closure must return the loss, one element, got ",
             value.defined() ? value.describe() : "an undefined tensor");
  ++evaluations_;
  if (loss) *loss = value.detach();
  return value.item<double>();
}

/// Minus the gradient times the approximate inverse Hessian, by the two loops of Nocedal and Wright's algorithm 7.4.
void LBFGS::update_direction(const Tensor& gradient) {
  if (iterations_ == 1) {
    direction_ = neg(gradient);
    return;
  }
  const Tensor gradient_change = gradient - previous_gradient_, parameter_change = direction_ * length_;
  const double product = dot_product(gradient_change, parameter_change);
  if (product > kLeastCurvature) {
    if (static_cast<int64_t>(gradient_changes_.size()) == options_.history_size) {
      gradient_changes_.erase(gradient_changes_.begin());
      parameter_changes_.erase(parameter_changes_.begin());
      inverse_products_.erase(inverse_products_.begin());
    }
    gradient_changes_.push_back(gradient_change);
    parameter_changes_.push_back(parameter_change);
    inverse_products_.push_back(1 / product);
    scale_ = product / dot_product(gradient_change, gradient_change);
  }
  const size_t count = gradient_changes_.size();
  std::vector<Tensor> factors(count);  // stay on the device
  Tensor d = neg(gradient);
  for (size_t i = count; i-- > 0;) {
    factors[i] = sum(parameter_changes_[i] * d) * inverse_products_[i];
    d = d - gradient_changes_[i] * factors[i];
  }
  d = d * scale_;
  for (size_t i = 0; i < count; ++i) {
    const Tensor factor = sum(gradient_changes_[i] * d) * inverse_products_[i];
    d = d + parameter_changes_[i] * (factors[i] - factor);
  }
  direction_ = d;
}

Tensor LBFGS::step(const std::function<Tensor()>& closure) {
  const NoGrad off;
  follow_weights();
  const int64_t most = options_.max_eval.value_or(options_.max_iter + options_.max_iter / 4), before = evaluations_;
  Tensor first_loss;
  double loss = evaluate(closure, &first_loss);
  Tensor gradient = flat_gradient();
  double steepest = largest(gradient);
  for (int64_t i = 1;
       i <= options_.max_iter && !(steepest <= options_.tolerance_grad) && (i == 1 || evaluations_ - before < most);
       ++i) {
    TERN_CHECK(std::isfinite(loss) && std::isfinite(steepest), kLbfgs, ": the loss is ", loss,
               " and the largest element of the gradient ", steepest, " at the beginning of iteration ",
               iterations_ + 1, "; lower lr, or use LineSearch::kStrongWolfe");
    ++iterations_;
    update_direction(gradient);
    previous_gradient_ = gradient;
    const double previous = loss;
    length_ = options_.lr;
    if (iterations_ == 1) length_ *= std::min(1.0, 1 / sum(abs(gradient)).item<double>());
    const double slope = dot_product(gradient, direction_);
    if (slope > -options_.tolerance_change) break;
    if (options_.line_search == LineSearch::kStrongWolfe) {
      const Point end = search(closure, {0, loss, gradient, slope}, length_, most - (evaluations_ - before));
      length_ = end.length;
      loss = end.loss;
      gradient = end.gradient;
    } else {
      std::vector<Tensor> origin;
      for (const NamedTensor& parameter : parameters_) origin.push_back(parameter.tensor.detach());
      move_to(origin, length_);
      if (i == options_.max_iter) break;  // nothing would read the loss
      loss = evaluate(closure);
      gradient = flat_gradient();
    }
    steepest = largest(gradient);
    if (largest(direction_) * std::abs(length_) <= options_.tolerance_change) break;
    if (std::abs(loss - previous) < options_.tolerance_change) break;
  }
  return first_loss;
}

/// Finds a length at which the loss has decreased enough and is flat enough (algorithm 3.5), and goes there; or to the
/// best one that `most` iterations find.
LBFGS::Point LBFGS::search(const std::function<Tensor()>& closure, const Point& start, double length, int64_t most) {
  std::vector<Tensor> origin;
  for (const NamedTensor& parameter : parameters_) origin.push_back(parameter.tensor.detach().clone());
  const auto at = [&](double t) {
    move_to(origin, t);
    Point point;
    point.length = t;
    point.loss = evaluate(closure);
    point.gradient = flat_gradient();
    point.slope = dot_product(point.gradient, direction_);
    return point;
  };
  Line line{at, start, most};
  const Bracket bracket = find_bracket(line, length);
  const Point end = bracket.found ? bracket.ends[0] : narrow_bracket(line, bracket);
  move_to(origin, end.length);
  return end;
}

/// Goes on until the conditions hold, or two points have a length between them at which they do.
LBFGS::Bracket LBFGS::find_bracket(Line& line, double length) const {
  const Point& start = line.start;
  Point previous = start, point = line.at(length);
  for (int64_t count = 0; line.left > 0; ++count, --line.left) {
    if (is_too_high(point.loss, start.loss + kDecrease * point.length * start.slope) ||
        (count > 1 && point.loss >= previous.loss))
      return {{previous, point}};
    if (std::abs(point.slope) <= -kCurvature * start.slope) return {{point, point}, true};
    if (point.slope >= 0) return {{previous, point}};
    const double least = point.length + 0.01 * (point.length - previous.length), most = point.length * 10;
    const double next = cubic_minimum(previous.length, previous.loss, previous.slope, point.length, point.loss,
                                      point.slope, least, most);
    previous = point;
    point = line.at(next);
  }
  return {{start, point}};
}

/// Narrows the bracket until the lower end satisfies the conditions or the ends are too close; returns the lower end.
LBFGS::Point LBFGS::narrow_bracket(Line& line, const Bracket& found) const {
  const Point& start = line.start;
  Point ends[2] = {found.ends[0], found.ends[1]};
  const auto lower_end = [&] { return ends[0].loss <= ends[1].loss || std::isnan(ends[1].loss) ? 0 : 1; };
  const double reach = largest(direction_);
  int low = lower_end();
  bool was_close = false, done = false;
  for (; !done && line.left > 0; --line.left) {
    const double left = std::min(ends[0].length, ends[1].length), right = std::max(ends[0].length, ends[1].length);
    if ((right - left) * reach < options_.tolerance_change) break;
    double t = cubic_minimum(ends[0].length, ends[0].loss, ends[0].slope, ends[1].length, ends[1].loss, ends[1].slope,
                             left, right);
    // A length near an end for the second time in turn is moved away from it, so that the bracket shrinks.
    const double margin = 0.1 * (right - left);
    const bool is_close = std::min(right - t, t - left) < margin;
    const bool moves = is_close && (was_close || t >= right || t <= left);
    if (moves) t = std::abs(t - right) < std::abs(t - left) ? right - margin : left + margin;
    was_close = is_close && !moves;
    const Point point = line.at(t);
    const int high = 1 - low;
    if (is_too_high(point.loss, start.loss + kDecrease * t * start.slope) || point.loss >= ends[low].loss) {
      ends[high] = point;
      low = lower_end();
      continue;
    }
    done = std::abs(point.slope) <= -kCurvature * start.slope;
    if (!done && point.slope * (ends[high].length - ends[low].length) >= 0) ends[high] = ends[low];
    ends[low] = point;
  }
  return ends[low];
}

/// Pieces of a matrix [rows, elements of all parameters], or of a vector of them, named for the parameters.
StateView LBFGS::pieces_of(const std::string& name, const Tensor& flat) const {
  StateView pieces;
  int64_t begin = 0;
  for (const NamedTensor& parameter : parameters_) {
    const int64_t count = parameter.tensor.numel();
    const Tensor piece = flat.narrow(-1, begin, count);
    pieces.push_back({name + "." + parameter.name,
                      (flat.dim() == 1 ? piece.reshape(parameter.tensor.shape()) : piece).contiguous()});
    begin += count;
  }
  return pieces;
}

StateView LBFGS::state_dict() const {
  const NoGrad off;
  const TensorOptions options = {dtype_, parameters_.front().tensor.device()};
  const auto vector = [&](const Tensor& x) { return x.defined() ? x.clone() : zeros({size_}, options); };
  const auto matrix = [&](const std::vector<Tensor>& rows) {
    const Tensor all = zeros({options_.history_size, size_}, options);
    for (size_t i = 0; i < rows.size(); ++i) all.select(0, static_cast<int64_t>(i)).copy_(rows[i]);
    return all;
  };
  StateView state;
  for (const StateView& pieces :
       {pieces_of("direction", vector(direction_)), pieces_of("previous_gradient", vector(previous_gradient_)),
        pieces_of("gradient_changes", matrix(gradient_changes_)),
        pieces_of("parameter_changes", matrix(parameter_changes_))})
    state.insert(state.end(), pieces.begin(), pieces.end());
  std::vector<double> inverse = inverse_products_;
  inverse.resize(static_cast<size_t>(options_.history_size), 0);
  state.push_back({"inverse_products", from_vector(inverse, {options_.history_size})});
  state.push_back({"numbers", from_vector(std::vector<double>{scale_, length_, static_cast<double>(iterations_),
                                                              static_cast<double>(evaluations_),
                                                              static_cast<double>(inverse_products_.size())},
                                          {5})});
  return state;
}

void LBFGS::load_state_dict(const StateView& state) {
  const NoGrad off;
  follow_weights();
  const StateView loaded = state_dict();
  load_state(loaded, state);
  const std::vector<double> numbers = find(loaded, "numbers").to_vector<double>();
  const double count = numbers[4];
  TERN_CHECK(count >= 0 && count <= static_cast<double>(options_.history_size) && count == std::floor(count) &&
                 numbers[2] >= count && numbers[3] >= numbers[2] && numbers[3] < 0x1p53,
             kLbfgs, ": the state's numbers are not those of an LBFGS: ", count, " changes, ", numbers[2],
             " iterations, ", numbers[3], " evaluations");
  const auto joined = [&](const char* name, int dim) {
    std::vector<Tensor> pieces;
    for (const NamedTensor& parameter : parameters_) {
      const Tensor piece = find(loaded, std::string(name) + "." + parameter.name);
      pieces.push_back(dim == 0 ? piece.flatten() : piece);
    }
    return cat(pieces, dim);
  };
  const auto rows = [&](const char* name) {
    std::vector<Tensor> all;
    const Tensor matrix = joined(name, 1);
    for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) all.push_back(matrix[i].clone());
    return all;
  };
  direction_ = joined("direction", 0);
  previous_gradient_ = joined("previous_gradient", 0);
  gradient_changes_ = rows("gradient_changes");
  parameter_changes_ = rows("parameter_changes");
  inverse_products_ = find(loaded, "inverse_products").to_vector<double>();
  inverse_products_.resize(static_cast<size_t>(count));
  scale_ = numbers[0];
  length_ = numbers[1];
  iterations_ = static_cast<int64_t>(numbers[2]);
  evaluations_ = static_cast<int64_t>(numbers[3]);
}

}  // namespace tern::optim
