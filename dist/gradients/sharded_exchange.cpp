#include "tern/dist/gradients/sharded_exchange.h"

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/autograd/node.h"
#include "tern/kernels/reduce.h"

namespace tern::dist {
namespace {

/// Moves a parameter's values to `place`, [numel], which it is a view of from then on.
void reseat(const Tensor& parameter, const Tensor& place) {
  NoGrad off;
  Tensor target = place;
  target.copy_(parameter.detach().reshape({-1}));
  tern::detail::TensorImpl& impl = *parameter.impl();
  impl.storage = place.storage();
  impl.offset = place.storage_offset();
  impl.strides = place.reshape(parameter.shape()).strides();
  impl.contiguous = true;
}

/// 1 MiB for each rank, since parts are rounded up.
int64_t min_bucket_bytes(const Communicator& group) { return std::min<int64_t>(group.size(), 25) << 20; }

}  // namespace

ShardedExchange::ShardedExchange(const std::shared_ptr<Communicator>& group, const std::vector<NamedTensor>& parameters,
                                 const ExchangeOptions& options)
    : GradientExchange(group, parameters, options, min_bucket_bytes(*group)) {
  parts_.resize(members_.size());
  make_buckets();
}

int64_t ShardedExchange::lay_out(const Bucket& bucket, int64_t) {
  const Tensor& first = members_[bucket.members.front()].parameter;
  const int64_t alignment = kBucketAlignment / size_of(first.dtype());
  // On the CPU the gradients' norm has the same bits for any number of ranks: see gradient_norm_fold. On a GPU it
  // could not, as sums over ranks do not either.
  const int64_t block = first.device().is_cpu() ? std::max(alignment, kernels::kGradientNormBlockOnCpu) : alignment;
  std::vector<int64_t> sizes;
  for (const size_t i : bucket.members) sizes.push_back(members_[i].parameter.numel());
  const ShardLayout layout = lay_out_shards(sizes, group_->size(), alignment, block);
  for (size_t k = 0; k < bucket.members.size(); ++k) members_[bucket.members[k]].begin = layout.begins[k];
  return layout.part * group_->size();
}

/// Moves the bucket's parameters.
void ShardedExchange::complete(size_t index) {
  Bucket& bucket = buckets_[index];
  make_sent(bucket);
  const Tensor& weights = weights_.emplace_back(zeros(bucket.flat.shape(), bucket.flat.options()));
  for (const size_t i : bucket.members) {
    const Member& member = members_[i];
    const Tensor place = weights.slice(0, member.begin, member.begin + member.parameter.numel());
    reseat(member.parameter, place);
    const ShardRange range = range_of(member);
    parts_[i].weight = place.slice(0, range.begin, range.end).detach();
  }
  detail::expire_weight_copies();  // they are known by the version of storages that are gone
}

Tensor ShardedExchange::part_of(const Tensor& bucket) const {
  const int64_t part = bucket.numel() / group_->size();
  return bucket.slice(0, group_->rank() * part, (group_->rank() + 1) * part);
}

ShardRange ShardedExchange::range_of(const Member& member) const {
  return shard_of(member.begin, member.parameter.numel(), part_size(member), group_->rank());
}

void ShardedExchange::begin_pass() {
  GradientExchange::begin_pass();
  for (const Member& member : members_)
    TERN_CHECK(member.parameter.storage() == weights_[member.bucket].storage(), "DataParallel: parameter '",
               member.name, "' has been moved out of its bucket; make DataParallel after the last Module::to");
  // The exchange will overwrite it.
  for (Part& part : parts_) part.earlier = part.weight.grad().defined() ? part.weight.grad().clone() : Tensor();
}

Work ShardedExchange::start(size_t index) {
  Bucket& bucket = buckets_[index];
  for (const size_t i : bucket.members) members_[i].parameter.set_grad({});
  if (!same(bucket.sent, bucket.flat)) bucket.sent.copy_(bucket.flat);
  return group_->reduce_scatter_async(part_of(bucket.sent), bucket.sent, ReduceOp::kMean);
}

void ShardedExchange::deliver(const std::vector<bool>& unused) {
  for (const Bucket& bucket : buckets_) {
    if (!same(bucket.sent, bucket.flat)) part_of(bucket.flat).copy_(part_of(bucket.sent));
    for (const size_t i : bucket.members) {
      Part& part = parts_[i];
      if (unused[i]) {
        part.weight.set_grad(part.earlier);
        continue;
      }
      const ShardRange range = range_of(members_[i]);
      Tensor place = place_of(members_[i]).slice(0, range.begin, range.end);
      if (part.earlier.defined()) place.add_(part.earlier);
      part.weight.set_grad(place);
      part.earlier = {};
    }
  }
}

/// The weights stay where they are: a bucket is sent when the last of its members is ready.
void ShardedExchange::adopt_order(const std::vector<size_t>& ready) {
  std::vector<size_t> completed(buckets_.size());  // when, by the last of its members
  for (size_t k = 0; k < ready.size(); ++k) completed[members_[ready[k]].bucket] = k;
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return completed[a] < completed[b]; });
}

std::vector<ShardedExchange::Shard> ShardedExchange::shards() const {
  std::vector<Shard> shards;
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    shards.push_back({member.name, member.parameter, parts_[i].weight, static_cast<int64_t>(member.bucket),
                      member.begin, part_size(member)});
  }
  return shards;
}

Work ShardedExchange::gather_weights(int64_t bucket) {
  const Tensor& weights = weights_.at(static_cast<size_t>(bucket));
  return group_->all_gather_async(weights, part_of(weights));
}

void ShardedExchange::drop_gradients() {
  for (Member& member : members_) member.parameter.set_grad({});
  for (Part& part : parts_) part.weight.set_grad({});
}

}  // namespace tern::dist
