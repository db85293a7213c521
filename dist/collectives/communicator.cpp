#include "tern/dist/collectives/communicator.h"

#include <algorithm>
#include <set>

#include "tern/core/autograd/grad_mode.h"
#include "tern/dist/loop/session.h"

namespace tern::dist {
namespace {

void check_reduction(const char* operation, DType dtype, ReduceOp op) {
  TERN_CHECK(op != ReduceOp::kMean || is_floating(dtype), operation, ": the mean needs a floating dtype, got ", dtype);
  TERN_CHECK(op != ReduceOp::kSum || dtype != DType::kBool, operation,
             ": bool has no sum; use kMax (any) or kMin (all), or convert");
}

/// Checks that `many` has `times` as many elements as `one`.
void check_parts(const char* operation, const Tensor& one, const Tensor& many, int times, const char* one_name,
                 const char* many_name) {
  TERN_CHECK(many.dtype() == one.dtype(), operation, ": ", many_name, " is ", many.dtype(), " and ", one_name, " ",
             one.dtype());
  TERN_CHECK(many.numel() == one.numel() * times, operation, ": ", many_name, " must have ", times,
             " times as many elements as ", one_name, ", got ", many.shape(), " and ", one.shape());
}

/// Runs the async function on a contiguous tensor and stores the result in `tensor`.
template <class Start>
void run_in_place(Tensor& tensor, Start&& start) {
  if (!tensor.defined() || tensor.is_contiguous()) {
    start(tensor).wait();
    return;
  }
  Tensor copy = tensor.detach().contiguous();
  start(copy).wait();
  tensor.copy_(copy);
}

Tensor contiguous(const Tensor& tensor) { return tensor.defined() ? tensor.detach().contiguous() : tensor; }

}  // namespace

const char* name_of(Operation operation) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                    "send",       "receive",        "barrier"};
  return kNames[static_cast<int>(operation)];
}

const char* name_of(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "mean", "max", "min"};
  return kNames[static_cast<int>(op)];
}

std::string Call::text() const {
  if (operation == Operation::kBarrier) return "barrier";
  const std::string what = detail::concatenate(tensor().dtype(), " ", tensor().shape());
  switch (operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
      return detail::concatenate(name_of(operation), " of ", what, ", ", name_of(op));
    case Operation::kBroadcast:
      return detail::concatenate("broadcast of ", what, ", root ", peer);
    case Operation::kAllGather:
      return "all_gather of " + what;
    default:
      return what;
  }
}

Communicator::Communicator(std::string name, std::vector<int> world_ranks, int rank, Device device,
                           std::shared_ptr<Session> session)
    : name_(std::move(name)),
      world_ranks_(std::move(world_ranks)),
      rank_(rank),
      device_(device),
      session_(std::move(session)),
      sent_(world_ranks_.size()),
      received_(world_ranks_.size()) {}

Communicator::~Communicator() = default;

void Communicator::check_tensor(const char* operation, const Tensor& tensor, bool written) const {
  TERN_CHECK(tensor.defined(), operation, ": the tensor is undefined");
  TERN_CHECK(!written || !grad_enabled() || !tensor.requires_grad(), operation,
             ": the tensor is recorded by autograd; pass tensor.detach(), or call it under NoGrad");
  TERN_CHECK(tensor.is_contiguous(), operation, ": the tensor, ", tensor.describe(),
             ", must be contiguous for the async functions");
  TERN_CHECK(!session_ || tensor.device() == device_, operation, ": this group exchanges tensors on ", device_,
             ", got ", tensor.describe());
}

Work Communicator::begin(Call call) {
  if (call.operation == Operation::kSend)
    call.number = ++sent_[static_cast<size_t>(call.peer)];
  else if (call.operation == Operation::kReceive)
    call.number = ++received_[static_cast<size_t>(call.peer)];
  else
    call.number = ++calls_;
  if (session_) {
    if (session_->has_failed()) throw PeerError(session_->failure());
    if (!call.is_pairwise()) session_->note(name_, call.number, call.text());
    if (session_->options().check) {
      settle();
      session_->compare(name_, world_ranks_, call, world_ranks_[static_cast<size_t>(call.peer)]);
    }
  }
  if (call.operation == Operation::kBarrier) return {};
  if (call.output.defined()) call.output.bump_version();
  return start(call);
}

Call Communicator::begin_barrier() {
  Call call;
  begin(call);
  call.number = calls_;
  return call;
}

Work Communicator::all_reduce_async(const Tensor& tensor, ReduceOp op) {
  check_tensor("all_reduce", tensor, true);
  check_reduction("all_reduce", tensor.dtype(), op);
  return begin({.operation = Operation::kAllReduce, .input = tensor, .output = tensor, .op = op});
}
void Communicator::all_reduce(Tensor& tensor, ReduceOp op) {
  run_in_place(tensor, [&](const Tensor& t) { return all_reduce_async(t, op); });
}

