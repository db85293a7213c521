#include "tern/dist/gradients/data_parallel.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <sstream>

#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/dist/collectives/all_reduce_exchange.h"

namespace tern::dist {
namespace {

/// FNV-1a: names of parameters are compared by it.
int64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037ull;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211ull;
  return static_cast<int64_t>(hash >> 1);
}

/// Copies rank 0's values to all.
void broadcast_all(const StateView& state, Communicator& group) {
  NoGrad off;
  for (const NamedTensor& entry : state) {
    Tensor value = entry.tensor.detach();
    group.broadcast(value);
  }
}

}  // namespace

DataParallel::DataParallel(nn::Module& module, std::shared_ptr<Communicator> group, const DataParallelOptions& options)
    : module_(module), group_(std::move(group)), options_(options) {
  TERN_CHECK(group_, "DataParallel: there is no group");
  TERN_CHECK(options.bucket_bytes >= 0 && options.first_bucket_bytes > 0,
             "DataParallel: buckets must have bytes, got bucket_bytes ", options.bucket_bytes, ", first_bucket_bytes ",
             options.first_bucket_bytes);
  TERN_CHECK(options.reduce_dtype == float32 || is_low_precision(options.reduce_dtype),
             "DataParallel: reduce_dtype must be float32, bfloat16 or float16, got ", options.reduce_dtype);
  if (group_->size() > 1) check_equal_facts();
  std::vector<NamedTensor> trained;
  for (const NamedTensor& p : module.parameters())
    if (p.tensor.requires_grad()) trained.push_back(p);
  TERN_CHECK(!trained.empty(), "DataParallel: no parameter requires a gradient");
  if (group_->size() == 1) return;
  broadcast_all(module.state_dict(), *group_);
  make_exchange(trained);
  for (size_t i = 0; i < trained.size(); ++i)
    hooks_.push_back(
        Tensor(trained[i].tensor).register_post_accumulate_hook([this, i](const Tensor&) { on_gradient(i); }));
}

DataParallel::~DataParallel() {
  for (size_t i = 0; i < hooks_.size(); ++i) Tensor(exchange_->members()[i].parameter).remove_hook(hooks_[i]);
}

void DataParallel::make_exchange(const std::vector<NamedTensor>& trained) {
  const ExchangeOptions options = {options_.bucket_bytes, options_.first_bucket_bytes, options_.reduce_dtype};
  if (options_.shard && !options_.whole_parameters) {
    auto sharded = std::make_unique<ShardedExchange>(group_, trained, options);
    sharded_ = sharded.get();
    exchange_ = std::move(sharded);
  } else {
    exchange_ = std::make_unique<AllReduceExchange>(group_, trained, options);
  }
}

bool DataParallel::exchanges(const Tensor& parameter) const {
  if (!exchange_) return false;
  const auto& members = exchange_->members();
  return std::any_of(members.begin(), members.end(), [&](const GradientExchange::Member& member) {
    return member.parameter.impl() == parameter.impl();
  });
}

std::vector<std::string> DataParallel::facts() const {
  const auto text = [](const auto&... parts) { return detail::concatenate(parts...); };
  std::vector<std::string> lines = {text("bucket_bytes = ", options_.bucket_bytes),
                                    text("first_bucket_bytes = ", options_.first_bucket_bytes),
                                    text("reduce_dtype = ", options_.reduce_dtype),
                                    text("find_unused = ", options_.find_unused ? "true" : "false"),
                                    text("shard = ", options_.shard ? "true" : "false"),
                                    text("whole_parameters = ", options_.whole_parameters ? "true" : "false")};
  for (const NamedTensor& p : module_.parameters())
    lines.push_back(text(p.tensor.requires_grad() ? "" : "frozen ", "parameter '", p.name, "', ", p.tensor.dtype(), " ",
                         p.tensor.shape(), p.tensor.has_few_gradient_rows() ? ", few gradient rows" : ""));
  for (const NamedTensor& b : module_.buffers())
    lines.push_back(text("buffer '", b.name, "', ", b.tensor.dtype(), " ", b.tensor.shape()));
  return lines;
}

/// Every rank gets the values of all, so that either all throw or none.
void DataParallel::check_equal_facts() const {
  const std::vector<std::string> mine = facts();
  std::string text;
  for (const std::string& line : mine) text += line + '\n';
  const auto gather = [&](const Tensor& own) { return group_->all_gather(own.to(group_->device())); };
  const int64_t hash = hash_of(text), length = static_cast<int64_t>(text.size());
  int64_t longest = 0;
  bool equal = true;
  for (const Tensor& other : gather(from_vector<int64_t>({hash, length}, {2}))) {
    const std::vector<int64_t> values = other.to_vector<int64_t>();
    equal = equal && values[0] == hash && values[1] == length;
    longest = std::max(longest, values[1]);
  }
  if (equal) return;
  std::vector<uint8_t> bytes(text.begin(), text.end());
  bytes.resize(static_cast<size_t>(longest), 0);
  std::vector<std::vector<std::string>> all;
  for (const Tensor& other : gather(from_vector(bytes, {longest}))) {
    const std::vector<uint8_t> theirs = other.to_vector<uint8_t>();
    std::istringstream lines(std::string(theirs.begin(), theirs.end()));
    all.emplace_back();
    for (std::string line; std::getline(lines, line) && line.front() != '\0';) all.back().push_back(line);
  }
  const auto line_of = [&](size_t rank, size_t i) { return i < all[rank].size() ? all[rank][i] : "nothing more"; };
  for (size_t rank = 1; rank < all.size(); ++rank)
    for (size_t i = 0; i < std::max(all[0].size(), all[rank].size()); ++i)
      TERN_CHECK(line_of(rank, i) == line_of(0, i), "DataParallel: the ranks' modules differ: rank 0 has ",
                 line_of(0, i), ", rank ", rank, " has ", line_of(rank, i));
}

