#pragma once
// Options as run.json holds them.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tern/models/cli/options/options.h"

namespace tern::cli {

/// An entry for every option, under its recorded name; null for an option of std::optional type that is not given.
nlohmann::ordered_json to_record(const Options& options);

/// Sets the options from such an object. What it lacks, or has as null, keeps its value. Throws Error, which begins
/// with `source`, where a value has another type or is one that no run is started with.
void from_record(Options& options, const nlohmann::ordered_json& record, const std::string& source);

/// What must be equal on all ranks of a job: lines "--lr 0.001".
std::string lines_to_compare(const Options& options);

/// The options that a run must be resumed with and is not, "--lr was 0.001 and is 0.002; ..."; empty: there are none.
/// An option that `before` lacks had its default; what `before` has beyond `now` is a difference. `options` gives the
/// table.
std::string record_differences(const Options& options, const nlohmann::ordered_json& before,
                               const nlohmann::ordered_json& now);

/// A value as text for a message. Names of files may hold any bytes.
std::string json_text(const nlohmann::ordered_json& value);

}  // namespace tern::cli
