#include "tern/models/cli/options/option_record.h"

#include <nlohmann/json.hpp>

#include "tern/core/io/json.h"
#include "tern/kernels/base/check.h"

namespace tern::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const OptionValue& value) {
  const auto json = [](const auto& stored) -> Json {
    if constexpr (std::is_same_v<std::decay_t<decltype(stored)>, std::optional<double>>)
      return stored ? Json(*stored) : Json(nullptr);
    else
      return stored;
  };
  return std::visit(json, value);
}

/// Sets a value of the row's type; false when the JSON value is not of that type or does not fit.
bool from_json(const Json& json, OptionValue& value) {
  const auto read = [&](auto& stored) {
    using T = std::decay_t<decltype(stored)>;
    bool good = false;
    if constexpr (std::is_same_v<T, std::string>)
      good = json.is_string();
    else if constexpr (std::is_same_v<T, bool>)
      good = json.is_boolean();
    else if constexpr (std::is_same_v<T, uint64_t>)
      good = json.is_number_unsigned();
    else if constexpr (std::is_integral_v<T>)
      good = integer_in(json) && std::in_range<T>(*integer_in(json));
    else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>)
      good = json.is_number();
    if constexpr (std::is_same_v<T, std::optional<double>>) {
      if (good) stored = json.get<double>();
    } else {
      if (good) stored = json.get<T>();
    }
    return good;
  };
  return std::visit(read, value);
}

/// A value of the row for a message.
std::string value_text(const OptionRow& row, const Json& value) {
  if (value == to_json(row.initial) && row.shown_default().empty()) return "not given";
  return row.is_flag() ? "given" : json_text(value);
}

}  // namespace

nlohmann::ordered_json to_record(const Options& options) {
  Json record = Json::object();
  for (const OptionRow& row : options.rows()) record[row.recorded_name()] = to_json(row.get(options));
  return record;
}

void from_record(Options& options, const nlohmann::ordered_json& record, const std::string& source) {
  for (const OptionRow& row : options.rows()) {
    const auto found = record.find(row.recorded_name());
    if (found == record.end() || found->is_null()) continue;
    OptionValue value = row.initial;
    const bool good = from_json(*found, value) && (value == row.initial || row.accepts(value));
    TERN_CHECK(good, source, ": the option \"", row.recorded_name(), "\" is ", shortened(*found), "; it must be ",
               row.accepted());
    row.set(options, value);
  }
}

std::string lines_to_compare(const Options& options) {
  std::string lines;
  for (const OptionRow& row : options.rows()) {
    const Compared compared = row.spec.compared;
    if (compared == Compared::kEverywhere || compared == Compared::kBetweenRanks)
      lines += row.spec.name + " " + json_text(to_json(row.get(options))) + "\n";
  }
  return lines;
}

std::string record_differences(const Options& options, const nlohmann::ordered_json& before,
                               const nlohmann::ordered_json& now) {
  std::string differences;
  const auto add = [&](const std::string& difference) {
    differences += (differences.empty() ? "" : "; ") + difference;
  };
  for (const OptionRow& row : options.rows()) {
    const Compared compared = row.spec.compared;
    if (compared != Compared::kEverywhere && compared != Compared::kAtResume) continue;
    const std::string name = row.recorded_name();
    const Json earlier = before.contains(name) ? before[name] : to_json(row.initial);
    if (earlier == now.at(name)) continue;
    add(row.spec.name + " was " + value_text(row, earlier) + " and is " + value_text(row, now.at(name)));
  }
  for (const auto& [name, value] : before.items())
    if (!now.contains(name)) add("\"" + name + "\" was " + json_text(value) + " and is no option of this program");
  return differences;
}

std::string json_text(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tern::cli
