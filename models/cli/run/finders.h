#pragma once
// What --find-lr and --find-batch-size write and print.

#include <string>

#include "tern/models/cli/run/run_folder.h"
#include "tern/models/trainer/batch_finder.h"
#include "tern/models/trainer/lr_finder.h"

namespace tern::cli {

/// Writes lr_finder.json and lr_finder.svg into the folder. Throws Error if they cannot be written.
void write_finding(const RunFolder& folder, const models::LrFinding& finding);
/// "suggested learning rate 1.2e-03 (100 steps, loss 2.31 to 0.92; lr_finder.svg)", or that there is none.
std::string finding_text(const models::LrFinding& finding);

/// Writes batch_finder.json and batch_finder.svg. `unit`: what a size counts ("images"); `items`: what speed counts.
void write_finding(const RunFolder& folder, const models::BatchFinding& finding, const std::string& unit,
                   const std::string& items);
/// A table with a line for each size, then the largest and the fastest.
std::string finding_text(const models::BatchFinding& finding, const std::string& unit, const std::string& items);

}  // namespace tern::cli
