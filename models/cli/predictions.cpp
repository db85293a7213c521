#include "tern/models/cli/predictions.h"

#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tern/kernels/base/check.h"

namespace tern::cli {

void print_predictions(const std::vector<models::Prediction>& predictions, const std::vector<std::string>& labels,
                       bool jsonl) {
  using Json = nlohmann::ordered_json;
  for (const models::Prediction& p : predictions) {
    const std::string& label = labels[static_cast<size_t>(p.label)];
    if (jsonl)
      std::cout << Json({{"label", label}, {"score", p.score}, {"logits", p.logits}})
                       .dump(-1, ' ', false, Json::error_handler_t::replace)
                << "\n";
    else
      std::cout << label << "\t" << std::fixed << std::setprecision(6) << p.score << "\n";
  }
  std::cout.flush();
  TERN_CHECK(std::cout, "stdout: cannot be written (closed or full)");
}

}  // namespace tern::cli
