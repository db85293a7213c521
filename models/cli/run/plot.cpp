#include "tern/models/cli/run/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>

#include "tern/core/io/pickle.h"
#include "tern/kernels/base/check.h"

namespace tern::cli {
namespace {

constexpr const char* kColors[] = {"#1f5fa0", "#d1495b", "#2a9d55", "#8a5fbf"};

std::string number(double value, const char* format) {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}
/// A coordinate: hundredths of a pixel.
std::string at(double pixels) { return number(pixels, "%.2f"); }

/// Text as XML has it. Bytes that are no text are written as printable() does.
std::string xml_text(const std::string& text, size_t limit = 200) {
  std::string escaped;
  for (const char c : tern::detail::printable(text, limit)) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else if (c == '"')
      escaped += "&quot;";
    else
      escaped += c;
  }
  return escaped;
}

/// About, in pixels, and rather too much: fonts differ.
double text_width(const std::string& text, double font_size) {
  const auto is_character = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  return 7.0 / 12 * font_size * static_cast<double>(std::count_if(text.begin(), text.end(), is_character));
}

constexpr double kTitleSize = 15;

/// The elements of a document, in pixels from the upper left corner.
class Svg {
 public:
  Svg(double width, double height, const std::string& title) {
    const std::string size = "width=\"" + at(width) + "\" height=\"" + at(height) + "\"";
    text_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size + ">\n<title>" + xml_text(title) + "</title>\n<rect " +
            size + " fill=\"white\"/>\n<g font-family=\"sans-serif\" font-size=\"12\">\n";
    text(width / 2, 22, title, "middle", " font-size=\"" + number(kTitleSize, "%g") + "\"");
  }
  /// anchor: start, middle or end.
  void text(double x, double y, const std::string& what, const char* anchor, const std::string& more = "") {
    text_ += "<text x=\"" + at(x) + "\" y=\"" + at(y) + "\" text-anchor=\"" + anchor + "\"" + more + ">" +
             xml_text(what) + "</text>\n";
  }
  /// The same, read from below.
  void steep_text(double x, double y, const std::string& what, const char* anchor, int degrees) {
    text(x, y, what, anchor, " transform=\"rotate(-" + std::to_string(degrees) + " " + at(x) + " " + at(y) + ")\"");
  }
  void line(double x1, double y1, double x2, double y2, const std::string& color, const std::string& more = "") {
    text_ += "<line x1=\"" + at(x1) + "\" y1=\"" + at(y1) + "\" x2=\"" + at(x2) + "\" y2=\"" + at(y2) + "\" stroke=\"" +
             color + "\"" + more + "/>\n";
  }
  void rect(double x, double y, double width, double height, const std::string& more) {
    text_ += "<rect x=\"" + at(x) + "\" y=\"" + at(y) + "\" width=\"" + at(width) + "\" height=\"" + at(height) + "\"" +
             (more.empty() ? "" : " " + more) + "/>\n";
  }
  /// Defines the rectangle that polylines are cut to.
  void clip_to(double x, double y, double width, double height) {
    text_ += "<clipPath id=\"inside\">\n";
    rect(x, y, width, height, "");
    text_ += "</clipPath>\n";
  }
  /// points: "x,y x,y ..."
  void polyline(const std::string& points, const std::string& color) {
    text_ += "<polyline points=\"" + points + "\" fill=\"none\" stroke=\"" + color +
             "\" stroke-width=\"1.5\" clip-path=\"url(#inside)\"/>\n";
  }
  std::string document() const { return text_ + "</g>\n</svg>\n"; }

 private:
  std::string text_;
};

/// From values to pixels, and the values that are marked.
class Axis {
 public:
  Axis(double low, double high, bool logarithmic, double from, double to)
      : logarithmic_(logarithmic), from_(from), to_(to) {
    low_ = logarithmic ? std::log10(low) : low;
    high_ = logarithmic ? std::log10(high) : high;
    if (high_ - low_ > 1e-12 * std::max(std::abs(low_), std::abs(high_))) return;
    const double room = 0.5 * std::max(1.0, std::abs(low_));
    low_ -= room;
    high_ += room;
  }
  double place(double value) const {
    const double x = logarithmic_ ? std::log10(value) : value;
    return from_ + (x - low_) / (high_ - low_) * (to_ - from_);
  }
  /// Multiples of 1, 2 or 5 times a power of ten; on a logarithmic axis powers of ten, if there are two.
  std::vector<double> ticks() const {
    const double rough = (high_ - low_) / 6, power = std::pow(10.0, std::floor(std::log10(rough)));
    const double step = power * (rough <= power ? 1 : rough <= 2 * power ? 2 : rough <= 5 * power ? 5 : 10);
    const bool powers = logarithmic_ && std::floor(high_) > std::ceil(low_);
    const double width = powers ? std::max(1.0, std::round(step)) : step;
    std::vector<double> values;
    for (double i = std::ceil(low_ / width - 1e-9); i * width <= high_ + 1e-9 * width; ++i) {
      const double x = std::abs(i * width) < 1e-9 * width ? 0 : i * width;
      values.push_back(logarithmic_ ? std::pow(10.0, x) : x);
    }
    return values;
  }

 private:
  bool logarithmic_;
  double from_, to_, low_, high_;
};

/// The range of what is drawn; 1 to 2 where nothing is.
struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  Range or_unit() const { return low <= high ? *this : Range{1, 2}; }
};

bool is_drawn(const LinePlot& plot, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (!plot.log_x || x > 0);
}

constexpr double kLegend = 44;  // the line of the names
constexpr double kLeft = 80, kRight = 700, kTop = 66, kBottom = 416;

