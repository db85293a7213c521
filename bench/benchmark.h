#pragma once
// Benchmarks of kernels, ops and whole steps. A program registers rows and hands over to run(), which times them,
// prints a table, and with --baseline compares them with the same rows of another build (docs/benchmarks.md).
//
//   const bench::Rows rows([] { bench::add_op("snake", snake, Shape{4096, 1024}); });
//   int main(int argc, char** argv) { return bench::run(argc, argv); }
//
// A row of a kernel gives the work of a call and a function that prepares buffers and returns the call:
//
//   bench::add("saxpy", {.bytes = 12.0 * n}, [=]() -> bench::Call {
//     return [x = bench::Buffer(float32, {n}), y = bench::Buffer(float32, {n})] { saxpy(bench::stream(), ...); };
//   });

#include <concepts>
#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tern/bench/buffer.h"
#include "tern/bench/setting.h"
#include "tern/core/tensor.h"

namespace tern::bench {

/// The minimum work of one call: each input read once, each output written once.
struct Work {
  double bytes = 0;
  double flops = 0;
  DType dtype = DType::kFloat32;  // selects the copy or matrix rate to compare with
  // GPU budgets of docs/performance_gpu.md; 0: none.
  double share_budget = 0;  // minimum share, see add()
  double rate_budget = 0;   // operations per second
};

/// Queues one call of a kernel on stream().
using Call = std::function<void()>;
/// Runs one step, waits for its end and returns the number of items (tokens, images) that it processed.
using Step = std::function<int64_t()>;

/// A prepared row of steps.
struct Steps {
  template <std::convertible_to<Step> Function>
  Steps(Function step) : step(std::move(step)) {}
  Steps(Step step, double flops_per_item, std::function<std::string()> facts)
      : step(std::move(step)), flops_per_item(flops_per_item), facts(std::move(facts)) {}

  Step step;
  double flops_per_item = 0;           // 0: unknown
  std::function<std::string()> facts;  // more for the row's line of JSON, an object; called when the row was timed
};

struct Row {
  std::string name;
  Work work;
  std::function<Call(Work&)> make_call;  // null for steps; may complete `work`
  std::string unit;                      // of a step's items
  std::function<Steps()> make_steps;     // null for kernels and ops
};

/// Registers a row. make() prepares buffers with random contents and returns a call that owns them; it runs when the
/// row is measured, with the options of the command line in force (device(), scaled()).
///
/// CPU: calls are timed in samples of at least 10 ms. GPU: calls rotate over as many sets of buffers as exceed the L2
/// cache; they are captured in one CUDA graph, whose replays are timed by events. The row's time is the median sample.
///
/// Reported: the time of a call, bytes/s, FLOP/s, and `share`, the least time of the device (the larger of bytes /
/// copy_rate and flops / matrix_rate, bench/roofline.h) divided by the measured one. A failure is reported as the row's
/// error and the other rows still run.
///
/// GPU: before it is timed the call runs once there and once on the CPU with the same numbers, and every Buffer is
/// compared in norm: a kernel with a wrong result gets no time.
void add(std::string name, const Work& work, std::function<Call()> make);
/// Registers a row of steps, timed by the clock of the host. The row's time is that of one item: all seconds over all
/// items, since steps may differ.
void add_steps(std::string name, std::string unit, std::function<Steps()> make);

/// A random input of an op: normal, or integers uniform in [0, high).
struct Input {
  Input(const Shape& shape, DType dtype = DType::kFloat32, int64_t high = 2) : shape(shape), dtype(dtype), high(high) {}
  Shape shape;
  DType dtype;
  int64_t high;
};

namespace detail {
using AnyOp = std::function<Tensor(const std::vector<Tensor>&)>;
void add_op(std::string name, AnyOp op, std::vector<Input> inputs, bool backward);

template <class Op, size_t... kIndex>
AnyOp any_op(Op op, std::index_sequence<kIndex...>) {
  return [op](const std::vector<Tensor>& inputs) { return Tensor(op(inputs[kIndex]...)); };
}
}  // namespace detail

/// Registers op(inputs...), without recording. Its work: the inputs and the result, and the operations that
/// profile_flops() counts.
template <class Op, std::convertible_to<Input>... Inputs>
void add_op(std::string name, Op op, Inputs... inputs) {
  detail::add_op(std::move(name), detail::any_op(op, std::index_sequence_for<Inputs...>()), {Input(inputs)...}, false);
}
/// Registers op(inputs...) with recording, followed by its backward; gradients of all floating inputs are computed.
template <class Op, std::convertible_to<Input>... Inputs>
void add_op_with_backward(std::string name, Op op, Inputs... inputs) {
  detail::add_op(std::move(name), detail::any_op(op, std::index_sequence_for<Inputs...>()), {Input(inputs)...}, true);
}

/// A row's name: its parts, joined by slashes.
template <class... Parts>
std::string name_of_row(const Parts&... parts) {
  std::ostringstream text;
  int64_t count = 0;
  ((text << (count++ > 0 ? "/" : "") << parts), ...);
  return text.str();
}

/// Keeps the compiler from leaving out the computation of a value that nothing uses.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

/// Registers what the function adds. The function runs in run(), after the command line was read.
class Rows {
 public:
  explicit Rows(std::function<void()> add);
};

/// A further option of the program's command line. `value`: the name of its value in --help; null: a flag without one.
struct Flag {
  const char* name;
  const char* value;
  const char* help;
  std::function<void(const std::string& value)> set;
};

/// The main program: `--help` lists its options. Returns the exit status.
int run(int argc, char** argv, const std::vector<Flag>& flags = {});

}  // namespace tern::bench
