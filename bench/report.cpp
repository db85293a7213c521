#include "tern/bench/report.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "tern/bench/result_check.h"
#include "tern/bench/roofline.h"
#include "tern/bench/side.h"
#include "tern/core/io/json.h"
#include "tern/kernels/base/check.h"

namespace tern::bench {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "";
}

Json about_machine() {
  double load[1] = {0};
  getloadavg(load, 1);
  utsname system{};
  uname(&system);
  return {{"setting", describe_setting()},
          {"processor", processor_name()},
          {"system", std::string(system.sysname) + " " + system.release},
          {"load_before", load[0]}};
}

std::string number(const Json& line, const char* key, double scale, const char* format) {
  if (!line.contains(key)) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), format, line[key].get<double>() * scale);
  return text;
}

Json measure_row(const Row& row, double seconds) {
  if (!row.make_steps && device().is_cuda() && setting().check_results) {
    Work unused = row.work;
    check_results([&] { return row.make_call(unused); });
  }
  Timer timer(row);
  const std::vector<Sample> samples = take_samples(timer, seconds);
  const double time = seconds_per_item(samples, row.make_steps != nullptr);
  std::vector<double> times;
  for (const Sample& sample : samples) times.push_back(sample.per_item());
  const auto [fastest, slowest] = std::minmax_element(times.begin(), times.end());
  Json line = {
      {"seconds", time}, {"fastest_seconds", *fastest}, {"slowest_seconds", *slowest}, {"samples", samples.size()}};
  const Work& work = timer.work();
  if (row.make_steps) {
    double items = 0, cpu = 0;
    for (const Sample& sample : samples) {
      items += sample.items;
      cpu += sample.cpu_seconds;
    }
    line.update({{"unit", row.unit}, {"per_second", 1 / time}, {"cpu_seconds", cpu / items}});
    line.update(parse_json_object(timer.facts(), row.name));
  }
  if (work.bytes > 0) line["bytes/s"] = work.bytes / time;
  if (work.flops > 0) line["FLOP/s"] = work.flops / time;
  if (const double lower_bound = row.make_steps ? 0 : min_seconds(work); lower_bound > 0)
    line["share"] = lower_bound / time;
  if (device().is_cpu() || is_tiny()) return line;
  if (work.share_budget > 0) line["share_budget"] = work.share_budget;
  if (work.rate_budget > 0) line["FLOP/s_budget"] = work.rate_budget;
  return line;
}

/// The budget is a share of the roofline or a rate. Adds "met" to a line that has one.
std::string budget_text(Json& line) {
  std::string text;
  bool met = true;
  if (line.contains("share_budget")) {
    text = number(line, "share_budget", 100, "%.0f %%");
    met = line.value("share", 0.0) >= line["share_budget"];
  }
  if (line.contains("FLOP/s_budget")) {
    text = number(line, "FLOP/s_budget", 1e-9, "%.0f GFLOP/s");
    met = met && line.value("FLOP/s", 0.0) >= line["FLOP/s_budget"];
  }
  if (text.empty()) return text;
  line["met"] = met;
  return "  budget " + text + (met ? "" : ": below");
}

void show(const std::string& name, Json& line) {
  std::string rate;
  if (line.contains("unit"))
    rate = "  " + number(line, "per_second", 1, "%.0f") + " " + line["unit"].get<std::string>() + "/s";
  std::printf("%-56s %12s %9s %10s %8s%s%s\n", name.c_str(), time_text(line["seconds"].get<double>()).c_str(),
              number(line, "bytes/s", 1e-9, "%.1f").c_str(), number(line, "FLOP/s", 1e-9, "%.1f").c_str(),
              number(line, "share", 100, "%.1f %%").c_str(), rate.c_str(), budget_text(line).c_str());
}

}  // namespace

JsonLines::JsonLines(const std::string& path) : path_(path) {
  if (path.empty()) return;
  if (path != "-") file_.open(path, std::ios::trunc);
  add(about_machine());
}

void JsonLines::add(const Json& line) {
  if (path_.empty()) return;
  std::ostream& out = path_ == "-" ? std::cout : file_;
  out << line.dump() << std::endl;
  TERN_CHECK(out.good(), "--json: ", path_, " cannot be written");
}

std::string time_text(double seconds) {
  constexpr const char* kUnits[] = {"s", "ms", "us", "ns"};
  int unit = 0;
  while (unit < 3 && seconds < 1) {
    seconds *= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text),
                seconds < 10    ? "%.3f %s"
                : seconds < 100 ? "%.2f %s"
                                : "%.1f %s",
                seconds, kUnits[unit]);
  return text;
}

int measure_rows(const std::vector<Row>& rows, double seconds, JsonLines& lines) {
  std::printf("%-56s %12s %9s %10s %8s\n", "row", "time", "GB/s", "GFLOP/s", "share");
  int failures = 0;
  for (const Row& row : rows) {
    Json line;
    try {
      line = measure_row(row, seconds);
      show(row.name, line);
    } catch (const std::exception& error) {
      ++failures;
      line = {{"error", error.what()}};
      std::printf("%-56s FAILED: %s\n", row.name.c_str(), error.what());
    }
    line["name"] = row.name;
    lines.add(line);
    std::fflush(stdout);
  }
  return failures;
}

}  // namespace tern::bench
