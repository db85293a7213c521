#include "tern/bench/options.h"

#include <charconv>
#include <filesystem>
#include <iomanip>
#include <set>

#include "tern/bench/statistics.h"
#include "tern/kernels/base/check.h"

namespace tern::bench {
namespace {

template <class T>
T number(const char* flag, const std::string& text, T low, T high) {
  T value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  TERN_CHECK(problem == std::errc() && end == text.data() + text.size() && value >= low && value <= high, flag,
             ": expected a number from ", low, " to ", high, ", got '", text, "'");
  return value;
}

/// Those that every process of a comparison gets, then those of the one that compares.
constexpr size_t kForSides = 3;
std::vector<Flag> common_flags(Options& o) {
  return {
      {"--device", "DEVICE", "cpu (the default), cuda or cuda:N",
       [](const std::string& text) { setting().device = parse_device(text); }},
      {"--threads", "N", "threads on the CPU (default: the cores that the process may use)",
       [](const std::string& text) { kernels::set_num_threads(number("--threads", text, 1, 1024)); }},
      {"--tiny", nullptr, "shapes of a few elements: a smoke test, not a measurement",
       [](const std::string&) { setting().tiny = true; }},
      {"--rows", "TEXT,...", "rows whose name contains one of the texts; with -TEXT not those",
       [&o](const std::string& text) { o.rows = text; }},
      {"--seconds", "S", "of samples of each row (default: 0.3), at least three samples",
       [&o](const std::string& text) { o.seconds = number("--seconds", text, 0.0, 1e6); }},
      {"--json", "FILE", "write a line of JSON for each row as soon as it is done; -: to standard output",
       [&o](const std::string& text) { o.json = text; }},
      {"--no-check", nullptr, "on a GPU: do not compare the results with the CPU's first",
       [](const std::string&) { setting().check_results = false; }},
      {"--baseline", "PROGRAM", "compare with the same rows of this benchmark program of another build",
       [&o](const std::string& text) { o.baseline = text; }},
      {"--rounds", "N", "of a comparison (default: 10), each with new processes",
       [&o](const std::string& text) { o.rounds = number("--rounds", text, least_count(kConfidence), 10000); }},
      {"--noise", "SHARE",
       "no verdict where a second process of this program differs by more and the ratio not by twice that (0.03)",
       [&o](const std::string& text) { o.noise_limit = number("--noise", text, 0.0, 1.0); }},
      {"--clock", "CLOCK", "of a comparison: wall (the default), or cpu: processor time, where others use the cores",
       [&o](const std::string& text) {
         TERN_CHECK(text == "wall" || text == "cpu", "--clock: expected wall or cpu, got '", text, "'");
         o.clock = text == "cpu" ? Clock::kCpu : Clock::kWall;
       }},
      {"--list", nullptr, "print the names of the rows", [&o](const std::string&) { o.list = true; }},
      {"--serve", nullptr, "answer the process of a comparison on standard input",
       [&o](const std::string&) { o.serve = true; }},
      {"--help", nullptr, "print this", [&o](const std::string&) { o.help = true; }}};
}

}  // namespace

Options parse_options(int argc, char** argv, const std::vector<Flag>& flags) {
  Options options;
  options.program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<Flag> all = common_flags(options);
  const size_t common = all.size();
  all.insert(all.end(), flags.begin(), flags.end());
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    size_t index = 0;
    while (index < all.size() && name != all[index].name) ++index;
    TERN_CHECK(index < all.size(), "unknown argument '", word, "'; --help lists the options");
    const Flag& flag = all[index];
    std::string value;
    if (name.size() < word.size())
      value = word.substr(name.size() + 1);
    else if (flag.value && ++i < argc)
      value = argv[i];
    TERN_CHECK(!flag.value || i < argc, name, " needs a value: ", flag.value);
    TERN_CHECK(flag.value || name == word, name, " takes no value");
    flag.set(value);
    if (index < kForSides || index >= common) options.for_sides.push_back(flag.value ? name + "=" + value : name);
  }
  if (!options.help) require_available(device());
  return options;
}

std::string help_text(const std::string& program, const std::vector<Flag>& flags) {
  Options unused;
  std::vector<Flag> all = common_flags(unused);
  all.insert(all.end(), flags.begin(), flags.end());
  std::ostringstream text;
  text << "usage: " << program << " [options]\n\n";
  for (const Flag& flag : all)
    text << "  " << std::left << std::setw(20)
         << (std::string(flag.name) + (flag.value ? " " : "") + (flag.value ? flag.value : "")) << ' ' << flag.help
         << '\n';
  text << "\nWithout --baseline the exit status is 0, or 1 if a row failed. With it: 0 no row is slower, 1 one is "
          "slower or\n"
          "failed, 3 none is, but some have no verdict because the machine is too noisy. 2: it could not be done.\n";
  return text.str();
}

std::vector<Row> chosen_rows(const std::vector<Row>& all, const std::string& wanted) {
  std::vector<std::string> with, without;
  std::istringstream parts(wanted);
  for (std::string part; std::getline(parts, part, ',');) {
    if (part.starts_with('-'))
      without.push_back(part.substr(1));
    else if (!part.empty())
      with.push_back(part);
  }
  const auto contains = [](const std::vector<std::string>& texts, const std::string& name) {
    bool any = false;
    for (const std::string& text : texts) any = any || name.find(text) != std::string::npos;
    return any;
  };
  std::set<std::string> names;
  std::vector<Row> chosen;
  for (const Row& row : all) {
    TERN_CHECK(names.insert(row.name).second, "two rows have the name ", row.name);
    if ((with.empty() || contains(with, row.name)) && !contains(without, row.name)) chosen.push_back(row);
  }
  TERN_CHECK(!chosen.empty(), all.empty() ? "no rows are registered (bench::Rows)"
                                          : "no row matches --rows " + wanted + "; --list names all rows");
  return chosen;
}

}  // namespace tern::bench
