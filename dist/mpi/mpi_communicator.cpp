#include "tern/dist/mpi/mpi_communicator.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "tern/dist/collectives/rank_sum.h"

namespace tern::dist::mpi {
namespace {

// Tag bits: 10 for the group, 11 for a ticket that all ranks count alike, 1 for the phase. Ticket 0 is for send and
// receive, whose messages MPI keeps in order for each pair.
constexpr int kMaxGroups = 1 << 10, kTickets = 1 << 11;

constexpr int64_t kSmallBytes = 4096;              // up to this size every rank sends its whole tensor to all others
constexpr int64_t kPieceBytes = int64_t{1} << 20;  // summed by one rank at a time
constexpr int kMaxInProgress = 4;                  // maximum of machines of a group in progress

/// State shared by the machines of a group.
struct Group {
  const Functions* functions;
  std::vector<int> world_ranks;
  int rank, id;

  int size() const { return static_cast<int>(world_ranks.size()); }
  int tag(int64_t ticket, int phase) const {
    const int place = 1 + static_cast<int>(ticket % (kTickets - 1));
    return (id * kTickets + place) * 2 + phase;
  }
  int pairwise_tag() const { return id * kTickets * 2; }
  int64_t lane(int place) const { return int64_t{id} << 32 | place; }
};

struct Piece {
  int64_t begin, count;  // elements
};

/// Base of all machines: the group, and messages addressed by rank in the group. A machine is complete when
/// its messages are, unless it overrides advance().
class GroupMachine : public Machine {
 public:
  GroupMachine(std::shared_ptr<CallState> call, std::shared_ptr<const Group> group, int64_t ticket)
      : Machine(std::move(call)), group_(std::move(group)), ticket_(ticket), transfers_(*group_->functions) {}

  bool advance() override { return transfers_.done(); }

 protected:
  int size() const { return group_->size(); }
  int rank() const { return group_->rank; }
  bool is_other(int r) const { return r != group_->rank; }
  void send(const char* data, int64_t bytes, int to, int phase = 0) {
    transfers_.send(data, bytes, group_->world_ranks[static_cast<size_t>(to)], group_->tag(ticket_, phase));
  }
  void receive(char* data, int64_t bytes, int from, int phase = 0) {
    transfers_.receive(data, bytes, group_->world_ranks[static_cast<size_t>(from)], group_->tag(ticket_, phase));
  }

  std::shared_ptr<const Group> group_;
  const int64_t ticket_;
  Transfers transfers_;
};

/// Reduces pieces of the input: rank r receives piece r from all others and sums it. With `gathers` every rank then
/// sends its sum to all others (all_reduce), otherwise not (reduce_scatter). With `direct` there is one piece, which
/// every rank sums itself.
class Reduction final : public GroupMachine {
 public:
  struct Plan {
    std::vector<Piece> pieces = {};
    int64_t result = 0;  // start of this rank's piece, in elements of the output
    bool gathers = false, direct = false;
  };

  Reduction(std::shared_ptr<CallState> state, std::shared_ptr<const Group> group, int64_t ticket, Plan plan)
      : GroupMachine(std::move(state), std::move(group), ticket), plan_(std::move(plan)) {
    const Call& call = this->call().call;
    element_ = size_of(call.input.dtype());
    input_ = static_cast<char*>(call.input.raw_data());
    output_ = static_cast<char*>(call.output.raw_data());
  }

  void begin() override {
    const int64_t bytes = own_piece().count * element_;
    others_.reset(new char[static_cast<size_t>(bytes * (size() - 1) + 1)]);
    char* to = others_.get();
    for (int r = 0; r < size(); ++r) {
      const Piece& piece = plan_.pieces[plan_.direct ? 0 : static_cast<size_t>(r)];
      parts_.push_back(is_other(r) ? to : input_ + own_piece().begin * element_);
      if (!is_other(r)) continue;
      if (bytes > 0) receive(to, bytes, r);
      to += bytes;
      if (piece.count > 0) send(input_ + piece.begin * element_, piece.count * element_, r);
    }
  }

  bool advance() override {
    if (!transfers_.done()) return false;
    if (second_phase_) return true;
    const Call& call = this->call().call;
    char* const result = output_ + plan_.result * element_;
    reduce_in_order(call.op, call.input.dtype(), parts_, result, own_piece().count);
    others_.reset();
    if (!plan_.gathers) return true;
    second_phase_ = true;
    for (int r = 0; r < size(); ++r) {
      if (!is_other(r)) continue;
      const Piece& piece = plan_.pieces[static_cast<size_t>(r)];
      if (piece.count > 0) receive(output_ + piece.begin * element_, piece.count * element_, r, 1);
      if (own_piece().count > 0) send(result, own_piece().count * element_, r, 1);
    }
    return transfers_.done();
  }

