#pragma once

#include <string>
#include <vector>

#include "tern/models/prediction.h"

namespace tern::cli {

/// Writes a line for each prediction to stdout: label and score, or with `jsonl` an object with the logits too. Throws
/// Error when stdout cannot be written.
void print_predictions(const std::vector<models::Prediction>& predictions, const std::vector<std::string>& labels,
                       bool jsonl);

}  // namespace tern::cli
