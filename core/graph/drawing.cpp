// Graphs as text for Graphviz and as SVG.

#include <algorithm>
#include <sstream>

#include "tern/core/graph/graph.h"

namespace tern {
namespace {

std::string escaped(const std::string& text, bool xml) {
  std::string result;
  for (const char c : text) {
    if (xml && (c == '<' || c == '>' || c == '&' || c == '"'))
      result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : "&quot;";
    else if (!xml && (c == '"' || c == '\\'))
      result += std::string("\\") + c;
    else
      result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result;
}

/// What is drawn: inputs and nodes as boxes, from which arrows lead to the nodes that read them. Constants are named
/// in the boxes of the nodes.
struct Drawing {
  struct Box {
    std::string title = {}, detail = {};
    bool is_input = false, is_output = false;
    std::vector<size_t> from = {};  // other boxes
    size_t row = 0;
    double x = 0;
  };
  std::vector<Box> boxes;

  explicit Drawing(const Graph& graph) {
    std::vector<size_t> box_of(graph.values().size(), SIZE_MAX);
    const auto value = [&](int v) -> const Graph::Value& { return graph.values()[static_cast<size_t>(v)]; };
    const auto shape = [&](int v) {
      std::ostringstream text;
      text << value(v).dtype << " [";
      for (size_t d = 0; d < value(v).shape.size(); ++d)
        text << (d == 0 ? "" : ", ") << value(v).shape[d].str(graph.symbols());
      text << "]";
      return text.str();
    };
    for (const int v : graph.inputs()) {
      box_of[static_cast<size_t>(v)] = boxes.size();
      boxes.push_back({.title = value(v).name, .detail = shape(v), .is_input = true});
    }
    for (const Graph::Node& node : graph.nodes()) {
      Box box{.title = node.op};
      for (const int v : node.inputs) {
        if (v < 0) continue;
        if (value(v).constant.defined()) {
          if (!value(v).name.empty() && (value(v).name[0] < '0' || value(v).name[0] > '9'))
            box.title += " " + value(v).name;
          continue;
        }
        const size_t from = box_of[static_cast<size_t>(v)];
        if (from == SIZE_MAX) continue;
        if (std::find(box.from.begin(), box.from.end(), from) == box.from.end()) box.from.push_back(from);
        box.row = std::max(box.row, boxes[from].row + 1);
      }
      for (const int v : node.outputs) {
        if (v < 0) continue;
        box_of[static_cast<size_t>(v)] = boxes.size();
        box.detail += (box.detail.empty() ? "" : ", ") + shape(v);
        if (std::find(graph.outputs().begin(), graph.outputs().end(), v) != graph.outputs().end()) box.is_output = true;
      }
      boxes.push_back(std::move(box));
    }
  }
};

}  // namespace

std::string Graph::dot() const {
  const Drawing drawing(*this);
  std::ostringstream text;
  text << "digraph tern {\n  node [fontname = \"sans-serif\", shape = box];\n";
  for (size_t b = 0; b < drawing.boxes.size(); ++b) {
    const Drawing::Box& box = drawing.boxes[b];
    text << "  n" << b << " [label = \"" << escaped(box.title, false) << "\\n"
         << escaped(box.detail, false) << "\""
         << (box.is_input    ? ", shape = ellipse"
             : box.is_output ? ", penwidth = 2"
                             : "")
         << "];\n";
    for (const size_t from : box.from) text << "  n" << from << " -> n" << b << ";\n";
  }
  text << "}\n";
  return text.str();
}

std::string Graph::svg() const {
  Drawing drawing(*this);
  constexpr double kWidth = 260, kHeight = 40, kGapX = 24, kGapY = 36, kMargin = 16;
  // Boxes stand in the row below the last that they read, in the order of the middle of what they read.
  size_t rows = 0;
  for (const Drawing::Box& box : drawing.boxes) rows = std::max(rows, box.row + 1);
  std::vector<std::vector<size_t>> in_row(rows);
  for (size_t b = 0; b < drawing.boxes.size(); ++b) in_row[drawing.boxes[b].row].push_back(b);
  size_t widest = 1;
  for (std::vector<size_t>& row : in_row) {
    const auto middle = [&](size_t b) {
      double sum = 0;
      for (const size_t from : drawing.boxes[b].from) sum += drawing.boxes[from].x;
      return drawing.boxes[b].from.empty() ? 0 : sum / static_cast<double>(drawing.boxes[b].from.size());
    };
    std::stable_sort(row.begin(), row.end(), [&](size_t a, size_t b) { return middle(a) < middle(b); });
    widest = std::max(widest, row.size());
    const double left = -static_cast<double>(row.size() - 1) / 2 * (kWidth + kGapX);
    for (size_t i = 0; i < row.size(); ++i) drawing.boxes[row[i]].x = left + static_cast<double>(i) * (kWidth + kGapX);
  }
  const double width = 2 * kMargin + static_cast<double>(widest) * (kWidth + kGapX) - kGapX;
  const double height = 2 * kMargin + static_cast<double>(std::max<size_t>(rows, 1)) * (kHeight + kGapY) - kGapY;
  const auto top = [&](const Drawing::Box& box) { return kMargin + static_cast<double>(box.row) * (kHeight + kGapY); };
  const auto center = [&](const Drawing::Box& box) { return width / 2 + box.x; };
  std::ostringstream text;
  text << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width << "\" height=\"" << height
       << "\" viewBox=\"0 0 " << width << " " << height << "\" font-family=\"sans-serif\" text-anchor=\"middle\">\n"
       << "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  for (const Drawing::Box& box : drawing.boxes)
    for (const size_t f : box.from) {
      const Drawing::Box& from = drawing.boxes[f];
      const double x0 = center(from), y0 = top(from) + kHeight, x1 = center(box), y1 = top(box);
      text << "<path d=\"M" << x0 << " " << y0 << " C" << x0 << " " << y0 + kGapY / 2 << " " << x1 << " "
           << y1 - kGapY / 2 << " " << x1 << " " << y1 << "\" fill=\"none\" stroke=\"#8a8f98\"/>\n";
    }
  for (const Drawing::Box& box : drawing.boxes) {
    const auto fitting = [](const std::string& line) { return line.size() > 42 ? line.substr(0, 39) + "..." : line; };
    text << "<rect x=\"" << center(box) - kWidth / 2 << "\" y=\"" << top(box) << "\" width=\"" << kWidth
         << "\" height=\"" << kHeight << "\" rx=\"" << (box.is_input ? kHeight / 2 : 5) << "\" fill=\""
         << (box.is_input ? "#e6f0fb" : "#f6f7f9") << "\" stroke=\"" << (box.is_output ? "#1f6feb" : "#8a8f98")
         << "\"/>\n"
         << "<text x=\"" << center(box) << "\" y=\"" << top(box) + 17 << "\" font-size=\"12\">"
         << escaped(fitting(box.title), true) << "</text>\n"
         << "<text x=\"" << center(box) << "\" y=\"" << top(box) + 32 << "\" font-size=\"10\" fill=\"#57606a\">"
         << escaped(fitting(box.detail), true) << "</text>\n";
  }
  text << "</svg>\n";
  return text.str();
}

}  // namespace tern
