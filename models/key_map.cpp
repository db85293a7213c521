#include "tern/models/key_map.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/pickle.h"
#include "tern/core/ops/indexing/join.h"

namespace tern::models {
namespace {

/// The text that '*' matches if `name` matches `pattern`, otherwise nothing. A pattern without '*' gives "".
std::optional<std::string> match(const std::string& pattern, const std::string& name) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == name ? std::optional<std::string>("") : std::nullopt;
  const std::string head = pattern.substr(0, star), tail = pattern.substr(star + 1);
  if (name.size() < head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail)) return std::nullopt;
  const std::string middle = name.substr(head.size(), name.size() - head.size() - tail.size());
  const bool number = !middle.empty() && middle.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::optional(middle) : std::nullopt;
}

std::string fill(const std::string& pattern, const std::string& number) {
  const size_t star = pattern.find('*');
  return star == std::string::npos ? pattern : pattern.substr(0, star) + number + pattern.substr(star + 1);
}

bool has_prefix(const std::vector<std::string>& prefixes, const std::string& name) {
  for (const std::string& prefix : prefixes)
    if (name.starts_with(prefix)) return true;
  return false;
}

/// Collects all mismatches for one message.
class Problems {
 public:
  void missing(const std::string& name) { append(missing_, name); }
  void unexpected(const std::string& name) { append(unexpected_, name); }
  void wrong(const std::string& text) { append(wrong_, text); }
  void check(const std::string& source, const std::string& model) const {
    std::string text;
    if (!missing_.empty()) text += "; missing: " + missing_;
    if (!unexpected_.empty()) text += "; unexpected: " + unexpected_;
    if (!wrong_.empty()) text += "; not fitting: " + wrong_;
    TERN_CHECK(text.empty(), source, ": the tensors do not fit ", model, text);
  }

 private:
  static void append(std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; }
  std::string missing_, unexpected_, wrong_;
};

/// A norm's counter as a whole number: averages and 16-bit floats have lost it, and only an exact one is of use.
Tensor counter(const Tensor& value) {
  const double count = value.to(DType::kFloat64).item<double>();
  constexpr double kLargest = 0x1p53;
  return full({}, std::isnan(count) ? 0 : std::clamp(count, 0.0, kLargest), {.dtype = DType::kInt64});
}

/// The prefixes of names that end with a dot, each with the tensors that have it.
std::map<std::string, StateView> by_prefix(const StateView& state) {
  constexpr int kDepth = 8;  // dots of a prefix: no program writes more
  std::map<std::string, StateView> sets;
  for (const NamedTensor& entry : state) {
    size_t dot = entry.name.find('.');
    for (int i = 0; i < kDepth && dot != std::string::npos; ++i, dot = entry.name.find('.', dot + 1))
      sets[entry.name.substr(0, dot + 1)].push_back({entry.name.substr(dot + 1), entry.tensor});
  }
  return sets;
}

}  // namespace

std::string TensorSet::description() const {
  if (prefix.empty()) return "";
  constexpr size_t kShown = 5;
  std::string text = "the tensors under '" + detail::printable(prefix) + "'";
  for (size_t i = 0; i < std::min(others.size(), kShown); ++i)
    text += (i == 0 ? ", without " : ", ") + detail::printable(others[i]);
  return others.size() <= kShown ? text : text + " and " + std::to_string(others.size() - kShown) + " more";
}

std::optional<TensorSet> find_set(const StateView& state, bool (*recognizes)(const StateView&),
                                  const std::string& source) {
  if (recognizes(state)) return TensorSet{.tensors = state};
  std::string found, second;
  std::map<std::string, StateView> sets = by_prefix(state);
  for (const auto& [prefix, tensors] : sets) {  // a prefix comes before those that begin with it
    if ((!found.empty() && prefix.starts_with(found)) || !recognizes(tensors)) continue;
    (found.empty() ? found : second) = prefix;
    TERN_CHECK(second.empty(), source, ": the tensors of several models, under '", detail::printable(found), "' and '",
               detail::printable(second), "'; which are meant is not clear, save one model alone");
  }
  if (found.empty()) return std::nullopt;
  TensorSet set{std::move(sets[found]), found, {}};
  for (const NamedTensor& entry : state)
    if (!entry.name.starts_with(found)) set.others.push_back(entry.name);
  return set;
}

