// Ops on images of both orders of memory: norms, resizing, sampling and moved pixels.

#include <functional>
#include <string>

#include "tern/bench/benchmark.h"
#include "tern/core/ops/ops.h"

namespace tern::bench {
namespace {

using ImageOp = std::function<Tensor(const Tensor&)>;

/// Forward, and forward with backward, of [32, 64, 32, 32].
void add_images(const std::string& op, const ImageOp& fn) {
  const int64_t batch = scaled(32, 2), channels = scaled(64, 16), side = scaled(32, 8);
  add_op(name_of_row("images", op), fn, Shape{batch, channels, side, side});
  add_op_with_backward(name_of_row("images", op, "backward"), fn, Shape{batch, channels, side, side});
  const ImageOp last = [fn](const Tensor& x) { return fn(x.movedim(-1, 1)); };
  add_op(name_of_row("images", op, "channels_last"), last, Shape{batch, side, side, channels});
  add_op_with_backward(name_of_row("images", op, "channels_last", "backward"), last,
                       Shape{batch, side, side, channels});
}

const Rows rows([] {
  add_images("group_norm", [](const Tensor& x) { return group_norm(x, 8); });
  add_images("instance_norm", [](const Tensor& x) { return instance_norm(x); });
  for (const auto& [name, mode] :
       {std::pair("nearest", InterpolateMode::kNearest), std::pair("bilinear", InterpolateMode::kLinear),
        std::pair("bicubic", InterpolateMode::kCubic)})
    add_images(name, [mode = mode](const Tensor& x) { return interpolate(x, {.scale_factor = {2}, .mode = mode}); });
  add_images("unfold", [](const Tensor& x) { return unfold(x, 3, {.padding = 1}); });
  add_images("pixel_shuffle", [](const Tensor& x) { return pixel_shuffle(x, 2); });
});

}  // namespace
}  // namespace tern::bench