 private:
  const Piece& own_piece() const { return plan_.pieces[plan_.direct ? 0 : static_cast<size_t>(rank())]; }

  Plan plan_;
  int64_t element_;
  char *input_, *output_;
  std::unique_ptr<char[]> others_;
  std::vector<const void*> parts_;
  bool second_phase_ = false;
};

class AllGather final : public GroupMachine {
 public:
  using GroupMachine::GroupMachine;
  void begin() override {
    const Call& call = this->call().call;
    const int64_t bytes = call.input.nbytes();
    const char* const input = static_cast<const char*>(call.input.raw_data());
    char* const output = static_cast<char*>(call.output.raw_data());
    if (bytes == 0) return;
    if (output + rank() * bytes != input) std::memcpy(output + rank() * bytes, input, static_cast<size_t>(bytes));
    for (int r = 0; r < size(); ++r) {
      if (!is_other(r)) continue;
      receive(output + r * bytes, bytes, r);
      send(input, bytes, r);
    }
  }
};

/// The root sends a small tensor to all. Of a large one it sends each rank a piece, which that rank forwards to the
/// others, so that the root's link carries the tensor once.
class Broadcast final : public GroupMachine {
 public:
  Broadcast(std::shared_ptr<CallState> state, std::shared_ptr<const Group> group, int64_t ticket,
            std::vector<Piece> pieces)
      : GroupMachine(std::move(state), std::move(group), ticket), pieces_(std::move(pieces)) {
    data_ = static_cast<char*>(call().call.output.raw_data());
  }

  void begin() override {
    const int root = call().call.peer;
    if (rank() != root) {
      pass(rank(), false, root, 0);
    } else {
      for (int r = 0; r < size(); ++r)
        if (is_other(r)) pass(r, true, r, 0);
    }
  }

  bool advance() override {
    if (!transfers_.done()) return false;
    if (std::exchange(second_phase_, true)) return true;
    if (pieces_.size() == 1) return true;
    const int root = call().call.peer;
    for (int r = 0; r < size(); ++r) {
      if (!is_other(r)) continue;
      if (r != root) pass(rank(), true, r, 1);
      if (rank() != root) pass(r, false, r, 1);
    }
    return transfers_.done();
  }

 private:
  /// Sends or receives the piece of rank `owner` to or from `other`; begin and count of its Piece are bytes.
  void pass(int owner, bool sends, int other, int phase) {
    const Piece& piece = pieces_[pieces_.size() == 1 ? 0 : static_cast<size_t>(owner)];
    if (piece.count == 0) return;
    if (sends)
      send(data_ + piece.begin, piece.count, other, phase);
    else
      receive(data_ + piece.begin, piece.count, other, phase);
  }

  std::vector<Piece> pieces_;
  char* data_;
  bool second_phase_ = false;
};

class Barrier final : public GroupMachine {
 public:
  using GroupMachine::GroupMachine;
  void begin() override {
    for (int r = 0; r < size(); ++r) {
      if (!is_other(r)) continue;
      receive(&byte_, 0, r);
      send(&byte_, 0, r);
    }
  }