KeyMap with_weight_and_bias(const KeyMap& rules) {
  KeyMap map;
  for (const KeyRule& rule : rules) {
    const bool both = rule.tern_name.ends_with('.') || rule.tern_name.ends_with('_');
    for (const std::string part : both ? std::vector{"weight", "bias"} : std::vector{""}) {
      KeyRule& added = map.emplace_back(rule);
      added.tern_name += part;
      for (std::string& name : added.checkpoint_names) name += part;
    }
  }
  return map;
}

std::vector<std::string> checkpoint_names_of(const KeyMap& map, const std::string& tern_name) {
  for (const KeyRule& rule : map) {
    const auto number = match(rule.tern_name, tern_name);
    if (!number) continue;
    std::vector<std::string> names;
    for (const std::string& other : rule.checkpoint_names) names.push_back(fill(other, *number));
    return names;
  }
  fail("key map: no rule for the tensor '", tern_name, "'");
}

void add_missing_prefix(StateView& state, const std::string& prefix, const std::vector<std::string>& others) {
  for (const NamedTensor& entry : state)
    if (entry.name.starts_with(prefix)) return;
  for (NamedTensor& entry : state)
    if (!has_prefix(others, entry.name)) entry.name = prefix + entry.name;
}

void replace_in_names(StateView& state, const std::vector<std::pair<std::string, std::string>>& pairs) {
  for (NamedTensor& entry : state)
    for (const auto& [from, to] : pairs)
      if (const size_t at = entry.name.find(from); at != std::string::npos) entry.name.replace(at, from.size(), to);
}

void modernise_norms(StateView& state) {
  constexpr std::pair<std::string_view, const char*> endings[] = {{".gamma", ".weight"}, {".beta", ".bias"}};
  for (NamedTensor& entry : state)
    for (const auto& [old, now] : endings)
      if (entry.name.ends_with(old)) entry.name.replace(entry.name.size() - old.size(), old.size(), now);
}

StateView to_checkpoint_names(const KeyMap& map, const StateView& state) {
  StateView result;
  for (const NamedTensor& entry : state) {
    const std::vector<std::string> names = checkpoint_names_of(map, entry.name);
    const Tensor value = entry.tensor.detach();
    if (names.size() == 1) {
      result.push_back({names[0], value});
      continue;
    }
    const std::vector<Tensor> pieces = value.tensor_split(static_cast<int64_t>(names.size()), 0);
    for (size_t i = 0; i < names.size(); ++i) result.push_back({names[i], pieces[i]});
  }
  return result;
}

StateView from_checkpoint_names(const KeyMap& map, const StateView& state, const StateView& given,
                                const std::string& source, const FromCheckpointOptions& options) {
  std::map<std::string, Tensor> left;
  for (const NamedTensor& entry : given)
    if (!has_prefix(options.ignored_prefixes, entry.name)) left[entry.name] = entry.tensor;

  NoGrad off;
  Problems problems;
  StateView result;
  for (const NamedTensor& wanted : state) {
    const std::vector<std::string> names = checkpoint_names_of(map, wanted.name);
    const Shape shape = names.size() == 1
                            ? wanted.tensor.shape()
                            : wanted.tensor.shape().with(0, wanted.tensor.size(0) / static_cast<int64_t>(names.size()));
    const bool optional = has_prefix(options.optional_prefixes, wanted.name);
    std::vector<Tensor> pieces;
    for (const std::string& name : names) {
      const auto found = left.find(name);
      if (found == left.end()) {
        if (!optional) problems.missing(name);
        continue;
      }
      const bool counts = wanted.name.ends_with("num_batches_tracked");
      if (counts && is_floating(found->second.dtype()) && found->second.numel() == 1) {
        pieces.push_back(counter(found->second));
        left.erase(found);
        continue;
      }
      if (is_floating(found->second.dtype()) != is_floating(wanted.tensor.dtype()))
        problems.wrong(name + " is " + name_of(found->second.dtype()));
      else if (found->second.shape() == shape)
        pieces.push_back(found->second.detach());
      else if (!optional)
        problems.wrong(name + " is " + found->second.shape().str() + ", expected " + shape.str());
      left.erase(found);
    }
    if (pieces.size() == names.size()) result.push_back({wanted.name, pieces.size() == 1 ? pieces[0] : cat(pieces, 0)});
  }
  for (const auto& [name, tensor] : left) problems.unexpected(name);
  problems.check(source, options.model);
  return result;
}

}  // namespace tern::models
