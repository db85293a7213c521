#include "tern/models/cli/run/finders.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tern/core/io/atomic_file.h"
#include "tern/models/cli/run/plot.h"

namespace tern::cli {
namespace {

std::string rate_text(double rate) {
  std::ostringstream text;
  text << std::scientific << std::setprecision(1) << rate;
  return text.str();
}

void write_json(const RunFolder& folder, const char* name, const Json& json) {
  write_atomically(folder.file(name), json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

/// The loss up to which the curve is drawn: half as much again as it varies up to its least value. What follows is the
/// divergence, beside which the rest would be a flat line.
std::optional<double> top_of_curve(const models::LrFinding& finding) {
  if (finding.losses.empty()) return std::nullopt;
  const auto least = std::min_element(finding.smoothed.begin(), finding.smoothed.end()) - finding.smoothed.begin();
  const double high = *std::max_element(finding.losses.begin(), finding.losses.begin() + least + 1);
  const double low = *std::min_element(finding.losses.begin(), finding.losses.end());
  return high + std::max(0.5 * (high - low), 0.1 * std::abs(high));
}

}  // namespace

void write_finding(const RunFolder& folder, const models::LrFinding& finding) {
  folder.check_own();
  write_json(folder, "lr_finder.json",
             {{"suggestion", finding.suggestion ? Json(*finding.suggestion) : Json(nullptr)},
              {"diverged", finding.diverged},
              {"lr", finding.rates},
              {"loss", finding.losses},
              {"smoothed", finding.smoothed}});
  LinePlot plot{.title = "Learning rate range test",
                .x_label = "learning rate",
                .y_label = "training loss",
                .log_x = true,
                .lines = {{"loss", finding.rates, finding.losses}, {"smoothed", finding.rates, finding.smoothed}},
                .mark = finding.suggestion};
  plot.y_top = top_of_curve(finding);
  if (finding.suggestion) plot.mark_label = rate_text(*finding.suggestion);
  write_atomically(folder.file("lr_finder.svg"), svg_of(plot));
}

std::string finding_text(const models::LrFinding& finding) {
  std::ostringstream text;
  if (finding.suggestion)
    text << "suggested learning rate " << rate_text(*finding.suggestion);
  else if (finding.rates.size() < models::kLeastLrFinderSteps && !finding.diverged)
    text << "no learning rate suggested: that needs " << models::kLeastLrFinderSteps
         << " steps, and the run has fewer; give more --epochs, a larger --max-steps or a smaller --batch-size (packed "
            "texts: --batch-tokens)";
  else
    text << "no learning rate suggested: the loss fell clearly at none";
  text << " (" << finding.rates.size() << " steps" << (finding.diverged ? ", until the loss diverged" : "") << ")";
  return text.str();
}

void write_finding(const RunFolder& folder, const models::BatchFinding& finding, const std::string& unit,
                   const std::string& items) {
  folder.check_own();
  Json trials = Json::array();
  PlotLine speed{items + "/s", {}, {}};
  for (const models::BatchTrial& trial : finding.trials) {
    trials.push_back({{"size", trial.size},
                      {items + "_per_second", trial.items_per_second},
                      {"step_seconds", trial.step_seconds},
                      {"peak_memory_bytes", trial.peak_bytes}});
    speed.x.push_back(static_cast<double>(trial.size));
    speed.y.push_back(trial.items_per_second);
  }
  const models::BatchTrial* const fastest = finding.fastest();
  write_json(folder, "batch_finder.json",
             {{"unit", unit},
              {"largest", finding.trials.empty() ? Json(nullptr) : Json(finding.trials.back().size)},
              {"too_large", finding.too_large > 0 ? Json(finding.too_large) : Json(nullptr)},
              {"fastest", fastest ? Json(fastest->size) : Json(nullptr)},
              {"trials", trials}});
  write_atomically(folder.file("batch_finder.svg"), svg_of(LinePlot{.title = "Speed by the size of a batch",
                                                                    .x_label = unit + " of a batch",
                                                                    .y_label = items + " per second",
                                                                    .log_x = true,
                                                                    .lines = {speed}}));
}

std::string finding_text(const models::BatchFinding& finding, const std::string& unit, const std::string& items) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(0) << std::setw(10) << unit << std::setw(14) << items + "/s" << std::setw(12)
       << "ms a step" << std::setw(10) << "peak MiB"
       << "\n";
  for (const models::BatchTrial& trial : finding.trials)
    text << std::setw(10) << trial.size << std::setw(14) << trial.items_per_second << std::setw(12)
         << 1e3 * trial.step_seconds << std::setw(10) << (trial.peak_bytes >> 20) << "\n";
  if (finding.trials.empty()) {
    text << "not even a batch of " << finding.too_large << " " << unit << " fits into memory";
    return text.str();
  }
  text << "largest that fits: " << finding.trials.back().size << " " << unit;
  if (finding.too_large > 0)
    text << " (" << finding.too_large << " do not)";
  else
    text << " (no larger one was tried)";
  text << "; fastest: " << finding.fastest()->size;
  return text.str();
}

}  // namespace tern::cli