void DataParallel::broadcast_buffers() { broadcast_all(module_.buffers(), *group_); }

std::vector<int64_t> DataParallel::bucket_sizes() const {
  std::vector<int64_t> sizes;
  if (exchange_)
    for (const size_t bucket : exchange_->order()) sizes.push_back(exchange_->bytes_of(bucket));
  return sizes;
}

int64_t DataParallel::gradient_bytes() const {
  const std::vector<int64_t> sizes = bucket_sizes();
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

void DataParallel::on_gradient(size_t index) {
  if (!synchronizes_) return;
  if (!in_pass_) begin_pass();
  const GradientExchange::Member& member = exchange_->members()[index];
  // A parameter that several recomputed parts of the graph use comes once for each of them.
  TERN_CHECK(!ready_[index] || !sent_[member.bucket], "DataParallel: the gradient of '", member.name,
             "' grew after it had been sent: the parameter is used in several recomputed segments; recompute "
             "only what uses it once");
  if (ready_[index]) return;
  ready_[index] = true;
  if (!ordered_) new_order_.push_back(index);
  --pending_[member.bucket];
  const std::vector<size_t>& order = exchange_->order();
  while (options_.overlap && next_bucket_ < order.size() && pending_[order[next_bucket_]] == 0) send_next();
}

void DataParallel::send_next() {
  const size_t bucket = exchange_->order()[next_bucket_++];
  sent_[bucket] = true;
  exchange_->send(bucket);
}

void DataParallel::begin_pass() {
  TERN_CHECK(!torn_,
             "DataParallel: an earlier backward() of this rank failed after it had sent gradients, so the ranks "
             "do not agree any more; start the job again");
  exchange_->begin_pass();
  in_pass_ = true;
  next_bucket_ = 0;
  new_order_.clear();
  ready_.assign(exchange_->members().size(), false);
  sent_.assign(exchange_->bucket_count(), false);
  pending_.clear();
  for (size_t b = 0; b < exchange_->bucket_count(); ++b) pending_.push_back(exchange_->member_count(b));
  after_backward([this](bool completed) {
    in_pass_ = false;
    if (completed)
      end_pass();
    else
      torn_ = next_bucket_ > 0;
  });
}

std::vector<int32_t> DataParallel::count_missing() {
  if (group_->device().is_cuda() && ordered_ && !options_.find_unused) return {};
  std::vector<int32_t> missing;
  for (const GradientExchange::Member& member : exchange_->members()) missing.push_back(!member.has_gradient);
  Tensor all = from_vector(missing, {static_cast<int64_t>(missing.size())}).to(group_->device());
  group_->all_reduce(all);
  return all.to_vector<int32_t>();
}

void DataParallel::check_missing(const std::vector<int32_t>& missing) const {
  const std::vector<GradientExchange::Member>& members = exchange_->members();
  std::string names;
  int32_t max_missing = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const bool lacks = missing.empty() ? !members[i].has_gradient : missing[i] > 0;
    if (!lacks) continue;
    names += (names.empty() ? "" : ", ") + members[i].name;
    max_missing = std::max(max_missing, missing.empty() ? 1 : missing[i]);
  }
  TERN_CHECK(names.empty(), "DataParallel: no gradient for ", names, " on ", max_missing, " of ", group_->size(),
             " ranks: the loss does not depend on it there; use DataParallelOptions::find_unused, or freeze it");
}

void DataParallel::end_pass() {
  // What has no gradient counts as zeros, so that no other rank waits for it.
  while (next_bucket_ < exchange_->order().size()) send_next();
  const auto started = std::chrono::steady_clock::now();
  exchange_->send_rest();
  const std::vector<int32_t> missing = count_missing();
  exchanged_bytes_ = exchange_->wait();
  waited_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (!options_.find_unused) check_missing(missing);
  NoGrad off;
  std::vector<bool> unused(ready_.size(), false);
  for (size_t i = 0; i < missing.size(); ++i) unused[i] = missing[i] == group_->size();
  exchange_->deliver(unused);
  if (!ordered_) adopt_order();
}

/// The order of rank 0 becomes everyone's.
void DataParallel::adopt_order() {
  ordered_ = true;
  std::vector<int64_t> order(new_order_.begin(), new_order_.end());
  for (size_t i = 0; i < ready_.size(); ++i)
    if (!ready_[i]) order.push_back(static_cast<int64_t>(i));
  Tensor agreed = from_vector(order, {static_cast<int64_t>(order.size())}).to(group_->device());
  group_->broadcast(agreed);
  const std::vector<int64_t> all = agreed.to_vector<int64_t>();
  exchange_->adopt_order({all.begin(), all.end()});
}

}  // namespace tern::dist