Work Communicator::reduce_scatter_async(const Tensor& output, const Tensor& input, ReduceOp op) {
  check_tensor("reduce_scatter", output, true);
  check_tensor("reduce_scatter", input, false);
  check_reduction("reduce_scatter", input.dtype(), op);
  check_parts("reduce_scatter", output, input, size(), "the output", "the input");
  return begin({.operation = Operation::kReduceScatter, .input = input, .output = output, .op = op});
}
void Communicator::reduce_scatter(Tensor& output, const Tensor& input, ReduceOp op) {
  run_in_place(output, [&](const Tensor& t) { return reduce_scatter_async(t, contiguous(input), op); });
}

Work Communicator::all_gather_async(const Tensor& output, const Tensor& input) {
  check_tensor("all_gather", output, true);
  check_tensor("all_gather", input, false);
  check_parts("all_gather", input, output, size(), "the input", "the output");
  return begin({.operation = Operation::kAllGather, .input = input, .output = output});
}
void Communicator::all_gather(Tensor& output, const Tensor& input) {
  run_in_place(output, [&](const Tensor& t) { return all_gather_async(t, contiguous(input)); });
}
std::vector<Tensor> Communicator::all_gather(const Tensor& tensor) {
  TERN_CHECK(tensor.defined(), "all_gather: the tensor is undefined");
  std::vector<int64_t> sizes = tensor.shape().vec();
  sizes.insert(sizes.begin(), size());
  TERN_CHECK(sizes.size() <= 8, "all_gather: a list is made of tensors of at most 7 dimensions, got ", tensor.shape());
  Tensor all = empty(Shape(sizes), tensor.options());
  all_gather(all, tensor);
  std::vector<Tensor> list;
  for (int r = 0; r < size(); ++r) list.push_back(all.select(0, r).clone());
  return list;
}

Work Communicator::broadcast_async(const Tensor& tensor, int root) {
  check_tensor("broadcast", tensor, true);
  TERN_CHECK(root >= 0 && root < size(), "broadcast: root must be in [0, ", size(), "), got ", root);
  return begin({.operation = Operation::kBroadcast, .input = tensor, .output = tensor, .peer = root});
}
void Communicator::broadcast(Tensor& tensor, int root) {
  run_in_place(tensor, [&](const Tensor& t) { return broadcast_async(t, root); });
}

Work Communicator::send_async(const Tensor& tensor, int to) {
  check_tensor("send", tensor, false);
  TERN_CHECK(to >= 0 && to < size() && to != rank_, "send: the receiver must be another rank in [0, ", size(),
             "), got ", to);
  return begin({.operation = Operation::kSend, .input = tensor, .peer = to});
}
void Communicator::send(const Tensor& tensor, int to) { send_async(contiguous(tensor), to).wait(); }

Work Communicator::receive_async(const Tensor& tensor, int from) {
  check_tensor("receive", tensor, true);
  TERN_CHECK(from >= 0 && from < size() && from != rank_, "receive: the sender must be another rank in [0, ", size(),
             "), got ", from);
  return begin({.operation = Operation::kReceive, .output = tensor, .peer = from});
}
void Communicator::receive(Tensor& tensor, int from) {
  run_in_place(tensor, [&](const Tensor& t) { return receive_async(t, from); });
}

std::shared_ptr<Communicator> Communicator::split(int colour, int key) {
  const Tensor choice = from_vector<int64_t>({colour, key}, {2}).to(device_);
  struct Place {
    int64_t colour, key;
    int rank;
  };
  std::vector<Place> places;
  const std::vector<Tensor> all = all_gather(choice);
  for (int r = 0; r < size(); ++r) {
    const std::vector<int64_t> place = all[static_cast<size_t>(r)].to_vector<int64_t>();
    places.push_back({place[0], place[1], r});
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.key < b.key; });
  std::vector<int> members;
  for (const Place& place : places)
    if (place.colour == colour && colour >= 0) members.push_back(place.rank);
  const std::string name = detail::concatenate(name_, ".", ++groups_);
  return group_of(colour < 0 ? name : detail::concatenate(name, ".", colour), members);
}

std::shared_ptr<Communicator> Communicator::subgroup(const std::vector<int>& ranks) {
  TERN_CHECK(!ranks.empty(), "subgroup: no ranks");
  for (const int r : ranks) TERN_CHECK(r >= 0 && r < size(), "subgroup: ranks must be in [0, ", size(), "), got ", r);
  TERN_CHECK(std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size(), "subgroup: a rank is named twice");
  return group_of(detail::concatenate(name_, ".", ++groups_), ranks);
}

std::shared_ptr<Communicator> Communicator::group_of(const std::string& name, const std::vector<int>& members) {
  const auto found = std::ranges::find(members, rank_);
  if (found == members.end()) return nullptr;
  std::vector<int> ranks;
  for (const int r : members) ranks.push_back(world_ranks_[static_cast<size_t>(r)]);
  return make_group(name, std::move(ranks), static_cast<int>(found - members.begin()));
}

SingleProcess::SingleProcess() : Communicator("world", {0}, 0, cpu, nullptr) {}

Work SingleProcess::start(const Call& call) {
  if (!same(call.input, call.output) && call.input.raw_data() != call.output.raw_data()) {
    NoGrad off;
    Tensor output = call.output;
    output.copy_(call.input.reshape(output.shape()));
  }
  return {};
}

}  // namespace tern::dist
