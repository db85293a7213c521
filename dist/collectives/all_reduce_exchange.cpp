#include "tern/dist/collectives/all_reduce_exchange.h"

#include "tern/core/autograd/grad_mode.h"
#include "tern/dist/collectives/row_exchange.h"

namespace tern::dist {
namespace {

bool goes_by_rows(const Tensor& parameter) {
  return parameter.device().is_cpu() && parameter.has_few_gradient_rows() && parameter.nbytes() >= kMinRowExchangeBytes;
}

}  // namespace

AllReduceExchange::AllReduceExchange(const std::shared_ptr<Communicator>& group,
                                     const std::vector<NamedTensor>& parameters, const ExchangeOptions& options)
    : GradientExchange(group, parameters, options, 1 << 20, goes_by_rows) {
  make_buckets();
}

void AllReduceExchange::complete(size_t index) {
  Bucket& bucket = buckets_[index];
  rows_.resize(index);
  rows_.emplace_back();
  const Tensor& first = members_[bucket.members.front()].parameter;
  if (bucket.members.size() == 1 && goes_by_rows(first))
    rows_.back().touched = empty({first.size(0)}, {.dtype = boolean});
  else
    make_sent(bucket);
}

Work AllReduceExchange::start(size_t index) {
  Bucket& bucket = buckets_[index];
  Rows& rows = rows_[index];
  if (rows.touched.defined()) {
    rows.touched = touched_rows(rows_of(bucket));
    return group_->all_reduce_async(rows.touched, ReduceOp::kMax);
  }
  if (!same(bucket.sent, bucket.flat)) bucket.sent.copy_(bucket.flat);
  return group_->all_reduce_async(bucket.sent, ReduceOp::kMean);
}

Tensor AllReduceExchange::rows_of(const Bucket& bucket) const {
  const Member& member = members_[bucket.members.front()];
  return place_of(member).reshape({member.parameter.size(0), -1});
}

void AllReduceExchange::send_rest() {
  NoGrad off;
  for (const size_t i : order_) {
    Bucket& bucket = buckets_[i];
    Rows& rows = rows_[i];
    if (!rows.touched.defined()) continue;
    bucket.work.wait();
    rows.sent = rows_to_exchange(rows.touched);
    bucket.sent = rows.sent ? take_rows(rows_of(bucket), *rows.sent) : bucket.flat;
    if (is_narrowed(bucket)) bucket.sent = bucket.sent.to(options_.reduce_dtype);
    bucket.work = group_->all_reduce_async(bucket.sent, ReduceOp::kMean);
  }
}

void AllReduceExchange::deliver(const std::vector<bool>& unused) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    if (rows_[b].sent)
      put_rows(bucket.sent.to(bucket.flat.dtype()), *rows_[b].sent, rows_of(bucket));
    else if (!same(bucket.sent, bucket.flat))
      bucket.flat.copy_(bucket.sent);
    for (const size_t i : bucket.members)
      if (!unused[i]) members_[i].parameter.set_grad(place_of(members_[i]).reshape(members_[i].parameter.shape()));
  }
}

void AllReduceExchange::adopt_order(const std::vector<size_t>& ready) {
  make_buckets(ready);  // the gradients of this pass are views of the old buckets, which they keep alive
}

}  // namespace tern::dist
