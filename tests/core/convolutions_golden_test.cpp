// The functions of convolutions.json (tests/golden/make_convolutions.py) against numbers that PyTorch computed in
// float64: convolutions and poolings.

#include "tern/tests/core/golden.h"

namespace tern::test {
namespace {

using golden::Json;
using golden::optional;
using golden::Tensors;
using Run = std::function<Tensor(const Json& params, const Tensors& in)>;
using Table = std::map<std::string, Run>;

SpatialSizes sizes_of(const Json& params, const char* name, int64_t otherwise) {
  if (!params.contains(name)) return otherwise;
  if (params[name].is_array()) return params[name].get<std::vector<int64_t>>();
  return params[name].get<int64_t>();
}

void add_convolutions(Table& table) {
  table["conv"] = [](const Json& params, const Tensors& in) {
    ConvolutionOptions options{.stride = sizes_of(params, "stride", 1),
                               .dilation = sizes_of(params, "dilation", 1),
                               .groups = params.value("groups", 1)};
    options.same = params.contains("padding") && params["padding"].is_string();
    if (!options.same) options.padding = sizes_of(params, "padding", 0);
    const auto op = params["dims"] == 1 ? conv1d : params["dims"] == 2 ? conv2d : conv3d;
    return op(in.at("x"), in.at("weight"), optional(in, "bias"), options);
  };
  table["conv_transpose"] = [](const Json& params, const Tensors& in) {
    const auto op = params["dims"] == 1 ? conv_transpose1d : params["dims"] == 2 ? conv_transpose2d : conv_transpose3d;
    return op(in.at("x"), in.at("weight"), optional(in, "bias"),
              {.stride = sizes_of(params, "stride", 1),
               .padding = sizes_of(params, "padding", 0),
               .output_padding = sizes_of(params, "output_padding", 0),
               .dilation = sizes_of(params, "dilation", 1),
               .groups = params.value("groups", 1)});
  };
}

void add_pools(Table& table) {
  const auto sized = [](const Json& params) { return sizes_of(params, "kernel", 1); };
  table["max_pool"] = [=](const Json& params, const Tensors& in) {
    MaxPoolOptions options{.padding = sizes_of(params, "padding", 0),
                           .dilation = sizes_of(params, "dilation", 1),
                           .ceil_mode = params.value("ceil_mode", false)};
    if (params.contains("stride")) options.stride = sizes_of(params, "stride", 1);
    const auto op = params["dims"] == 1 ? max_pool1d : params["dims"] == 2 ? max_pool2d : max_pool3d;
    return op(in.at("x"), sized(params), options);
  };
  table["avg_pool"] = [=](const Json& params, const Tensors& in) {
    AvgPoolOptions options{.padding = sizes_of(params, "padding", 0),
                           .ceil_mode = params.value("ceil_mode", false),
                           .count_include_pad = params.value("count_include_pad", true),
                           .divisor_override = params.value("divisor_override", 0)};
    if (params.contains("stride")) options.stride = sizes_of(params, "stride", 1);
    const auto op = params["dims"] == 1 ? avg_pool1d : params["dims"] == 2 ? avg_pool2d : avg_pool3d;
    return op(in.at("x"), sized(params), options);
  };
  table["adaptive_avg_pool"] = [=](const Json& params, const Tensors& in) {
    const auto op = params["dims"] == 1   ? adaptive_avg_pool1d
                    : params["dims"] == 2 ? adaptive_avg_pool2d
                                          : adaptive_avg_pool3d;
    return op(in.at("x"), sized(params));
  };
  table["adaptive_max_pool"] = [=](const Json& params, const Tensors& in) {
    const auto op = params["dims"] == 1   ? adaptive_max_pool1d
                    : params["dims"] == 2 ? adaptive_max_pool2d
                                          : adaptive_max_pool3d;
    return op(in.at("x"), sized(params));
  };
}

Tensor run_function(const std::string& op, const Json& params, Tensors& in) {
  static const Table table = [] {
    Table all;
    for (const auto add : {add_convolutions, add_pools}) add(all);
    return all;
  }();
  const auto found = table.find(op);
  TERN_CHECK(found != table.end(), "the test does not know the op ", op);
  return found->second(params, in);
}

TEST(Golden, ConvolutionsFloat32) { golden::check("convolutions.json", "functions", float32, run_function, 30); }
TEST(Golden, ConvolutionsFloat64) { golden::check("convolutions.json", "functions", float64, run_function, 30); }

}  // namespace
}  // namespace tern::test
