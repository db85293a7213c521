// The functions of image_ops.json (tests/golden/make_image_ops.py) against numbers that PyTorch computed in float64, of
// images in either order of memory.

#include "tern/tests/core/golden.h"

namespace tern::test {
namespace {

using golden::Json;
using golden::optional;
using golden::Tensors;
using Run = std::function<Tensor(const Json& params, const Tensors& in)>;
using Table = std::map<std::string, Run>;

bool g_channels_last = false;

/// The input as it is, or with its channels last.
Tensor image(const Tensors& in, const char* name = "x") {
  const Tensor& x = in.at(name);
  return g_channels_last && x.dim() >= 3 ? x.channels_last() : x;
}

void add_norms(Table& table) {
  table["group_norm"] = [](const Json& params, const Tensors& in) {
    return group_norm(image(in), params["groups"], optional(in, "weight"), optional(in, "bias"),
                      params.value("eps", 1e-5));
  };
  table["instance_norm"] = [](const Json& params, const Tensors& in) {
    const Tensor x = image(in);
    const InstanceNormOptions options{params.value("use_input_stats", true), params.value("momentum", 0.1),
                                      params.value("eps", 1e-5)};
    if (!in.count("mean")) return instance_norm(x, {}, {}, optional(in, "weight"), optional(in, "bias"), options);
    const Tensor mean = in.at("mean").to(x.dtype()).clone(), var = in.at("var").to(x.dtype()).clone();
    const Tensor y = instance_norm(x, mean, var, optional(in, "weight"), optional(in, "bias"), options);
    return cat({y.flatten(), mean, var});
  };
  table["local_response_norm"] = [](const Json& params, const Tensors& in) {
    return local_response_norm(image(in), params["size"],
                               {params.value("alpha", 1e-4), params.value("beta", 0.75), params.value("k", 1.0)});
  };
}

/// A number for all dimensions or one for each.
template <class T>
std::vector<T> numbers(const Json& value) {
  return value.is_array() ? value.get<std::vector<T>>() : std::vector<T>{value.get<T>()};
}
SpatialSizes sizes(const Json& params, const char* name, int64_t otherwise) {
  return params.contains(name) ? SpatialSizes(numbers<int64_t>(params[name])) : SpatialSizes(otherwise);
}

void add_interpolation(Table& table) {
  table["interpolate"] = [](const Json& params, const Tensors& in) {
    using M = InterpolateMode;
    static const std::map<std::string, M> modes = {{"nearest", M::kNearest},  {"nearest-exact", M::kNearestExact},
                                                   {"linear", M::kLinear},    {"bilinear", M::kLinear},
                                                   {"trilinear", M::kLinear}, {"bicubic", M::kCubic},
                                                   {"area", M::kArea}};
    InterpolateOptions options{.mode = modes.at(params["mode"]),
                               .align_corners = params.value("align_corners", false),
                               .recompute_scale_factor = params.value("recompute_scale_factor", false),
                               .antialias = params.value("antialias", false)};
    if (params.contains("size")) options.size = sizes(params, "size", 1);
    if (params.contains("scale_factor")) options.scale_factor = numbers<double>(params["scale_factor"]);
    const Tensor x = image(in), y = interpolate(x, options);
    EXPECT_TRUE(y.is_channels_last() || !x.is_channels_last() || x.is_contiguous());
    return y;
  };
}

UnfoldOptions unfold_options(const Json& params) {
  return {sizes(params, "dilation", 1), sizes(params, "padding", 0), sizes(params, "stride", 1)};
}

void add_patches(Table& table) {
  table["unfold"] = [](const Json& params, const Tensors& in) {
    return unfold(image(in), sizes(params, "kernel", 1), unfold_options(params));
  };
  table["fold"] = [](const Json& params, const Tensors& in) {
    return fold(in.at("x"), sizes(params, "size", 1), sizes(params, "kernel", 1), unfold_options(params));
  };
  const auto moves = [&](const char* name, Tensor (*fn)(const Tensor&, int64_t)) {
    table[name] = [=](const Json& params, const Tensors& in) {
      const Tensor x = image(in), y = fn(x, params["number"]);
      EXPECT_TRUE(y.is_channels_last() || !g_channels_last || x.dim() == 5 || x.dim() == 3) << name;
      return y;
    };
  };
  moves("pixel_shuffle", pixel_shuffle);
  moves("pixel_unshuffle", pixel_unshuffle);
  moves("channel_shuffle", channel_shuffle);
}

void add_unpools(Table& table) {
  table["max_unpool"] = [](const Json& params, const Tensors& in) {
    MaxUnpoolOptions options{.padding = sizes(params, "padding", 0)};
    if (params.contains("stride")) options.stride = sizes(params, "stride", 1);
    if (params.contains("size")) options.size = sizes(params, "size", 1);
    const auto op = params["dims"] == 1 ? max_unpool1d : params["dims"] == 2 ? max_unpool2d : max_unpool3d;
    return op(image(in), in.at("indices").to(int64), sizes(params, "kernel", 1), options);
  };
  table["lp_pool"] = [](const Json& params, const Tensors& in) {
    LpPoolOptions options{.ceil_mode = params.value("ceil_mode", false)};
    if (params.contains("stride")) options.stride = sizes(params, "stride", 1);
    const auto op = params["dims"] == 1 ? lp_pool1d : params["dims"] == 2 ? lp_pool2d : lp_pool3d;
    return op(image(in), params["power"], sizes(params, "kernel", 1), options);
  };
}

void add_sampling(Table& table) {
  table["grid_sample"] = [](const Json& params, const Tensors& in) {
    static const std::map<std::string, GridSampleMode> modes = {{"bilinear", GridSampleMode::kLinear},
                                                                {"nearest", GridSampleMode::kNearest},
                                                                {"bicubic", GridSampleMode::kCubic}};
    static const std::map<std::string, GridPadding> paddings = {
        {"zeros", GridPadding::kZeros}, {"border", GridPadding::kBorder}, {"reflection", GridPadding::kReflection}};
    return grid_sample(image(in), in.at("grid"),
                       {modes.at(params["mode"]), paddings.at(params["padding"]), params["align"]});
  };
  table["affine_grid"] = [](const Json& params, const Tensors& in) {
    return affine_grid(in.at("theta"), Shape(params["size"].get<std::vector<int64_t>>()), params["align"]);
  };
}

Tensor run_function(const std::string& op, const Json& params, Tensors& in) {
  static const Table table = [] {
    Table all;
    for (const auto add : {add_norms, add_interpolation, add_patches, add_unpools, add_sampling}) add(all);
    return all;
  }();
  const auto found = table.find(op);
  TERN_CHECK(found != table.end(), "the test does not know the op ", op);
  return found->second(params, in);
}

class ImageOps : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { g_channels_last = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(, ImageOps, testing::Bool());

TEST_P(ImageOps, Float32) { golden::check("image_ops.json", "functions", float32, run_function); }
TEST_P(ImageOps, Float64) { golden::check("image_ops.json", "functions", float64, run_function); }

}  // namespace
}  // namespace tern::test