void draw_axes(Svg& svg, const LinePlot& plot, const Axis& horizontal, const Axis& vertical) {
  for (const double x : horizontal.ticks()) {
    svg.line(horizontal.place(x), kTop, horizontal.place(x), kBottom, "#dddddd");
    svg.text(horizontal.place(x), kBottom + 18, number(x, "%.4g"), "middle");
  }
  for (const double y : vertical.ticks()) {
    svg.line(kLeft, vertical.place(y), kRight, vertical.place(y), "#dddddd");
    svg.text(kLeft - 8, vertical.place(y) + 4, number(y, "%.4g"), "end");
  }
  svg.line(kLeft, kBottom, kRight, kBottom, "black");
  svg.line(kLeft, kTop, kLeft, kBottom, "black");
  svg.text((kLeft + kRight) / 2, kBottom + 40, plot.x_label, "middle");
  svg.steep_text(20, (kTop + kBottom) / 2, plot.y_label, "middle", 90);
}

}  // namespace

std::string svg_of(const LinePlot& plot) {
  Range x_range, y_range;
  for (const PlotLine& line : plot.lines) {
    TERN_CHECK(line.x.size() == line.y.size(), "plot: the line '", line.name, "' has ", line.x.size(), " x and ",
               line.y.size(), " y");
    for (size_t i = 0; i < line.x.size(); ++i) {
      if (!is_drawn(plot, line.x[i], line.y[i])) continue;
      x_range.add(line.x[i]);
      y_range.add(line.y[i]);
    }
  }
  const auto [x_low, x_high] = x_range.or_unit();
  auto [y_low, y_high] = y_range.or_unit();
  if (plot.y_top) y_high = std::max(y_low, std::min(y_high, *plot.y_top));
  const Axis horizontal(x_low, x_high, plot.log_x, kLeft, kRight), vertical(y_low, y_high, false, kBottom, kTop);
  Svg svg(kRight + 20, kBottom + 60, plot.title);
  draw_axes(svg, plot, horizontal, vertical);
  svg.clip_to(kLeft, kTop, kRight - kLeft, kBottom - kTop);
  double name_x = kLeft;  // the names stand above the curves, side by side
  for (size_t l = 0; l < plot.lines.size(); ++l) {
    const PlotLine& line = plot.lines[l];
    const std::string color = kColors[l % std::size(kColors)];
    std::string points;
    for (size_t i = 0; i < line.x.size(); ++i)
      if (is_drawn(plot, line.x[i], line.y[i]))
        points += (points.empty() ? "" : " ") + at(horizontal.place(line.x[i])) + "," + at(vertical.place(line.y[i]));
    svg.polyline(points, color);
    svg.text(name_x, kLegend, line.name, "start", " fill=\"" + color + "\"");
    name_x += text_width(line.name, 12) + 20;
  }
  if (plot.mark && std::isfinite(*plot.mark) && (!plot.log_x || *plot.mark > 0)) {
    const double x = std::clamp(horizontal.place(*plot.mark), kLeft, kRight);
    svg.line(x, kTop, x, kBottom, "#d1495b", " stroke-dasharray=\"4 3\"");
    svg.text(x, kTop - 6, plot.mark_label, "middle", " fill=\"#d1495b\"");
  }
  return svg.document();
}

std::string svg_of(const CountPlot& plot) {
  const size_t n = plot.names.size();
  TERN_CHECK(plot.counts.size() == n * n, "plot: ", plot.counts.size(), " counts for ", n, " names; expected ", n * n);
  const double count = static_cast<double>(n), cell = std::clamp(600 / std::max(count, 1.0), 2.0, 40.0);
  constexpr size_t kNameBytes = 20;
  double longest = 0;
  std::vector<std::string> shown;
  for (const std::string& name : plot.names) {
    shown.push_back(tern::detail::printable(name, kNameBytes));
    longest = std::max(longest, text_width(shown.back(), 12));
  }
  const double names = cell >= 10 ? 16 + longest : 10;
  const double left = 30 + names, top = 60 + names, side = cell * count;
  Svg svg(std::max({left + side, 300.0, text_width(plot.title, kTitleSize)}) + 20, top + side + 20, plot.title);
  svg.text(left + side / 2, 46, plot.column_label, "middle");
  svg.steep_text(20, top + side / 2, plot.row_label, "middle", 90);
  for (size_t row = 0; row < n; ++row) {
    const double y = top + cell * static_cast<double>(row), x = left + cell * static_cast<double>(row);
    if (cell >= 10) {
      svg.text(left - 6, y + cell / 2 + 4, shown[row], "end");
      svg.steep_text(x + cell / 2 + 4, top - 6, shown[row], "start", 90);
    }
    const int64_t* counts = plot.counts.data() + row * n;
    const int64_t total = std::accumulate(counts, counts + n, int64_t{0});
    for (size_t column = 0; column < n; ++column) {
      if (counts[column] == 0) continue;
      const double share = static_cast<double>(counts[column]) / static_cast<double>(total);
      const double cell_x = left + cell * static_cast<double>(column);
      svg.rect(cell_x, y, cell, cell, "fill=\"#1f5fa0\" fill-opacity=\"" + number(0.05 + 0.95 * share, "%.3f") + "\"");
      if (cell >= 24)
        svg.text(cell_x + cell / 2, y + cell / 2 + 4, std::to_string(counts[column]), "middle",
                 share > 0.5 ? " fill=\"white\"" : "");
    }
  }
  svg.rect(left, top, side, side, "fill=\"none\" stroke=\"black\"");
  return svg.document();
}

}  // namespace tern::cli
