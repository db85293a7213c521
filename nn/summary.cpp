#include <algorithm>
#include <array>
#include <cstdio>
#include <unordered_set>

#include "tern/nn/module.h"

namespace tern::nn {
namespace {

using Row = std::array<std::string, 4>;  // name, type, shape, parameters
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
  return {indent + member.name, std::string(name_of(member.tensor.dtype())) + kind, member.tensor.shape().str(),
          counts ? with_commas(member.tensor.numel()) : ""};
}

void add_rows(const Module& module, int level, int depth, Seen& seen, std::vector<Row>& rows) {
  const std::string indent(static_cast<size_t>(2 * level), ' ');
  const std::string name = level == 0 && module.name().empty() ? "(root)" : module.local_name();
  rows.push_back({indent + name, module.type_name(), "", with_commas(module.num_parameters())});
  for (const Module::Member& member : module.members())
    rows.push_back(member_row(indent + "  ", member, seen.insert(member.tensor.impl()).second));
  if (level == depth) return;
  for (const Module* child : module.children()) add_rows(*child, level + 1, depth, seen, rows);
}

std::string format(const std::vector<Row>& rows) {
  std::array<size_t, 4> widths{};
  for (const Row& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const std::string padding(widths[c] - rows[r][c].size(), ' ');
      text += c == 3 ? padding + rows[r][c] : rows[r][c] + padding + "  ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
    if (r == 0) text += std::string(widths[0] + widths[1] + widths[2] + widths[3] + 6, '-') + '\n';
  }
  return text;
}

}  // namespace

std::string summary(const Module& module, const SummaryOptions& options) {
  TERN_CHECK(options.depth >= 0, "nn::summary: depth must be >= 0, got ", options.depth);
  std::vector<Row> rows = {{"name", "type", "shape", "parameters"}};
  Seen seen;
  add_rows(module, 0, options.depth, seen, rows);

  int64_t count = 0, trainable = 0, bytes = 0;
  for (const NamedTensor& parameter : module.parameters()) {
    count += parameter.tensor.numel();
    trainable += parameter.tensor.requires_grad() ? parameter.tensor.numel() : 0;
    bytes += parameter.tensor.nbytes();
  }
  return format(rows) + detail::concatenate("total: ", with_commas(count), " parameters (", with_commas(trainable),
                                            " trainable), ", with_unit(bytes), "\n");
}

}  // namespace tern::nn
