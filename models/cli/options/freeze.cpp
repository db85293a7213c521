#include "tern/models/cli/options/freeze.h"

#include <algorithm>
#include <vector>

#include "tern/models/cli/options/options.h"
#include "tern/models/families.h"

namespace tern::cli {
namespace {

/// The texts between commas; one more than there are commas.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(',', begin)) != std::string::npos; begin = end + 1)
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

/// A pattern for each module with parameters, and the names of the parameters: "layer1.*", "layer1.0.*", ...
std::vector<std::string> patterns_of(const std::vector<NamedTensor>& parameters) {
  std::vector<std::string> patterns;
  const auto add = [&](const std::string& pattern) {
    if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end()) patterns.push_back(pattern);
  };
  for (const NamedTensor& parameter : parameters) {
    for (size_t dot = 0; (dot = parameter.name.find('.', dot)) != std::string::npos; ++dot)
      add(parameter.name.substr(0, dot) + ".*");
    add(parameter.name);
  }
  return patterns;
}

[[noreturn]] void fail_unmatched(const std::string& pattern, const std::vector<NamedTensor>& parameters) {
  const std::vector<std::string> known = patterns_of(parameters);
  const std::string near = nearest(pattern, known);
  std::vector<std::string> outermost;
  for (const std::string& candidate : known) {
    const size_t dot = candidate.find('.');
    if (dot == std::string::npos || candidate.substr(dot) == ".*") outermost.push_back(candidate);
  }
  throw UsageError("--freeze: no parameter of the model matches '" + tern::detail::printable(pattern) + "'" +
                   (near.empty() ? "" : ", did you mean '" + near + "'?") + "; its parts are " +
                   models::in_words(outermost, " and "));
}

}  // namespace

bool is_freeze_option(const std::string& text) {
  constexpr const char* kOfPatterns = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.*?[]!-";
  const std::vector<std::string> parts = parts_of(text);
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    return !part.empty() && part.find_first_not_of(kOfPatterns) == std::string::npos;
  });
}

void freeze(nn::Module& model, const std::string& patterns) {
  if (patterns.empty()) return;
  const std::vector<NamedTensor> parameters = model.parameters();
  for (const std::string& pattern : parts_of(patterns)) {
    if (model.parameters(pattern).empty()) fail_unmatched(pattern, parameters);
    model.freeze(pattern);
  }
  const bool trained = std::any_of(parameters.begin(), parameters.end(),
                                   [](const NamedTensor& parameter) { return parameter.tensor.requires_grad(); });
  if (!trained)
    throw UsageError("--freeze: '" + patterns + "' matches every parameter, so that nothing is left to train");
}

}  // namespace tern::cli
