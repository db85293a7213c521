#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tern/core/autograd/parameter.h"

namespace tern::optim {

enum class LineSearch : uint8_t {
  kNone,         // each iteration goes lr times the direction
  kStrongWolfe,  // a length that satisfies the strong Wolfe conditions, found from lr (PyTorch's "strong_wolfe")
};

struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;  // iterations of one step()
  // Evaluations after which a step() ends, and which bound its line searches; 5/4 of max_iter unless given.
  std::optional<int64_t> max_eval = {};
  double tolerance_grad = 1e-7;    // a step ends where no element of the gradient is larger
  double tolerance_change = 1e-9;  // or where an iteration changes the loss by less, or no parameter by more than this
  int64_t history_size = 100;      // iterations whose changes approximate the Hessian
  LineSearch line_search = LineSearch::kNone;
};

/// Limited-memory BFGS (Nocedal and Wright, "Numerical Optimization", 2006, algorithms 7.5 and 3.5), as
/// torch.optim.LBFGS. For losses without noise: all of the data in every evaluation. It is not an optim::Optimizer,
/// because a step evaluates the loss several times; dist::LoopState takes it by its state.
///
///   optim::LBFGS optimizer(net.parameters(), {.line_search = optim::LineSearch::kStrongWolfe});
///   const Tensor loss = optimizer.step([&] {
///     optimizer.zero_grad();
///     const Tensor loss = mse_loss(net.forward(x), y);
///     loss.backward();
///     return loss;
///   });
///
/// Keeps 2 history_size + 2 times as many numbers as there are parameters. The host waits for the device several times
/// in each iteration.
class LBFGS {
 public:
  /// Throws Error when there are no parameters, when one is given twice or under the name of another, is not a
  /// contiguous float32 or float64 leaf, or is on another device than the first; and for options out of range.
  explicit LBFGS(const std::vector<NamedTensor>& parameters, const LBFGSOptions& options = {});

  /// The closure drops the gradients, computes the loss (one element), calls backward() and returns the loss. Returns
  /// that of its first call, at the parameters before the step. A parameter without a gradient counts as one with
  /// zeros. Throws Error when the loss or a gradient is not finite where an iteration begins, and when nn::Module::to
  /// has made a parameter 16-bit or moved it away from the state.
  Tensor step(const std::function<Tensor()>& closure);
  void zero_grad();

  double lr() const { return options_.lr; }
  void set_lr(double lr);
  /// Iterations and evaluations of all steps so far.
  int64_t iterations() const { return iterations_; }
  int64_t evaluations() const { return evaluations_; }

  /// For every parameter "direction.<name>", "previous_gradient.<name>" (its shape) and "gradient_changes.<name>",
  /// "parameter_changes.<name>" ([history_size, elements]); "inverse_products" and "numbers". Copies, whose shapes are
  /// always the same.
  StateView state_dict() const;
  /// Missing, unexpected and mis-shaped entries are listed in one Error, and nothing is written then.
  void load_state_dict(const StateView& state);

 private:
  /// A point on the line of a search.
  struct Point {
    double length = 0, loss = 0;
    Tensor gradient;
    double slope = 0;  // gradient . direction
  };
  struct Line {
    std::function<Point(double)> at;  // evaluates the loss
    Point start;
    int64_t left = 0;  // iterations that the search may take
  };
  struct Bracket {
    Point ends[2];
    bool found = false;  // ends[0] satisfies the conditions
  };

  void follow_weights();
  Tensor flat_gradient() const;
  void move_to(const std::vector<Tensor>& origin, double length);
  double evaluate(const std::function<Tensor()>& closure, Tensor* loss = nullptr);
  void update_direction(const Tensor& gradient);
  Point search(const std::function<Tensor()>& closure, const Point& start, double length, int64_t most);
  Bracket find_bracket(Line& line, double length) const;
  Point narrow_bracket(Line& line, const Bracket& found) const;
  StateView pieces_of(const std::string& name, const Tensor& flat) const;

  LBFGSOptions options_;
  std::vector<NamedTensor> parameters_;
  DType dtype_ = float32;  // of the flat vectors
  int64_t size_ = 0;       // elements of all parameters

  // The state. Vectors of all parameters, flat; undefined before the first iteration.
  Tensor direction_, previous_gradient_;
  std::vector<Tensor> gradient_changes_, parameter_changes_;  // of the last iterations, the oldest first
  std::vector<double> inverse_products_;                      // 1 / their dot product
  double scale_ = 1;                                          // of the first approximation of the inverse Hessian
  double length_ = 0;                                         // of the last iteration
  int64_t iterations_ = 0, evaluations_ = 0;
};

}  // namespace tern::optim
