#include "tern/dist/loop/loop_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/pickle.h"
#include "tern/core/io/safetensors.h"
#include "tern/data/files/sha256.h"
#include "tern/dist/collectives/gather_tensors.h"
#include "tern/dist/gradients/sharded_optimizer.h"

namespace tern::dist {
namespace {

constexpr const char* kFormat = "tern-loop-state";
constexpr const char* kVersion = "1";
constexpr const char* kEntryPrefix = "entry ";  // of the metadata
constexpr const char* kGroupLr = "group.lr";
constexpr const char* kGroupBaseLr = "group.base_lr";
constexpr const char* kGroupMomentum = "group.momentum";  // NaN: the group has none

Tensor on_host(const Tensor& tensor) { return tensor.detach().to(cpu).contiguous(); }

std::string_view bytes_of(const Tensor& host) {
  return {static_cast<const char*>(host.raw_data()), static_cast<size_t>(host.nbytes())};
}

/// The digest of names, types, shapes and bytes, in the order of the names.
std::string digest_of(const StateView& tensors) {
  std::map<std::string, Tensor> sorted;
  for (const NamedTensor& entry : tensors) sorted[entry.name] = entry.tensor;
  data::Sha256 hash;
  for (const auto& [name, tensor] : sorted) {
    const std::string kind = detail::concatenate(name, ' ', tensor.dtype(), ' ', tensor.shape());
    hash.update(uint64_t{kind.size()});
    hash.update(kind);
    if (tensor.numel() > 0) hash.update(bytes_of(tensor));
  }
  return hash.hex();
}

/// Group by group, one number each.
template <class Get>
NamedTensor of_groups(const char* name, const optim::Optimizer& optimizer, const Get& get) {
  std::vector<double> values;
  for (const optim::GroupState& group : optimizer.param_groups()) values.push_back(get(group));
  return {name, from_vector(values, {static_cast<int64_t>(values.size())})};
}

StateView optimizer_state(const optim::Optimizer& optimizer) {
  StateView state = optimizer.state_dict();
  state.push_back(of_groups(kGroupLr, optimizer, [](const auto& group) { return group.lr; }));
  state.push_back(of_groups(kGroupBaseLr, optimizer, [](const auto& group) { return group.base_lr; }));
  state.push_back(of_groups(kGroupMomentum, optimizer, [](const auto& group) {
    return group.momentum.value_or(std::numeric_limits<double>::quiet_NaN());
  }));
  return state;
}

void load_optimizer(optim::Optimizer& optimizer, const StateView& state) {
  const auto numbers = [&state](const char* name) { return find(state, name).to_vector<double>(); };
  const std::vector<double> base = numbers(kGroupBaseLr), momentum = numbers(kGroupMomentum);
  const auto now = [&](const auto& get) { return of_groups("", optimizer, get).tensor.template to_vector<double>(); };
  const bool same_base = base == now([](const auto& group) { return group.base_lr; });
  // A user who sets the rate sets that of all groups.
  TERN_CHECK(same_base || std::all_of(base.begin(), base.end(), [&](double lr) { return lr == base[0]; }),
             "the base learning rates of its groups are others; make the optimizer with those of the saved loop");
  StateView own;
  for (const NamedTensor& entry : state)
    if (entry.name != kGroupLr && entry.name != kGroupBaseLr && entry.name != kGroupMomentum) own.push_back(entry);
  optimizer.load_state_dict(own);
  if (!same_base) optimizer.set_lr(base[0]);
  optimizer.set_group_lr(numbers(kGroupLr));
  std::vector<double> current;
  for (const optim::GroupState& group : optimizer.param_groups()) current.push_back(group.momentum.value_or(0));
  if (std::none_of(momentum.begin(), momentum.end(), [](double m) { return std::isnan(m); }) && momentum != current)
    optimizer.set_group_momentum(momentum);
}

StateView generator_state(const Generator& generator) {
  return {{"seed", from_vector(std::vector<int64_t>{static_cast<int64_t>(generator.seed())}, {1})},
          {"offset", from_vector(std::vector<int64_t>{static_cast<int64_t>(generator.offset())}, {1})}};
}

std::string rank_prefix(const std::string& entry, int rank) { return detail::concatenate(entry, "/rank.", rank, '/'); }

/// Throws Error unless the names, types and, unless they may differ, shapes are those of `expected`.
void check_fits(const std::string& what, const StateView& given, const StateView& expected, bool resizes) {
  std::map<std::string, Tensor> left;
  for (const NamedTensor& entry : given) left[entry.name] = entry.tensor;
  for (const auto& [name, own] : expected) {
    const auto found = left.find(name);
    TERN_CHECK(found != left.end(), what, " has no tensor '", name, "', which this loop's object has");
    TERN_CHECK(found->second.dtype() == own.dtype(), what, ": '", name, "' is ", found->second.dtype(),
               " in the file and ", own.dtype(), " here");
    TERN_CHECK(resizes || found->second.shape() == own.shape(), what, ": '", name, "' is ", found->second.shape(),
               " in the file and ", own.shape(), " here");
    left.erase(found);
  }
  TERN_CHECK(left.empty(), what, " has the tensor '", detail::printable(left.begin()->first),
             "', which this loop's object lacks");
}

/// The checked contents of a file.
SafetensorsFile read_file(const std::string& path) {
  SafetensorsFile file = load_safetensors(path);
  const auto value = [&file](const char* key) { return file.metadata.contains(key) ? file.metadata[key] : ""; };
  TERN_CHECK(value("format") == kFormat, path, ": is not the state of a loop");
  TERN_CHECK(value("version") == kVersion, path, ": is of version '", detail::printable(value("version")),
             "', this program reads version ", kVersion);
  TERN_CHECK(value("sha256") == digest_of(file.tensors), path, ": its checksum is wrong; the file is damaged");
  return file;
}

}  // namespace

LoopState::LoopState(std::shared_ptr<Communicator> group)
    : group_(group ? std::move(group) : std::make_shared<SingleProcess>()) {}

void LoopState::add(Entry entry) {
  TERN_CHECK(!entry.name.empty() && entry.name.find('/') == std::string::npos, "loop state: the name '", entry.name,
             "' of an entry must not be empty or contain '/'");
  for (const Entry& other : entries_)
    TERN_CHECK(other.name != entry.name, "loop state: there is already an entry '", entry.name, "'");
  if (entry.per_rank) entry.kind += " of each rank";
  entries_.push_back(std::move(entry));
}

void LoopState::add(const std::string& name, nn::Module& module) {
  add({.name = name,
       .kind = "module",
       .get = [&module] { return module.state_dict(); },
       .set = [&module](const StateView& state) { module.load_state_dict(state); }});
}

void LoopState::add(const std::string& name, optim::Optimizer& optimizer) {
  const bool divided = group_->size() > 1 && dynamic_cast<const ShardedOptimizer*>(&optimizer) != nullptr;
  add({.name = name,
       .kind = std::string("optimizer ") + optimizer.name(),
       .divided = divided,
       .get = [&optimizer] { return optimizer_state(optimizer); },
       .set = [&optimizer](const StateView& state) { load_optimizer(optimizer, state); }});
}

void LoopState::add(const std::string& name, const Generator& generator) {
  add({.name = name,
       .kind = "generator",
       .per_rank = true,
       .get = [generator] { return generator_state(generator); },
       .set =
           [handle = Generator(generator)](const StateView& state) mutable {
             handle.set_seed(static_cast<uint64_t>(find(state, "seed").item<int64_t>()));
             handle.set_offset(static_cast<uint64_t>(find(state, "offset").item<int64_t>()));
           }});
}

void LoopState::agree(const std::string& error) const {
  const Tensor own = from_vector(std::vector<int64_t>{error.empty() ? 0 : 1}, {1}).to(group_->device());
  const std::vector<Tensor> all = group_->all_gather(group_->size() > 1 ? own : own.to(cpu));
  TERN_CHECK(error.empty(), error);
  for (size_t r = 0; r < all.size(); ++r)
    TERN_CHECK(all[r].item<int64_t>() == 0, "loop state: rank ", r, " failed; its message says why");
}

void LoopState::check_names_agree(const std::vector<StateView>& states) const {
  std::string names;
  for (size_t i = 0; i < entries_.size(); ++i) {
    names += entries_[i].name + '\n' + entries_[i].kind + '\n';
    if (!entries_[i].per_rank) continue;
    for (const NamedTensor& entry : states[i]) names += '\t' + entry.name + '\n';
  }
  const std::string digest = data::sha256(names);
  Tensor own = zeros({static_cast<int64_t>(digest.size())}, {.dtype = uint8});
  std::memcpy(own.raw_data(), digest.data(), digest.size());
  const std::vector<Tensor> all = group_->all_gather(own.to(group_->device()));
  for (size_t r = 0; r < all.size(); ++r)
    TERN_CHECK(bytes_of(on_host(all[r])) == bytes_of(on_host(all[0])), "loop state: rank ", r,
               " has added other entries than rank 0");
}

StateView LoopState::gathered() const {
  std::vector<StateView> states;
  for (const Entry& entry : entries_) states.push_back(entry.get());
  check_names_agree(states);
  StateView all;
  for (size_t i = 0; i < entries_.size(); ++i)
    for (const auto& [name, tensor] : states[i]) {
      if (!entries_[i].per_rank) {
        if (group_->rank() == 0) all.push_back({entries_[i].name + '/' + name, on_host(tensor)});
        continue;
      }
      const std::vector<Tensor> of_ranks = detail::gather_tensors(*group_, tensor);
      for (int r = 0; r < group_->size(); ++r)
        all.push_back({rank_prefix(entries_[i].name, r) + name, of_ranks[static_cast<size_t>(r)]});
    }
  return all;
}

void LoopState::save(const std::string& path) const {
  const StateView all = gathered();
  std::string error;
  if (group_->rank() == 0) {
    try {
      std::map<std::string, std::string> metadata = {{"format", kFormat},
                                                     {"version", kVersion},
                                                     {"ranks", std::to_string(group_->size())},
                                                     {"sha256", digest_of(all)}};
      for (const Entry& entry : entries_) metadata[kEntryPrefix + entry.name] = entry.kind;
      save_safetensors(all, path, metadata);
    } catch (const Error& failure) {
      error = failure.what();
    }
  }
  agree(error);
}

std::vector<StateView> LoopState::read(const std::string& path) const {
  const SafetensorsFile file = read_file(path);
  for (const auto& [key, kind] : file.metadata) {
    if (!key.starts_with(kEntryPrefix)) continue;
    const std::string name = key.substr(std::strlen(kEntryPrefix));
    TERN_CHECK(std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; }),
               path, ": has the entry '", detail::printable(name), "', which this loop does not add");
  }
  std::vector<StateView> states;
  for (const Entry& entry : entries_) {
    const auto kind = file.metadata.find(kEntryPrefix + entry.name);
    TERN_CHECK(kind != file.metadata.end(), path, ": has no entry '", entry.name, "'");
    TERN_CHECK(kind->second == entry.kind, path, ": entry '", entry.name, "' is of kind '",
               detail::printable(kind->second), "', this loop's is of kind '", entry.kind, "'");
    const std::string ranks = file.metadata.at("ranks");
    TERN_CHECK(!entry.per_rank || ranks == std::to_string(group_->size()), path, ": entry '", entry.name,
               "' differs from rank to rank and was saved by ", detail::printable(ranks), ", here there are ",
               group_->size(), "; start as many");
    const std::string prefix = entry.per_rank ? rank_prefix(entry.name, group_->rank()) : entry.name + '/';
    StateView& state = states.emplace_back();
    for (const auto& [name, tensor] : file.tensors)
      if (name.starts_with(prefix)) state.push_back({name.substr(prefix.size()), tensor});
  }
  return states;
}

