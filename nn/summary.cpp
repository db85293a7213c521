#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <unordered_map>
#include <unordered_set>

#include "tern/core/profiler/profiler.h"
#include "tern/nn/module.h"

namespace tern::nn {
namespace {

using Row = std::array<std::string, 6>;  // name, type, shape, parameters and, after a run, output, flops

/// What a run of the module shows.
struct Run {
  std::unordered_map<const Module*, std::string> shapes = {};  // of the last results
  std::unordered_map<const Module*, double> flops = {};
};
using Seen = std::unordered_set<const tern::detail::TensorImpl*>;

std::string with_commas(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string with_unit(int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1000 && unit < 4; ++unit) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

Row member_row(const std::string& indent, const Module::Member& member, bool is_first) {
  const bool counts = member.is_parameter && is_first;
  const char* kind = !member.is_parameter            ? " buffer"
                     : !is_first                     ? " tied"
                     : member.tensor.requires_grad() ? ""
                                                     : " frozen";
  return {indent + member.name,
          std::string(name_of(member.tensor.dtype())) + kind,
          member.tensor.shape().str(),
          counts ? with_commas(member.tensor.numel()) : "",
          "",
          ""};
}

/// A value of the map as text, or nothing.
template <class T, class Text>
std::string text_of(const std::unordered_map<const Module*, T>& values, const Module& module, const Text& text) {
  const auto found = values.find(&module);
  return found == values.end() ? std::string() : text(found->second);
}

void add_rows(const Module& module, int level, int depth, const Run& run, Seen& seen, std::vector<Row>& rows) {
  const std::string indent(static_cast<size_t>(2 * level), ' ');
  const std::string name = level == 0 && module.name().empty() ? "(root)" : module.local_name();
  rows.push_back({indent + name, module.type_name(), "", with_commas(module.num_parameters()),
                  text_of(run.shapes, module, [](const std::string& shape) { return shape; }),
                  text_of(run.flops, module, [](double flops) { return with_commas(std::llround(flops)); })});
  for (const Module::Member& member : module.members())
    rows.push_back(member_row(indent + "  ", member, seen.insert(member.tensor.impl()).second));
  if (level == depth) return;
  for (const Module* child : module.children()) add_rows(*child, level + 1, depth, run, seen, rows);
}

std::string format(const std::vector<Row>& rows) {
  std::array<size_t, 6> widths{};
  for (const Row& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  size_t rule = 0;
  for (size_t c = 0; c < widths.size(); ++c) rule += widths[c] + (c > 0 && widths[c] > 0 ? 2 : 0);
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const std::string padding(widths[c] - rows[r][c].size(), ' ');
      if (widths[c] == 0) continue;  // without a run
      text += c == 0 ? "" : "  ";
      text += c == 3 || c == 5 ? padding + rows[r][c] : rows[r][c] + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
    if (r == 0) text += std::string(rule, '-') + '\n';
  }
  return text;
}

/// The forward hooks of summary(), until it ends.
class ShapeHooks {
 public:
  ShapeHooks(Module& module, Run& run) {
    module.apply([&](Module& each) {
      const auto note = [&run](const Module& called, const Tensor&, const Tensor& y) {
        run.shapes[&called] = y.shape().str();
        return Tensor();
      };
      hooks_.emplace_back(&each, each.register_forward_hook(note));
    });
  }
  ~ShapeHooks() {
    for (const auto& [module, handle] : hooks_) module->remove_hook(handle);
  }
  ShapeHooks(const ShapeHooks&) = delete;
  ShapeHooks& operator=(const ShapeHooks&) = delete;

 private:
  std::vector<std::pair<Module*, int64_t>> hooks_;
};

/// Fills run.flops. A module that opens no range has the operations of its children.
double count_flops(const Module& module, const ProfileReport& report, Run& run) {
  double children = 0;
  for (const Module* child : module.children()) children += count_flops(*child, report, run);
  return run.flops[&module] = std::max(children, module.name().empty() ? 0 : report.flops_within(module.name()));
}

std::string table(const Module& module, const SummaryOptions& options, const Row& head, const Run& run) {
  TERN_CHECK(options.depth >= 0, "nn::summary: depth must be >= 0, got ", options.depth);
  std::vector<Row> rows = {head};
  Seen seen;
  add_rows(module, 0, options.depth, run, seen, rows);

  int64_t count = 0, trainable = 0, bytes = 0;
  for (const NamedTensor& parameter : module.parameters()) {
    count += parameter.tensor.numel();
    trainable += parameter.tensor.requires_grad() ? parameter.tensor.numel() : 0;
    bytes += parameter.tensor.nbytes();
  }
  return format(rows) + tern::detail::concatenate("total: ", with_commas(count), " parameters (",
                                                  with_commas(trainable), " trainable), ", with_unit(bytes), "\n");
}

}  // namespace

std::string summary(const Module& module, const SummaryOptions& options) {
  return table(module, options, {"name", "type", "shape", "parameters", "", ""}, {});
}

std::string summary(Module& module, const std::function<void()>& run, const SummaryOptions& options) {
  TERN_CHECK(run != nullptr, "nn::summary: run is an empty function");
  Run shown;
  {
    const ShapeHooks hooks(module, shown);
    Profiler profiler;
    run();
    const ProfileReport report = profiler.stop();
    count_flops(module, report, shown);
    double all = 0;
    for (const ProfileRow& row : report.rows()) all += row.flops;
    shown.flops[&module] = all;
  }
  return table(module, options, {"name", "type", "shape", "parameters", "output", "flops"}, shown);
}

}  // namespace tern::nn
