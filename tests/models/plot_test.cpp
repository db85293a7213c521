// SVG documents: the whole text for small input, well-formed XML for any.

#include "tern/models/cli/run/plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tern/tests/errors.h"
#include "tern/tests/support/seed.h"

namespace tern::cli {
namespace {

/// What keeps a text from being well-formed XML, as far as SVG of this program uses it: elements, attributes in double
/// quotes, the four entities. Empty: nothing.
std::string xml_problem(const std::string& text) {
  std::vector<std::string> open;
  const auto problem = [&](const std::string& what, size_t at) { return what + " near " + text.substr(at, 40); };
  const auto good_text = [](const std::string& part) {
    for (size_t i = 0; i < part.size(); ++i) {
      if (static_cast<unsigned char>(part[i]) < 0x20 && part[i] != '\n') return false;
      if (part[i] == '<' || part[i] == '>') return false;
      if (part[i] != '&') continue;
      const std::string entity = part.substr(i, part.find(';', i) - i);
      if (entity != "&amp" && entity != "&lt" && entity != "&gt" && entity != "&quot") return false;
    }
    return true;
  };
  size_t at = 0;
  bool any = false;
  while (at < text.size()) {
    const size_t tag = text.find('<', at);
    const std::string between = text.substr(at, tag - at);
    if (!good_text(between)) return problem("text", at);
    if (open.empty() && between.find_first_not_of('\n') != between.npos) return problem("text outside", at);
    if (tag == text.npos) break;
    const size_t end = text.find('>', tag);
    if (end == text.npos) return problem("tag without end", tag);
    std::string inside = text.substr(tag + 1, end - tag - 1);
    at = end + 1;
    if (inside[0] == '/') {
      if (open.empty() || open.back() != inside.substr(1)) return problem("closing tag", tag);
      open.pop_back();
      continue;
    }
    if (any && open.empty()) return problem("second root", tag);
    any = true;
    const bool closed = inside.back() == '/';
    if (closed) inside.pop_back();
    const size_t space = std::min(inside.find(' '), inside.size());
    for (size_t i = space; i < inside.size();) {
      const size_t equals = inside.find("=\"", i), quote = inside.find('"', equals + 2);
      if (inside[i] != ' ' || equals == inside.npos || quote == inside.npos) return problem("attribute", tag + i);
      if (!good_text(inside.substr(equals + 2, quote - equals - 2))) return problem("attribute's text", tag + i);
      i = quote + 1;
    }
    if (!closed) open.push_back(inside.substr(0, space));
  }
  return open.empty() && any ? "" : "unclosed " + (open.empty() ? "nothing" : open.back());
}

TEST(Plot, TheCheckFindsWhatIsWrong) {
  EXPECT_EQ(xml_problem("<a><b c=\"d\"/>e &lt; f</a>\n"), "");
  for (const char* wrong : {"", "<a>", "<a></b>", "<a/><b/>", "<a b=c/>", "<a>&</a>", "<a b=\"&x;\"/>", "<a>\x01</a>",
                            "<a><b></a></b>", "x<a/>", "<a b=\"1\"c=\"2\"/>"})
    EXPECT_NE(xml_problem(wrong), "") << wrong;
}

constexpr const char* kLines = R"svg(<svg xmlns="http://www.w3.org/2000/svg" width="720.00" height="476.00">
<title>loss &amp; rate</title>
<rect width="720.00" height="476.00" fill="white"/>
<g font-family="sans-serif" font-size="12">
<text x="360.00" y="22.00" text-anchor="middle" font-size="15">loss &amp; rate</text>
<line x1="80.00" y1="66.00" x2="80.00" y2="416.00" stroke="#dddddd"/>
<text x="80.00" y="434.00" text-anchor="middle">0.01</text>
<line x1="390.00" y1="66.00" x2="390.00" y2="416.00" stroke="#dddddd"/>
<text x="390.00" y="434.00" text-anchor="middle">0.1</text>
<line x1="700.00" y1="66.00" x2="700.00" y2="416.00" stroke="#dddddd"/>
<text x="700.00" y="434.00" text-anchor="middle">1</text>
<line x1="80.00" y1="416.00" x2="700.00" y2="416.00" stroke="#dddddd"/>
<text x="72.00" y="420.00" text-anchor="end">1</text>
<line x1="80.00" y1="328.50" x2="700.00" y2="328.50" stroke="#dddddd"/>
<text x="72.00" y="332.50" text-anchor="end">1.5</text>
<line x1="80.00" y1="241.00" x2="700.00" y2="241.00" stroke="#dddddd"/>
<text x="72.00" y="245.00" text-anchor="end">2</text>
<line x1="80.00" y1="153.50" x2="700.00" y2="153.50" stroke="#dddddd"/>
<text x="72.00" y="157.50" text-anchor="end">2.5</text>
<line x1="80.00" y1="66.00" x2="700.00" y2="66.00" stroke="#dddddd"/>
<text x="72.00" y="70.00" text-anchor="end">3</text>
<line x1="80.00" y1="416.00" x2="700.00" y2="416.00" stroke="black"/>
<line x1="80.00" y1="66.00" x2="80.00" y2="416.00" stroke="black"/>
<text x="390.00" y="456.00" text-anchor="middle">rate</text>
<text x="20.00" y="241.00" text-anchor="middle" transform="rotate(-90 20.00 241.00)">loss</text>
<clipPath id="inside">
<rect x="80.00" y="66.00" width="620.00" height="350.00"/>
</clipPath>
<polyline points="80.00,416.00 390.00,241.00 700.00,66.00" fill="none" stroke="#1f5fa0" stroke-width="1.5" clip-path="url(#inside)"/>
<text x="80.00" y="44.00" text-anchor="start" fill="#1f5fa0">smoothed</text>
<line x1="390.00" y1="66.00" x2="390.00" y2="416.00" stroke="#d1495b" stroke-dasharray="4 3"/>
<text x="390.00" y="60.00" text-anchor="middle" fill="#d1495b">0.1</text>
</g>
</svg>
)svg";

TEST(Plot, Lines) {
  // The points with NaN and at 0, where a logarithm has no place, are left out.
  const LinePlot plot{.title = "loss & rate",
                      .x_label = "rate",
                      .y_label = "loss",
                      .log_x = true,
                      .lines = {{"smoothed", {0, 0.01, 0.05, 0.1, 1}, {9, 1, NAN, 2, 3}}},
                      .mark = 0.1,
                      .mark_label = "0.1"};
  EXPECT_EQ(svg_of(plot), kLines);
}

/// The number after `attribute="` in the document's first element, and in the first text that reads `what`.
double number_in(const std::string& text, const std::string& attribute) {
  return std::stod(text.substr(text.find(attribute + "=\"") + attribute.size() + 2));
}
double place_of(const std::string& svg, const std::string& attribute, const std::string& what) {
  const size_t end = svg.find(">" + what + "</text>");
  return number_in(svg.substr(svg.rfind("<text", end)), attribute);
}

TEST(Plot, WhatIsAboveTheTopIsCutOff) {
  const LinePlot plot{.y_top = 3, .lines = {{"a", {1, 2, 3}, {1, 2, 300}}}};
  const std::string svg = svg_of(plot);
  // 1 is at the bottom, 2 in the middle, and the last point far above the rectangle to which the line is cut.
  EXPECT_NE(svg.find("<polyline points=\"80.00,416.00 390.00,241.00 700.00,-51909.00\""), svg.npos) << svg;
  EXPECT_EQ(svg_of(LinePlot{.y_top = 500, .lines = plot.lines}), svg_of(LinePlot{.lines = plot.lines}));
  EXPECT_EQ(xml_problem(svg_of(LinePlot{.y_top = -1, .lines = plot.lines})), "");
}

TEST(Plot, NamesStandAboveTheCurves) {
  const std::string svg =
      svg_of(LinePlot{.title = "t", .lines = {{"first", {1, 2}, {5, 5}}, {"second", {1, 2}, {6, 6}}}});
  for (const char* name : {"first", "second"})
    EXPECT_LT(place_of(svg, "y", name), number_in(svg.substr(svg.find("clipPath")), "y"));
  EXPECT_GT(place_of(svg, "x", "second"), place_of(svg, "x", "first") + 20);
}

/// A character takes at most about two thirds of the font's size.
TEST(Plot, TitlesAndNamesFit) {
  const std::string title = "accuracy 85.33 % (300 rows, loss 0.5264), of a file with a name of its own";
  EXPECT_GT(number_in(svg_of(CountPlot{title, "label", "predicted", {"a", "b"}, {1, 0, 0, 1}}), "width"),
            static_cast<double>(title.size()) * 15 * 0.58);
  const std::string named = svg_of(CountPlot{"t", "label", "predicted", {"\n\n\n\n\n", "b"}, {1, 0, 0, 1}});
  const std::string shown = "\\x0a\\x0a\\x0a\\x0a\\x0a";
  EXPECT_GT(place_of(named, "x", shown), static_cast<double>(shown.size()) * 7) << named;
}

constexpr const char* kCounts =
    R"svg(<svg xmlns="http://www.w3.org/2000/svg" width="320.00" height="190.00">
<title>t</title>
<rect width="320.00" height="190.00" fill="white"/>
<g font-family="sans-serif" font-size="12">
<text x="160.00" y="22.00" text-anchor="middle" font-size="15">t</text>
<text x="100.00" y="46.00" text-anchor="middle">predicted</text>
<text x="20.00" y="130.00" text-anchor="middle" transform="rotate(-90 20.00 130.00)">label</text>
<text x="54.00" y="114.00" text-anchor="end">a</text>
<text x="84.00" y="84.00" text-anchor="start" transform="rotate(-90 84.00 84.00)">a</text>
<rect x="60.00" y="90.00" width="40.00" height="40.00" fill="#1f5fa0" fill-opacity="0.762"/>
<text x="80.00" y="114.00" text-anchor="middle" fill="white">3</text>
<rect x="100.00" y="90.00" width="40.00" height="40.00" fill="#1f5fa0" fill-opacity="0.287"/>
<text x="120.00" y="114.00" text-anchor="middle">1</text>
<text x="54.00" y="154.00" text-anchor="end">b&lt;</text>
<text x="124.00" y="84.00" text-anchor="start" transform="rotate(-90 124.00 84.00)">b&lt;</text>
<rect x="60.00" y="90.00" width="80.00" height="80.00" fill="none" stroke="black"/>
</g>
</svg>
)svg";

