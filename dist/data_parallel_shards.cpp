// DataParallel with the option shard: parameters and gradients in flat buckets, of which each rank has a part.

#include <algorithm>

#include "tern/core/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/autograd/node.h"
#include "tern/core/ops/pointwise.h"
#include "tern/dist/data_parallel.h"
#include "tern/kernels/reduce.h"

namespace tern::dist {
namespace {

constexpr int64_t kAlignment = 64;  // bytes, of parameters and parts

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

}  // namespace

int64_t DataParallel::lay_out(Bucket& bucket) {
  const Tensor& first = members_[bucket.members.front()].parameter;
  const int64_t alignment = kAlignment / size_of(first.dtype());
  // On the CPU the gradients' norm has the same bits for any number of ranks: see gradient_norm_fold. On a GPU it
  // could not, as sums over ranks do not either.
  const int64_t block = first.device().is_cpu() ? std::max(alignment, kernels::kGradientNormBlockOnCpu) : alignment;
  std::vector<int64_t> sizes;
  for (const size_t i : bucket.members) sizes.push_back(members_[i].parameter.numel());
  const ShardLayout layout = lay_out_shards(sizes, group_->size(), alignment, block);
  for (size_t k = 0; k < bucket.members.size(); ++k) members_[bucket.members[k]].begin = layout.begins[k];
  return layout.part * group_->size();
}

void DataParallel::move_weights(Bucket& bucket) {
  bucket.weights = zeros(bucket.flat.shape(), bucket.flat.options());
  for (const size_t i : bucket.members) {
    Member& member = members_[i];
    const Tensor place = bucket.weights.slice(0, member.begin, member.begin + member.parameter.numel());
    reseat(member.parameter, place);
    const ShardRange range = range_of(member);
    member.shard = place.slice(0, range.begin, range.end).detach();
  }
  detail::expire_weight_copies();  // they are known by the version of storages that are gone
}

Tensor DataParallel::part_of(const Tensor& bucket) const {
  const int64_t part = bucket.numel() / group_->size();
  return bucket.slice(0, group_->rank() * part, (group_->rank() + 1) * part);
}

ShardRange DataParallel::range_of(const Member& member) const {
  const int64_t part = buckets_[static_cast<size_t>(member.bucket)].flat.numel() / group_->size();
  return shard_of(member.begin, member.parameter.numel(), part, group_->rank());
}

void DataParallel::hand_out(Bucket& bucket, const std::vector<int32_t>& missing) {
  if (!same(bucket.sent, bucket.flat)) part_of(bucket.flat).copy_(part_of(bucket.sent));
  for (const size_t i : bucket.members) {
    Member& member = members_[i];
    if (!missing.empty() && missing[i] == group_->size()) {
      member.shard.set_grad(member.earlier);
      continue;
    }
    const ShardRange range = range_of(member);
    Tensor place = bucket.flat.slice(0, member.begin + range.begin, member.begin + range.end);
    if (member.earlier.defined()) place.add_(member.earlier);
    member.shard.set_grad(place);
    member.earlier = {};
  }
}

void DataParallel::order_buckets(const std::vector<size_t>& order) {
  std::vector<size_t> completed(buckets_.size());  // when, by the last of its members
  for (size_t k = 0; k < order.size(); ++k) completed[static_cast<size_t>(members_[order[k]].bucket)] = k;
  std::stable_sort(exchange_.begin(), exchange_.end(), [&](size_t a, size_t b) { return completed[a] < completed[b]; });
}

std::vector<DataParallel::Shard> DataParallel::shards() const {
  std::vector<Shard> shards;
  if (!is_sharded()) return shards;
  for (const Member& member : members_)
    shards.push_back({member.name, member.parameter, member.shard, member.bucket, member.begin,
                      buckets_[static_cast<size_t>(member.bucket)].flat.numel() / group_->size()});
  return shards;
}

Work DataParallel::gather_weights(int64_t bucket) {
  const Tensor& weights = buckets_.at(static_cast<size_t>(bucket)).weights;
  return group_->all_gather_async(weights, part_of(weights));
}

void DataParallel::drop_gradients() {
  for (Member& member : members_) {
    member.parameter.set_grad({});
    if (member.shard.defined()) member.shard.set_grad({});
  }
}

int64_t DataParallel::gradient_bytes() const {
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets_) bytes += bucket.flat.nbytes();
  return bytes;
}

}  // namespace tern::dist
