// Images of another size as ONNX's nodes.

#include "tern/kernels/resample.h"
#include "tern/models/onnx/export/exporter.h"

namespace tern::onnx {
namespace {

using kernels::ResampleMode;

/// Arguments: x; for each axis its dimension in memory, mode, size before and after, align_corners, antialias and the
/// factor that the caller gave, or 0; whether the channels are last in memory.
void write_resize(Exporter& e, const Graph::Node& node, const std::vector<GraphArgument>& a) {
  const auto whole = [&](const GraphArgument& argument) {
    if (!argument.size.is_constant()) e.refuse("the size of the images is dynamic");
    return argument.size.constant();
  };
  const std::vector<SymbolicSize>& shape = e.info(node.outputs[0]).shape;
  const bool last = whole(a[2]) != 0;
  std::vector<double> factors(shape.size(), 1);
  bool by_size = true, by_factor = true;
  auto mode = ResampleMode::kNearest;
  bool align_corners = false, antialias = false;
  constexpr size_t kFields = 7;
  for (size_t i = 0; i + kFields <= a[1].list.size(); i += kFields) {
    const auto field = [&](size_t of) { return whole(a[1].list[i + of]); };
    const double factor = a[1].list[i + 6].number;
    mode = static_cast<ResampleMode>(field(1));
    align_corners = align_corners || field(4) != 0;
    antialias = antialias || field(5) != 0;
    if (field(2) == field(3) && factor == 0) continue;  // copied
    const bool given = factor > 0 && field(4) == 0;
    by_size = by_size && !given;
    by_factor = by_factor && given;
    factors.at(static_cast<size_t>(field(0)) + (last ? 1 : 0)) = factor;
  }
  if (!by_size && !by_factor) e.refuse("one dimension has a factor and another a size");
  if (antialias && e.opset() < 18) e.refuse("antialias, which Resize has from opset 18 on");
  const bool nearest = mode == ResampleMode::kNearest || mode == ResampleMode::kNearestExact;
  const std::string name = nearest ? "nearest" : mode == ResampleMode::kLinear ? "linear" : "cubic";
  const std::string place = align_corners                    ? "align_corners"
                            : mode == ResampleMode::kNearest ? "asymmetric"
                                                             : "half_pixel";
  Attributes attributes = {{"mode", attribute(name)}, {"coordinate_transformation_mode", attribute(place)}};
  if (nearest)
    attributes["nearest_mode"] = attribute(std::string(mode == ResampleMode::kNearest ? "floor" : "round_prefer_ceil"));
  if (mode == ResampleMode::kCubic) attributes["cubic_coeff_a"] = attribute(-0.75);
  if (antialias) attributes["antialias"] = attribute(int64_t{1});
  std::vector<std::string> inputs = {e.name(node.inputs[0]), ""};
  if (by_size) {
    inputs.insert(inputs.end(), {"", e.sizes(shape)});
  } else {
    const std::vector<float> scales(factors.begin(), factors.end());
    inputs.push_back(e.constant(from_vector(scales, {static_cast<int64_t>(scales.size())})));
  }
  e.set(node.outputs[0], e.node("Resize", inputs, attributes));
}

}  // namespace

void add_images(ExportTable& table) { table["interpolate"] = write_resize; }

}  // namespace tern::onnx
