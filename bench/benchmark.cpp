#include "tern/bench/benchmark.h"

#include <csignal>
#include <cstdio>
#include <exception>

#include "tern/bench/comparison.h"
#include "tern/bench/options.h"
#include "tern/bench/report.h"
#include "tern/bench/side.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/profiler/profiler.h"
#include "tern/kernels/base/check.h"

namespace tern::bench {
namespace {

std::vector<Row>& all_rows() {
  static std::vector<Row> rows;
  return rows;
}

std::vector<std::function<void()>>& functions() {
  static std::vector<std::function<void()>> list;
  return list;
}

std::string base_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

int run_program(int argc, char** argv, const std::vector<Flag>& flags) {
  const Options options = parse_options(argc, argv, flags);
  if (options.help) {
    std::fputs(help_text(base_name(argv[0]), flags).c_str(), stdout);
    return 0;
  }
  all_rows().clear();
  for (const std::function<void()>& add : functions()) add();
  const std::vector<Row> rows = chosen_rows(all_rows(), options.serve ? "" : options.rows);
  std::signal(SIGPIPE, SIG_IGN);  // a process that has ended is an error of write()
  if (options.serve) {
    serve(rows);
    return 0;
  }
  if (options.list) {
    for (const Row& row : rows) std::printf("%s\n", row.name.c_str());
    return 0;
  }
  JsonLines lines(options.json);
  if (!options.baseline.empty()) return compare_with_baseline(options, rows, lines);
  return measure_rows(rows, options.seconds, lines) > 0 ? 1 : 0;
}

double bytes_of(const Tensor& tensor) { return static_cast<double>(tensor.numel() * size_of(tensor.dtype())); }

/// Adds the operations that one call of the op counts.
double flops_of(const Call& call) {
  Profiler profiler;
  call();
  double flops = 0;
  for (const ProfileRow& row : profiler.stop().rows()) flops += row.flops;
  return flops;
}

}  // namespace

void add(std::string name, const Work& work, std::function<Call()> make) {
  all_rows().push_back({std::move(name), work, [make = std::move(make)](Work&) { return make(); }, "", nullptr});
}

void add_steps(std::string name, std::string unit, std::function<Steps()> make) {
  all_rows().push_back({std::move(name), {}, nullptr, std::move(unit), std::move(make)});
}

void detail::add_op(std::string name, AnyOp op, std::vector<Input> inputs, bool backward) {
  const auto make = [=](Work& work) -> Call {
    std::vector<Tensor> x;
    double bytes = 0;
    for (const Input& input : inputs) {
      x.push_back(Buffer(input.dtype, input.shape, input.high).tensor());
      bytes += bytes_of(x.back());
      if (backward && is_floating(input.dtype)) x.back().set_requires_grad(true);
    }
    Tensor y = [&] {
      const NoGrad off;
      return op(x);
    }();
    if (Buffer::noted) Buffer::noted->push_back(y);
    bytes += bytes_of(y);
    const Buffer dy(y.dtype(), y.shape());
    const Call call = [=] {
      if (!backward) {
        const NoGrad off;
        keep(op(x));
        return;
      }
      op(x).backward(dy.tensor());
      for (Tensor input : x) input.set_grad({});
    };
    work.dtype = y.dtype();
    work.bytes = backward ? 2 * bytes : bytes;  // a gradient of each tensor
    work.flops = flops_of(call);
    return call;
  };
  all_rows().push_back({std::move(name), {}, make, "", nullptr});
}

Rows::Rows(std::function<void()> add) { functions().push_back(std::move(add)); }

int run(int argc, char** argv, const std::vector<Flag>& flags) {
  try {
    return run_program(argc, argv, flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", base_name(argv[0]).c_str(), error.what());
    return 2;
  }
}

}  // namespace tern::bench
