#pragma once
// Plots as SVG documents: lines over an axis, and a grid of counts. Plain text that any browser shows.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tern::cli {

struct PlotLine {
  std::string name;
  std::vector<double> x,
      y;  // of equal length; points that are not finite, and x <= 0 on a logarithmic axis, are left out
};

struct LinePlot {
  std::string title = {}, x_label = {}, y_label = {};
  bool log_x = false;
  std::optional<double> y_top = {};  // the end of the y axis: what is above it is cut off
  std::vector<PlotLine> lines = {};
  std::optional<double> mark = {};  // an x with a vertical line
  std::string mark_label = {};
};
/// Throws Error if a line has x and y of different lengths.
std::string svg_of(const LinePlot& plot);

/// Counts by row and column, each cell as dark as its share of the row.
struct CountPlot {
  std::string title = {}, row_label = {}, column_label = {};
  std::vector<std::string> names = {};  // of rows and columns
  std::vector<int64_t> counts = {};     // [names, names], row by row
};
/// Throws Error if there are not names x names counts.
std::string svg_of(const CountPlot& plot);

}  // namespace tern::cli