void LoopState::apply(const std::vector<StateView>& loaded) {
  std::vector<StateView> before;
  std::vector<size_t> order;
  for (const bool divided : {false, true})
    for (size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].divided == divided) order.push_back(i);
  for (const Entry& entry : entries_) {
    StateView& copy = before.emplace_back();
    for (const auto& [name, tensor] : entry.get()) copy.push_back({name, on_host(tensor).clone()});
  }
  size_t done = 0;
  std::string error;
  try {
    for (; done < order.size(); ++done) entries_[order[done]].set(loaded[order[done]]);
  } catch (const Error& failure) {
    error = detail::concatenate("loop state: entry '", entries_[order[done]].name, "': ", failure.what());
  }
  try {
    agree(error);
  } catch (const Error&) {
    for (size_t i = 0; i < done; ++i)
      if (!entries_[order[i]].divided) entries_[order[i]].set(before[order[i]]);
    throw;
  }
}

void LoopState::load(const std::string& path) {
  std::vector<StateView> now, loaded;
  for (const Entry& entry : entries_) now.push_back(entry.get());
  std::string error;
  try {
    loaded = read(path);
    for (size_t i = 0; i < entries_.size(); ++i)
      if (!entries_[i].divided || group_->rank() == 0)
        check_fits(detail::concatenate(path, ": entry '", entries_[i].name, "'"), loaded[i], now[i],
                   entries_[i].resizes);
  } catch (const Error& failure) {
    error = failure.what();
  }
  agree(error);
  apply(loaded);
}

bool LoopState::exists(const std::string& path) const {
  Tensor found = zeros({1}, {.dtype = int64});
  if (group_->rank() == 0 && detail::name_exists(path)) found.fill_(1);
  found = found.to(group_->device());
  group_->broadcast(found);
  return found.item<int64_t>() == 1;
}

}  // namespace tern::dist
