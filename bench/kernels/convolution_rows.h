#pragma once
// The convolutions that are measured: tern-bench-kernels has them by Tern, tern-bench-onednn by oneDNN's primitives.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tern/bench/benchmark.h"
#include "tern/kernels/convolution/convolution.h"

namespace tern::bench {

enum class ConvolutionPass { kForward, kInputGradient, kWeightGradient };

struct ConvolutionRow {
  std::string name;
  kernels::ConvolutionShape shape;
  ConvolutionPass pass;
  DType dtype;
  Work work() const;
};

/// A square image and kernel, padded so that stride 1 keeps the size. groups 0: depthwise.
struct ConvolutionSizes {
  const char* network;
  int64_t batch, in, out, side, kernel, stride, groups;
};

inline std::vector<ConvolutionSizes> convolution_sizes() {
  std::vector<ConvolutionSizes> all;
  const auto add = [&](const char* network, int64_t batch, std::vector<std::array<int64_t, 5>> layers) {
    for (const auto& [in, out, side, kernel, stride] : layers)
      all.push_back({network, batch, in, out > 0 ? out : in, side, kernel, stride, out > 0 ? 1 : 0});
  };
  // {in, out, side, kernel, stride}; out 0: depthwise.
  add("resnet18", 128,
      {{3, 64, 32, 3, 1},
       {64, 64, 32, 3, 1},
       {64, 128, 32, 3, 2},
       {64, 128, 32, 1, 2},
       {128, 128, 16, 3, 1},
       {128, 256, 16, 3, 2},
       {256, 256, 8, 3, 1},
       {256, 512, 8, 3, 2},
       {512, 512, 4, 3, 1}});
  add("resnet50", 4,
      {{3, 64, 224, 7, 2},
       {64, 64, 56, 1, 1},
       {64, 64, 56, 3, 1},
       {64, 256, 56, 1, 1},
       {128, 128, 56, 3, 2},
       {512, 128, 28, 1, 1},
       {256, 256, 14, 3, 1},
       {256, 1024, 14, 1, 1},
       {1024, 2048, 14, 1, 2},
       {512, 512, 7, 3, 1},
       {2048, 512, 7, 1, 1}});
  add("mobilenet", 16,
      {{3, 16, 224, 3, 2},
       {16, 0, 112, 3, 1},
       {16, 0, 112, 3, 2},
       {72, 0, 56, 3, 2},
       {88, 0, 28, 3, 1},
       {96, 0, 28, 5, 2},
       {240, 0, 14, 5, 1},
       {480, 0, 14, 3, 1},
       {576, 0, 7, 5, 1},
       {16, 72, 56, 1, 1},
       {72, 24, 28, 1, 1},
       {24, 88, 28, 1, 1},
       {40, 240, 14, 1, 1},
       {240, 40, 14, 1, 1},
       {96, 576, 7, 1, 1},
       {576, 96, 7, 1, 1}});
  return all;
}

inline Work ConvolutionRow::work() const {
  const double x = static_cast<double>(shape.batch * shape.in_pixels() * shape.in_channels);
  const double y = static_cast<double>(shape.batch * shape.out_pixels() * shape.out_channels);
  const double weight = static_cast<double>(shape.out_channels * shape.depth_of_sums());
  return {.bytes = (x + y + weight) * static_cast<double>(size_of(dtype)),
          .flops = 2 * y * static_cast<double>(shape.depth_of_sums()),
          .dtype = dtype};
}

/// Every pass of every convolution, in fp32 and bf16: "convolution/forward/float32/resnet18/64/128/32/3x3s2".
inline std::vector<ConvolutionRow> convolution_rows() {
  std::vector<ConvolutionRow> rows;
  for (const DType dtype : {float32, bfloat16})
    for (const auto& [pass, pass_name] :
         {std::pair(ConvolutionPass::kForward, "forward"), std::pair(ConvolutionPass::kInputGradient, "input_gradient"),
          std::pair(ConvolutionPass::kWeightGradient, "weight_gradient")})
      for (const ConvolutionSizes& s : convolution_sizes()) {
        const std::string kind = std::to_string(s.kernel) + "x" + std::to_string(s.kernel) + "s" +
                                 std::to_string(s.stride) + (s.groups == 0 ? "/depthwise" : "");
        const int64_t in = scaled(s.in, 16), out = scaled(s.out, 16), side = scaled(s.side, 7);
        kernels::ConvolutionShape shape{.batch = scaled(s.batch, 2), .in_channels = in, .out_channels = out};
        shape.groups = s.groups == 0 ? in : 1;
        shape.kernel = {1, s.kernel, s.kernel};
        shape.stride = {1, s.stride, s.stride};
        shape.padding = {0, s.kernel / 2, s.kernel / 2};
        shape.in = {1, side, side};
        shape.out = {1, (side - 1) / s.stride + 1, (side - 1) / s.stride + 1};
        rows.push_back(
            {name_of_row("convolution", pass_name, dtype, s.network, s.in, s.out, s.side, kind), shape, pass, dtype});
      }
  return rows;
}

}  // namespace tern::bench