TEST(Plot, Counts) {
  // The second label has no examples: its row is empty.
  EXPECT_EQ(svg_of(CountPlot{"t", "label", "predicted", {"a", "b<"}, {3, 1, 0, 0}}), kCounts);
}

/// Names and numbers of all kinds.
TEST(Plot, IsWellFormedWhateverIsDrawn) {
  std::mt19937_64 random = fresh_random();
  const auto any_text = [&] {
    std::string text;
    for (uint64_t i = random() % 30; i > 0; --i) text += static_cast<char>(random());
    std::replace(text.begin(), text.end(), 'n', 'm');  // "nan" would be a number
    return text + "<\"&>'";
  };
  const double special[] = {0, -0.0, NAN, INFINITY, -INFINITY, 1e-300, 1e300, -5, 7};
  for (int round = 0; round < 200; ++round) {
    LinePlot plot{any_text(), any_text(), any_text(), random() % 2 == 0};
    for (uint64_t l = random() % 6; l > 0; --l) {
      PlotLine line{any_text(), {}, {}};
      for (uint64_t i = random() % 5; i > 0; --i) {
        line.x.push_back(random() % 2 == 0 ? special[random() % 9] : static_cast<double>(random() % 100));
        line.y.push_back(random() % 2 == 0 ? special[random() % 9] : 1e-3 * static_cast<double>(random() % 100));
      }
      plot.lines.push_back(line);
    }
    plot.mark = special[random() % 9];
    plot.mark_label = any_text();
    const std::string lines = svg_of(plot);
    EXPECT_EQ(xml_problem(lines), "") << lines;
    EXPECT_LT(lines.size(), size_t{20000});
    EXPECT_EQ(lines.find("nan"), lines.npos) << lines;

    CountPlot counts{any_text(), any_text(), any_text(), {}, {}};
    const size_t n = random() % 3 == 0 ? random() % 90 : random() % 5;
    for (size_t i = 0; i < n; ++i) counts.names.push_back(any_text());
    for (size_t i = 0; i < n * n; ++i) counts.counts.push_back(static_cast<int64_t>(random() % 3));
    const std::string grid = svg_of(counts);
    EXPECT_EQ(xml_problem(grid), "") << grid.substr(0, 2000);
    EXPECT_EQ(grid.find("nan"), grid.npos);
  }
}

TEST(Plot, Errors) {
  EXPECT_EQ(test::error_of([] {
              svg_of(LinePlot{.lines = {{"a", {1, 2}, {1}}}});
            }),
            "plot: the line 'a' has 2 x and 1 y");
  EXPECT_EQ(test::error_of([] { svg_of(CountPlot{.names = {"a"}}); }), "plot: 0 counts for 1 names; expected 1");
}

}  // namespace
}  // namespace tern::cli
