// tern-bench-onednn: the rows "convolution/..." of tern-bench-kernels by oneDNN's own primitives, each in the layouts
// that it prefers for images and weight, which are written before the call. It is a baseline:
//
//   tern-bench-kernels --rows convolution --baseline tern-bench-onednn --clock cpu --threads 1

#include <omp.h>

#include <dnnl.hpp>
#include <memory>
#include <unordered_map>

#include "tern/bench/benchmark.h"
#include "tern/bench/kernels/convolution_rows.h"
#include "tern/kernels/parallel.h"

namespace tern::bench {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using kernels::ConvolutionShape;

dnnl::engine& engine() {
  static dnnl::engine cpu_engine(dnnl::engine::kind::cpu, 0);
  return cpu_engine;
}

Desc any_layout(const Dims& dims, DType dtype) {
  const bool single = dtype == DType::kFloat32;
  return Desc(dims, single ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16, Tag::any);
}

/// A primitive and its arguments, filled with random numbers.
class Convolution {
 public:
  explicit Convolution(const ConvolutionRow& row) : row_(row), stream_(engine()) {
    try {
      make(dnnl::algorithm::convolution_auto);
    } catch (const dnnl::error&) {  // not of every pass and type
      make(dnnl::algorithm::convolution_direct);
    }
  }

  void run() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  struct Plan {
    Desc x, weight, y, scratch;
    dnnl::primitive primitive;
  };

  void make(dnnl::algorithm algorithm) {
    const bool input = row_.pass == ConvolutionPass::kInputGradient;
    const bool gradient = row_.pass == ConvolutionPass::kWeightGradient;
    const Plan plan = plan_of(algorithm);
    primitive_ = plan.primitive;
    arguments_.clear();
    buffers_.clear();
    bind(input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, plan.x);
    bind(gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, plan.weight);
    bind(input || gradient ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, plan.y);
    bind(DNNL_ARG_SCRATCHPAD, plan.scratch);
  }

  /// The plan of the row's pass, in any layouts.
  Plan plan_of(dnnl::algorithm algorithm) const {
    const ConvolutionShape& s = row_.shape;
    const bool gradient = row_.pass == ConvolutionPass::kWeightGradient;
    const auto image = [](const std::array<int64_t, 3>& size) { return Dims{size[1], size[2]}; };
    const auto images = [&](int64_t channels, const std::array<int64_t, 3>& size) {
      return any_layout({s.batch, channels, size[1], size[2]}, row_.dtype);
    };
    const auto weights = [&](DType dtype) {
      return any_layout(s.groups > 1 ? Dims{s.groups, s.group_out(), s.group_in(), s.kernel[1], s.kernel[2]}
                                     : Dims{s.out_channels, s.in_channels, s.kernel[1], s.kernel[2]},
                        dtype);
    };
    const Desc x = images(s.in_channels, s.in), y = images(s.out_channels, s.out), weight = weights(row_.dtype);
    const Dims stride = image(s.stride), before = image(s.padding);
    Dims after;
    for (const size_t d : {1, 2}) after.push_back((s.out[d] - 1) * s.stride[d] + s.kernel[d] - s.in[d] - s.padding[d]);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto kind =
        row_.pass == ConvolutionPass::kForward ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
    const auto described = [&]<class Primitive>(const Desc& used, const auto&... hint) {
#if DNNL_VERSION_MAJOR >= 3
      if constexpr (sizeof...(hint) == 0)
        return typename Primitive::primitive_desc(engine(), kind, algorithm, x, used, y, stride, before, after,
                                                  attributes);
      else
        return typename Primitive::primitive_desc(engine(), algorithm, x, used, y, stride, before, after, hint...,
                                                  attributes);
#else
      if constexpr (sizeof...(hint) == 0)
        return typename Primitive::primitive_desc(
            typename Primitive::desc(kind, algorithm, x, used, y, stride, before, after), attributes, engine());
      else
        return typename Primitive::primitive_desc(
            typename Primitive::desc(algorithm, x, used, y, stride, before, after), attributes, engine(), hint...);
#endif
    };
    const auto forward = described.template operator()<dnnl::convolution_forward>(weight);
    if (row_.pass == ConvolutionPass::kForward)
      return {forward.src_desc(), forward.weights_desc(), forward.dst_desc(), forward.scratchpad_desc(),
              dnnl::convolution_forward(forward)};
    if (!gradient) {
      const auto chosen = described.template operator()<dnnl::convolution_backward_data>(weight, forward);
      return {chosen.diff_src_desc(), chosen.weights_desc(), chosen.diff_dst_desc(), chosen.scratchpad_desc(),
              dnnl::convolution_backward_data(chosen)};
    }
    const auto chosen =
        described.template operator()<dnnl::convolution_backward_weights>(weights(DType::kFloat32), forward);
    return {chosen.src_desc(), chosen.diff_weights_desc(), chosen.diff_dst_desc(), chosen.scratchpad_desc(),
            dnnl::convolution_backward_weights(chosen)};
  }

  void bind(int argument, const Desc& desc) {
    const bool half = desc.get_size() > 0 && data_type(desc) == dnnl::memory::data_type::bf16;
    const auto size = static_cast<int64_t>(desc.get_size());
    buffers_.emplace_back(half ? bfloat16 : float32, Shape{size / (half ? 2 : 4) + 16});
    arguments_.emplace(argument, dnnl::memory(desc, engine(), buffers_.back().data()));
  }
  static dnnl::memory::data_type data_type(const Desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
    return desc.get_data_type();
#else
    return desc.data_type();
#endif
  }

  ConvolutionRow row_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::vector<Buffer> buffers_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

const Rows registered([] {
  if (device().is_cuda()) return;
  for (const ConvolutionRow& row : convolution_rows())
    add(row.name, row.work(), [row]() -> Call {
      omp_set_num_threads(kernels::num_threads());
      return [convolution = std::make_shared<Convolution>(row)] { convolution->run(); };
    });
});

}  // namespace
}  // namespace tern::bench

int main(int argc, char** argv) { return tern::bench::run(argc, argv); }
