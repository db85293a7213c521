#include "tern/dist/store/store.h"

#include <algorithm>
#include <sstream>

namespace tern::dist {

void check_entry(const std::string& key, const std::string& value) {
  TERN_CHECK(key.size() <= Store::kMaxKeyBytes, "store: a key of ", key.size(), " bytes is too long; it may have ",
             Store::kMaxKeyBytes);
  TERN_CHECK(key.size() + value.size() <= Store::kMaxBytes, "store: a value of ", value.size(),
             " bytes is too large; with its key it may have ", Store::kMaxBytes);
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string Store::get(const std::string& key, double seconds) {
  const std::optional<std::string> value = wait({key}, seconds)[0];
  if (!value) throw PeerError(detail::concatenate("store: no rank has set '", key, "' within ", seconds, " s"));
  return *value;
}

std::vector<std::string> Store::exchange(const std::string& key, const std::vector<int>& ranks, int rank,
                                         const std::string& value, double seconds,
                                         const std::function<std::string()>& failure) {
  constexpr double kLookEvery = 0.5;  // seconds
  const auto complete = [](const auto& values) {
    return std::ranges::all_of(values, [](const auto& value) { return value.has_value(); });
  };
  std::vector<std::string> keys;
  for (const int r : ranks) keys.push_back(key + "/" + std::to_string(r));
  set(key + "/" + std::to_string(rank), value);
  auto found = wait(keys, failure ? std::min(seconds, kLookEvery) : seconds);
  for (double left = seconds - kLookEvery; failure && left > 0 && !complete(found); left -= kLookEvery) {
    const std::string why = failure();
    found = wait(keys, why.empty() ? std::min(left, kLookEvery) : 0);
    if (!why.empty() && !complete(found)) throw PeerError(why);  // a rank may fail after it set its value
  }
  std::vector<std::string> values;
  std::vector<int> missing;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i])
      values.push_back(*found[i]);
    else
      missing.push_back(ranks[i]);
  }
  if (!missing.empty())
    throw PeerError(detail::concatenate(key, ": ", rank_list(missing), missing.size() == 1 ? " has" : " have",
                                        " not arrived within ", seconds, " s"));
  return values;
}

void Store::compare(const std::string& key, const std::vector<int>& ranks, int rank, const std::string& value,
                    double seconds, const std::function<std::string()>& failure) {
  const std::vector<std::string> values = exchange(key, ranks, rank, value, seconds, failure);
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i] == values[0]) continue;
    std::istringstream theirs(values[i]), firsts(values[0]);
    std::string other, first;
    do {
      if (!std::getline(theirs, other)) other = "nothing more";
      if (!std::getline(firsts, first)) first = "nothing more";
    } while (other == first && (theirs || firsts));
    throw PeerError(
        detail::concatenate(key, ": rank ", ranks[i], " has ", other, ", but rank ", ranks[0], " has ", first));
  }
}

}  // namespace tern::dist
