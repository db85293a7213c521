#pragma once
// The whole state of a training loop in one file: a loop that is stopped and started again goes on with the same bits.
//
//   int64_t epoch = 0, batch = 0;
//   dist::LoopState state(world.group());
//   state.add("model", net);
//   state.add("optimizer", optimizer);
//   state.add("schedule", scheduler);
//   state.add("generator", generator);  // of the dropout masks
//   state.add("epoch", epoch);
//   state.add("batch", batch);          // loader.epoch(epoch, {.first = batch}) goes on in the middle of an epoch
//   if (state.exists(path)) state.load(path);
//   ...
//   state.save(path);

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tern/core/tensor/generator.h"
#include "tern/dist/collectives/communicator.h"
#include "tern/nn/metrics/metric.h"
#include "tern/nn/module.h"
#include "tern/optim/optimizer.h"

namespace tern::dist {

/// What can save and load itself: LRScheduler, ReduceLROnPlateau, GradScaler, EMA, the metrics, or a class of the user.
template <class T>
concept HasState = requires(T& object, const StateView& state) {
  { std::as_const(object).state_dict() } -> std::convertible_to<StateView>;
  object.load_state_dict(state);
};

/// The entries of the file. Each has a name and belongs to an object, which must outlive the LoopState. Names are
/// unique, not empty and without '/'; otherwise add() throws Error. All ranks of the group add the same entries.
///
/// To be saved and loaded between two steps, when no gradient is partly accumulated: gradients are not saved.
///
/// File: safetensors. A tensor is named "ENTRY/TENSOR", or "ENTRY/rank.R/TENSOR" where each rank has its own; the
/// metadata hold the kind of each entry, the number of ranks and a SHA-256 of all tensors.
class LoopState {
 public:
  /// group: null for one process.
  explicit LoopState(std::shared_ptr<Communicator> group = nullptr);

  // Equal on all ranks: rank 0's is saved.
  void add(const std::string& name, nn::Module& module);
  /// The state, and each group's rate, base rate and momentum. A ShardedOptimizer may be loaded by another number of
  /// ranks than saved it.
  void add(const std::string& name, optim::Optimizer& optimizer);
  void add(const std::string& name, int64_t& number) { add_number(name, number, false); }
  void add(const std::string& name, double& number) { add_number(name, number, false); }
  /// The counts of a metric, each rank's own, as by add_per_rank().
  template <HasState T>
  requires(!std::derived_from<T, nn::Module> &&
           !std::derived_from<T, optim::Optimizer>) void add(const std::string& name, T& object) {
    add_object(name, object, std::derived_from<T, nn::Metric>);
  }

  // Every rank saves and loads its own: such a file can be loaded by as many ranks as saved it only.
  /// Seed and offset of a generator, for every handle on it.
  void add(const std::string& name, const Generator& generator);
  void add_per_rank(const std::string& name, int64_t& number) { add_number(name, number, true); }
  void add_per_rank(const std::string& name, double& number) { add_number(name, number, true); }
  /// The names of an object's tensors must be the same on all ranks, their shapes need not be.
  template <HasState T>
  void add_per_rank(const std::string& name, T& object) {
    add_object(name, object, true);
  }

  /// Called by all ranks; rank 0 writes. The file is complete under a temporary name and on the disk before it takes
  /// the place of an older one. On any failure the older file stays as it was, and all ranks throw Error.
  void save(const std::string& path) const;
  /// Called by all ranks, of which each reads the file. Throws Error on all ranks, and changes nothing, when the file
  /// is damaged or not of a LoopState, and when an entry is missing, unexpected, of another kind (another optimizer),
  /// or has other tensors, shapes or types than its object: the message names the entry. (When the object itself
  /// refuses the values, what was loaded before is put back; a ShardedOptimizer is therefore loaded after everything
  /// else.)
  void load(const std::string& path);
  /// Whether rank 0 sees a file of this name. Called by all ranks.
  bool exists(const std::string& path) const;

 private:
  struct Entry {
    std::string name, kind;
    bool per_rank = false;
    bool divided = false;  // a sharded optimizer: its state is given to rank 0 alone
    bool resizes = false;  // shapes may differ from those that the object has now
    std::function<StateView()> get = {};
    std::function<void(const StateView&)> set = {};
  };

  template <class T>
  void add_object(const std::string& name, T& object, bool per_rank) {
    add({.name = name,
         .kind = "object",
         .per_rank = per_rank,
         .resizes = std::derived_from<T, nn::Metric>,
         .get = [&object] { return object.state_dict(); },
         .set = [&object](const StateView& state) { object.load_state_dict(state); }});
  }
  template <class T>
  void add_number(const std::string& name, T& number, bool per_rank) {
    const auto tensor = [&number] { return StateView{{"value", from_vector(std::vector<T>{number}, {1})}}; };
    add({.name = name,
         .kind = std::is_same_v<T, double> ? "number" : "integer",
         .per_rank = per_rank,
         .get = tensor,
         .set = [&number](const StateView& state) { number = state[0].tensor.template item<T>(); }});
  }
  void add(Entry entry);
  StateView gathered() const;
  void check_names_agree(const std::vector<StateView>& states) const;
  std::vector<StateView> read(const std::string& path) const;
  void apply(const std::vector<StateView>& loaded);
  /// Called by all ranks: throws on all when one has failed.
  void agree(const std::string& error) const;

  std::shared_ptr<Communicator> group_;
  std::vector<Entry> entries_;
};

}  // namespace tern::dist
