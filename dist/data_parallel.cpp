#include "tern/dist/data_parallel.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <sstream>

#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise.h"
#include "tern/dist/row_exchange.h"
#include "tern/nn/layers/embedding.h"

namespace tern::dist {
namespace {

// Every gradient begins at a multiple of this many bytes, for kernels that read 16 at a time.
constexpr int64_t kAlignment = 64;

/// FNV-1a: names of parameters are compared by it.
int64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037ull;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211ull;
  return static_cast<int64_t>(hash >> 1);
}

/// Where the embeddings' weights begin, of this module and all below.
void collect_embeddings(const nn::Module& module, std::set<const void*>& weights) {
  if (const auto* embedding = dynamic_cast<const nn::Embedding*>(&module))
    weights.insert(embedding->weight().tensor().raw_data());
  for (const nn::Module* child : module.children()) collect_embeddings(*child, weights);
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
  std::set<const void*> embeddings;
  if (group_->device().is_cpu() && !options.shard) collect_embeddings(module, embeddings);
  for (const NamedTensor& p : module.parameters())
    if (p.tensor.requires_grad())
      members_.push_back(
          {.name = p.name,
           .parameter = p.tensor,
           .by_rows = p.tensor.nbytes() >= kLeastRowExchangeBytes && embeddings.count(p.tensor.raw_data()) > 0});
  if (group_->size() > 1) check_equal_facts();
  TERN_CHECK(!members_.empty(), "DataParallel: no parameter requires a gradient");
  if (group_->size() == 1) return;
  bucket_bytes_ = options.bucket_bytes > 0 ? options.bucket_bytes : default_bucket_bytes();
  {
    NoGrad off;
    for (const NamedTensor& entry : module.state_dict()) {
      Tensor value = entry.tensor.detach();
      group_->broadcast(value);
    }
  }
  // Backward reaches the last parameters first.
  std::vector<size_t> order(members_.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  make_buckets(order);
  for (size_t i = 0; i < members_.size(); ++i)
    members_[i].hook =
        members_[i].parameter.register_post_accumulate_hook([this, i](const Tensor&) { on_gradient(i); });
}

DataParallel::~DataParallel() {
  if (group_->size() == 1) return;
  for (Member& member : members_) member.parameter.remove_hook(member.hook);
}

int64_t DataParallel::default_bucket_bytes() const {
  int64_t all = 0;
  for (const Member& member : members_)
    if (!member.by_rows) all += member.parameter.nbytes();
  constexpr int64_t kMiB = 1 << 20;
  const int64_t least = options_.shard ? std::min<int64_t>(group_->size(), 25) : 1;
  return std::clamp<int64_t>(all / 16, least * kMiB, 25 * kMiB);
}

std::vector<std::string> DataParallel::facts() const {
  const auto text = [](const auto&... parts) { return detail::concatenate(parts...); };
  std::vector<std::string> lines = {
      text("bucket_bytes = ", options_.bucket_bytes), text("first_bucket_bytes = ", options_.first_bucket_bytes),
      text("reduce_dtype = ", options_.reduce_dtype), text("find_unused = ", options_.find_unused ? "true" : "false"),
      text("shard = ", options_.shard ? "true" : "false")};
  for (const NamedTensor& p : module_.parameters())
    lines.push_back(text(p.tensor.requires_grad() ? "" : "frozen ", "parameter '", p.name, "', ", p.tensor.dtype(), " ",
                         p.tensor.shape()));
  for (const Member& member : members_)
    if (member.by_rows) lines.push_back(text("the embedding '", member.name, "'"));
  for (const NamedTensor& b : module_.buffers())
    lines.push_back(text("buffer '", b.name, "', ", b.tensor.dtype(), " ", b.tensor.shape()));
  return lines;
}

/// Every rank sees what all have, so that all throw or none.
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

void DataParallel::broadcast_buffers() {
  NoGrad off;
  for (const NamedTensor& buffer : module_.buffers()) {
    Tensor value = buffer.tensor.detach();
    group_->broadcast(value);
  }
}

std::vector<int64_t> DataParallel::bucket_sizes() const {
  std::vector<int64_t> sizes;
  for (const size_t i : exchange_) sizes.push_back(buckets_[i].flat.nbytes());
  return sizes;
}

void DataParallel::make_buckets(const std::vector<size_t>& order) {
  buckets_.clear();
  int64_t elements = 0;
  const auto close = [&] {
    if (buckets_.empty() || elements == 0) return;
    Bucket& bucket = buckets_.back();
    const Tensor& first = members_[bucket.members.front()].parameter;
    if (options_.shard) elements = lay_out(bucket);
    bucket.flat = zeros({elements}, {.dtype = first.dtype(), .device = first.device()});
    if (bucket.members.size() == 1 && members_[bucket.members.front()].by_rows)
      bucket.touched = empty({first.size(0)}, {.dtype = boolean});
    else
      bucket.sent = travels_narrow(bucket)
                        ? empty({elements}, {.dtype = options_.reduce_dtype, .device = first.device()})
                        : bucket.flat;
    if (options_.shard) move_weights(bucket);
  };
  for (const size_t i : order) {
    Member& member = members_[i];
    const int64_t bytes = size_of(member.parameter.dtype()), step = kAlignment / bytes;
    const int64_t room = (buckets_.size() <= 1 ? options_.first_bucket_bytes : bucket_bytes_) / bytes;
    const bool fits = !buckets_.empty() && elements + member.parameter.numel() <= room &&
                      members_[buckets_.back().members.front()].parameter.dtype() == member.parameter.dtype();
    if (!fits) {
      close();
      buckets_.emplace_back();
      elements = 0;
    }
    member.bucket = static_cast<int64_t>(buckets_.size()) - 1;
    member.begin = elements;
    buckets_.back().members.push_back(i);
    elements += (member.parameter.numel() + step - 1) / step * step;
  }
  close();
  exchange_.resize(buckets_.size());
  std::iota(exchange_.begin(), exchange_.end(), size_t{0});
}

void DataParallel::on_gradient(size_t index) {
  if (!synchronizes_) return;
  if (!in_pass_) begin_pass();
  Member& member = members_[index];
  Bucket& bucket = buckets_[static_cast<size_t>(member.bucket)];
  // A parameter that recomputed stretches share comes once for each of them.
  TERN_CHECK(!member.ready || !bucket.launched, "DataParallel: the gradient of '", member.name,
             "' grew after it had been sent: the parameter is used in several stretches of recomputation; recompute "
             "only what uses it once");
  if (member.ready) return;
  member.ready = true;
  if (!ordered_) order_.push_back(index);
  --bucket.pending;
  launch_ready();
}

void DataParallel::begin_pass() {
  TERN_CHECK(!torn_,
             "DataParallel: an earlier backward() of this rank failed after it had sent gradients, so the ranks "
             "do not agree any more; start the job again");
  in_pass_ = true;
  next_bucket_ = 0;
  order_.clear();
  for (Member& member : members_) {
    member.ready = false;
    // The exchange will overwrite it.
    if (options_.shard) member.earlier = member.shard.grad().defined() ? member.shard.grad().clone() : Tensor();
  }
  for (Bucket& bucket : buckets_) {
    bucket.pending = static_cast<int64_t>(bucket.members.size());
    bucket.launched = false;
  }
  after_backward([this](bool completed) {
    in_pass_ = false;
    if (completed)
      end_pass();
    else
      torn_ = next_bucket_ > 0;
  });
}

void DataParallel::launch_ready() {
  while (options_.overlap && next_bucket_ < exchange_.size() && buckets_[exchange_[next_bucket_]].pending == 0)
    launch(buckets_[exchange_[next_bucket_++]]);
}

/// Gathers the bucket's gradients, also those that earlier passes without exchange have left, and sends them.
void DataParallel::launch(Bucket& bucket) {
  NoGrad off;
  for (const size_t i : bucket.members) {
    Member& member = members_[i];
    Tensor place = bucket.flat.slice(0, member.begin, member.begin + member.parameter.numel());
    const Tensor gradient = member.parameter.grad();
    if (!gradient.defined())
      place.zero_();
    else if (gradient.raw_data() != place.raw_data())
      place.copy_(gradient.detach().reshape({-1}));
    member.has_gradient = gradient.defined();
    if (options_.shard) member.parameter.set_grad({});
  }
  bucket.launched = true;
  if (bucket.touched.defined()) {
    bucket.touched = touched_rows(rows_of(bucket));
    bucket.work = group_->all_reduce_async(bucket.touched, ReduceOp::kMax);
    return;
  }
  if (!same(bucket.sent, bucket.flat)) bucket.sent.copy_(bucket.flat);
  bucket.work = options_.shard ? group_->reduce_scatter_async(part_of(bucket.sent), bucket.sent, ReduceOp::kMean)
                               : group_->all_reduce_async(bucket.sent, ReduceOp::kMean);
}

bool DataParallel::travels_narrow(const Bucket& bucket) const {
  return is_low_precision(options_.reduce_dtype) && !is_low_precision(bucket.flat.dtype());
}

Tensor DataParallel::rows_of(const Bucket& bucket) const {
  const Tensor& parameter = members_[bucket.members.front()].parameter;
  return bucket.flat.slice(0, 0, parameter.numel()).reshape({parameter.size(0), -1});
}

void DataParallel::launch_rows(Bucket& bucket) {
  NoGrad off;
  bucket.work.wait();
  bucket.rows = rows_to_exchange(bucket.touched);
  bucket.sent = bucket.rows ? take_rows(rows_of(bucket), *bucket.rows) : bucket.flat;
  if (travels_narrow(bucket)) bucket.sent = bucket.sent.to(options_.reduce_dtype);
  bucket.work = group_->all_reduce_async(bucket.sent, ReduceOp::kMean);
}

std::vector<int32_t> DataParallel::count_missing() {
  if (group_->device().is_cuda() && ordered_ && !options_.find_unused) return {};
  std::vector<int32_t> missing;
  for (const Member& member : members_) missing.push_back(!member.has_gradient);
  Tensor all = from_vector(missing, {static_cast<int64_t>(missing.size())}).to(group_->device());
  group_->all_reduce(all);
  return all.to_vector<int32_t>();
}

void DataParallel::check_missing(const std::vector<int32_t>& missing) const {
  std::string names;
  int32_t most = 0;
  for (size_t i = 0; i < members_.size(); ++i) {
    const bool lacks = missing.empty() ? !members_[i].has_gradient : missing[i] > 0;
    if (!lacks) continue;
    names += (names.empty() ? "" : ", ") + members_[i].name;
    most = std::max(most, missing.empty() ? 1 : missing[i]);
  }
  TERN_CHECK(names.empty(), "DataParallel: no gradient for ", names, " on ", most, " of ", group_->size(),
             " ranks: the loss does not depend on it there; use DataParallelOptions::find_unused, or freeze it");
}

void DataParallel::end_pass() {
  // What has no gradient counts as zeros, so that no other rank waits for it.
  while (next_bucket_ < exchange_.size()) launch(buckets_[exchange_[next_bucket_++]]);
  const auto started = std::chrono::steady_clock::now();
  for (const size_t i : exchange_)
    if (buckets_[i].touched.defined()) launch_rows(buckets_[i]);
  const std::vector<int32_t> missing = count_missing();
  exchanged_bytes_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.work.wait();
    exchanged_bytes_ += bucket.sent.nbytes();
  }
  waited_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (!options_.find_unused) check_missing(missing);
  NoGrad off;
  for (Bucket& bucket : buckets_) {
    if (options_.shard) {
      hand_out(bucket, missing);
      continue;
    }
    if (bucket.rows)
      put_rows(bucket.sent.to(bucket.flat.dtype()), *bucket.rows, rows_of(bucket));
    else if (!same(bucket.sent, bucket.flat))
      bucket.flat.copy_(bucket.sent);
    for (const size_t i : bucket.members) {
      Member& member = members_[i];
      if (!missing.empty() && missing[i] == group_->size()) continue;
      Tensor place = bucket.flat.slice(0, member.begin, member.begin + member.parameter.numel());
      member.parameter.set_grad(place.reshape(member.parameter.shape()));
    }
  }
  if (!ordered_) adopt_order();
}

/// The order of rank 0 becomes everyone's.
void DataParallel::adopt_order() {
  ordered_ = true;
  std::vector<int64_t> order(order_.begin(), order_.end());
  for (size_t i = 0; i < members_.size(); ++i)
    if (!members_[i].ready) order.push_back(static_cast<int64_t>(i));
  Tensor agreed = from_vector(order, {static_cast<int64_t>(order.size())}).to(group_->device());
  group_->broadcast(agreed);
  order_.clear();
  for (const int64_t i : agreed.to_vector<int64_t>()) order_.push_back(static_cast<size_t>(i));
  // The gradients of this pass are views of the old buckets, which they keep alive.
  if (options_.shard)
    order_buckets(order_);
  else
    make_buckets(order_);
  order_.clear();
}

}  // namespace tern::dist