 private:
  char byte_ = 0;
};

class Pairwise final : public GroupMachine {
 public:
  using GroupMachine::GroupMachine;
  void begin() override {
    const Call& call = this->call().call;
    const int other = group_->world_ranks[static_cast<size_t>(call.peer)], tag = group_->pairwise_tag();
    if (call.operation == Operation::kSend)
      transfers_.send(call.input.raw_data(), call.input.nbytes(), other, tag);
    else
      transfers_.receive(call.output.raw_data(), call.output.nbytes(), other, tag);
  }
};

/// Cuts [begin, begin + count) into parts that differ by at most one element.
std::vector<Piece> cut(int64_t begin, int64_t count, int parts) {
  std::vector<Piece> pieces;
  for (int64_t r = 0; r < parts; ++r) {
    const int64_t first = count / parts * r + std::min(r, count % parts);
    pieces.push_back({begin + first, count / parts + (r < count % parts ? 1 : 0)});
  }
  return pieces;
}

std::vector<Reduction::Plan> plan_reduction(const Call& call, int size, int rank) {
  const int64_t element = size_of(call.input.dtype()), count = call.output.numel();
  std::vector<Reduction::Plan> plans;
  if (call.operation == Operation::kReduceScatter) {
    const int64_t max_count = kPieceBytes / element;
    for (int64_t begin = 0; begin < count; begin += max_count) {
      Reduction::Plan plan{.result = begin};
      for (int64_t r = 0; r < size; ++r) plan.pieces.push_back({r * count + begin, std::min(max_count, count - begin)});
      plans.push_back(std::move(plan));
    }
    return plans;
  }
  if (count * element <= kSmallBytes) {
    if (count > 0) plans.push_back({.pieces = {{0, count}}, .direct = true});
    return plans;
  }
  const int64_t max_count = kPieceBytes / element * size;
  for (int64_t begin = 0; begin < count; begin += max_count) {
    Reduction::Plan plan{.pieces = cut(begin, std::min(max_count, count - begin), size), .gathers = true};
    plan.result = plan.pieces[static_cast<size_t>(rank)].begin;
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<std::vector<Piece>> plan_broadcast(int64_t bytes, int size) {
  if (bytes == 0) return {};
  if (size == 2 || bytes <= 16 * kSmallBytes) return {{{0, bytes}}};
  std::vector<std::vector<Piece>> plans;
  const int64_t max_count = kPieceBytes * size;
  for (int64_t begin = 0; begin < bytes; begin += max_count)
    plans.push_back(cut(begin, std::min(max_count, bytes - begin), size));
  return plans;
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(const std::string& name, Group group, std::shared_ptr<Engine> engine,
                  std::shared_ptr<Session> session)
      : Communicator(name, group.world_ranks, group.rank, cpu, std::move(session)),
        group_(std::make_shared<const Group>(std::move(group))),
        engine_(std::move(engine)) {}

  void barrier() override { start(begin_barrier()).wait(); }

 protected:
  Work start(const Call& call) override {
    switch (call.operation) {
      case Operation::kAllReduce:
      case Operation::kReduceScatter: {
        const auto plans = plan_reduction(call, size(), rank());
        return run<Reduction>(call, plans.size(), plans);
      }
      case Operation::kBroadcast: {
        const auto plans = plan_broadcast(call.output.nbytes(), size());
        return run<Broadcast>(call, plans.size(), plans);
      }
      case Operation::kAllGather:
        return run<AllGather>(call, 1);
      case Operation::kBarrier:
        return run<Barrier>(call, 1);
      default:
        return run<Pairwise>(call, 1);
    }
  }

  std::shared_ptr<Communicator> make_group(const std::string& name, std::vector<int> world_ranks, int rank) override {
    Group group{group_->functions, std::move(world_ranks), rank, shared_number(name, rank == 0)};
    return std::make_shared<MpiCommunicator>(name, std::move(group), engine_, session());
  }

 private:
  /// Starts `count` machines; machine i takes plan i.
  template <class Kind, class... Plans>
  Work run(const Call& call, size_t count, const Plans&... plans) {
    // The state needs the number of machines before the first one is done.
    auto state = std::make_shared<CallState>(call, name(), world_ranks(), static_cast<int>(count));
    const bool pairwise = call.is_pairwise();
    std::vector<std::unique_ptr<Machine>> machines;
    for (size_t i = 0; i < count; ++i)
      machines.push_back(std::make_unique<Kind>(state, group_, pairwise ? 0 : ticket_++, plans[i]...));
    // Each pair and direction has a separate lane: its messages are in order and wait for no others.
    const int place = !pairwise ? 0 : 2 * call.peer + (call.operation == Operation::kSend ? 1 : 2);
    if (count > 0) engine_->submit(group_->lane(place), pairwise ? INT_MAX : kMaxInProgress, std::move(machines));
    return Work(std::move(state));
  }

  /// A number unique to this group; the first member draws it from the store.
  int shared_number(const std::string& name, bool first) {
    Store& store = session()->store();
    if (first) store.set("group/" + name, std::to_string(store.add("groups", 1)));
    const int number = std::atoi(store.get("group/" + name, session()->options().timeout_seconds).c_str());
    TERN_CHECK(number > 0 && number < kMaxGroups, "split: a job may make at most ", kMaxGroups - 1, " groups");
    return number;
  }

  std::shared_ptr<const Group> group_;
  std::shared_ptr<Engine> engine_;
  int64_t ticket_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> make_world_group(std::shared_ptr<Engine> engine, std::shared_ptr<Session> session) {
  Group group{.functions = &engine->functions(), .world_ranks = {}, .rank = engine->rank(), .id = 0};
  for (int r = 0; r < engine->size(); ++r) group.world_ranks.push_back(r);
  return std::make_shared<MpiCommunicator>("world", std::move(group), std::move(engine), std::move(session));
}

}  // namespace tern::dist::mpi
