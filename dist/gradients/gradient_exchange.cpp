#include "tern/dist/gradients/gradient_exchange.h"

#include <algorithm>
#include <numeric>

#include "tern/core/autograd/grad_mode.h"

namespace tern::dist {

GradientExchange::GradientExchange(std::shared_ptr<Communicator> group, const std::vector<NamedTensor>& parameters,
                                   const ExchangeOptions& options, int64_t min_bytes,
                                   bool (*is_left_out)(const Tensor&))
    : group_(std::move(group)), options_(options) {
  int64_t bytes = 0;
  for (const NamedTensor& p : parameters) {
    members_.push_back({.name = p.name, .parameter = p.tensor, .options = p.tensor.options()});
    if (!is_left_out || !is_left_out(p.tensor)) bytes += p.tensor.nbytes();
  }
  if (options.bucket_bytes == 0) options_.bucket_bytes = std::clamp<int64_t>(bytes / 16, min_bytes, 25 << 20);
}

void GradientExchange::make_buckets(std::vector<size_t> order) {
  if (order.empty()) {
    order.resize(members_.size());
    std::iota(order.rbegin(), order.rend(), size_t{0});
  }
  buckets_.clear();
  int64_t elements = 0;
  const auto close = [&] {
    if (buckets_.empty()) return;
    Bucket& bucket = buckets_.back();
    const Tensor& first = members_[bucket.members.front()].parameter;
    bucket.flat = zeros({lay_out(bucket, elements)}, {.dtype = first.dtype(), .device = first.device()});
    complete(buckets_.size() - 1);
  };
  for (const size_t i : order) {
    Member& member = members_[i];
    const int64_t bytes = size_of(member.parameter.dtype()), step = kBucketAlignment / bytes;
    const int64_t room = (buckets_.size() <= 1 ? options_.first_bucket_bytes : options_.bucket_bytes) / bytes;
    const bool fits = !buckets_.empty() && elements + member.parameter.numel() <= room &&
                      members_[buckets_.back().members.front()].parameter.dtype() == member.parameter.dtype();
    if (!fits) {
      close();
      buckets_.emplace_back();
      elements = 0;
    }
    member.bucket = buckets_.size() - 1;
    member.begin = elements;
    buckets_.back().members.push_back(i);
    elements += (member.parameter.numel() + step - 1) / step * step;
  }
  close();
  order_.resize(buckets_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
}

void GradientExchange::begin_pass() {
  for (const Member& member : members_)
    TERN_CHECK(member.parameter.dtype() == member.options.dtype && member.parameter.device() == member.options.device,
               "DataParallel: parameter '", member.name, "' is now ", member.parameter.dtype(), " on ",
               member.parameter.device(), ", but was ", member.options.dtype, " on ", member.options.device,
               " when DataParallel was made; make it after the last Module::to");
}

void GradientExchange::send(size_t index) {
  NoGrad off;
  Bucket& bucket = buckets_[index];
  for (const size_t i : bucket.members) {
    Member& member = members_[i];
    Tensor place = place_of(member);
    const Tensor gradient = member.parameter.grad();
    if (!gradient.defined())
      place.zero_();
    else if (gradient.raw_data() != place.raw_data())
      place.copy_(gradient.detach().reshape({-1}));
    member.has_gradient = gradient.defined();
  }
  bucket.work = start(index);
}

int64_t GradientExchange::wait() {
  int64_t bytes = 0;
  for (Bucket& bucket : buckets_) {
    bucket.work.wait();
    bytes += bucket.sent.nbytes();
  }
  return bytes;
}

bool GradientExchange::is_narrowed(const Bucket& bucket) const {
  return is_low_precision(options_.reduce_dtype) && !is_low_precision(bucket.flat.dtype());
}

void GradientExchange::make_sent(Bucket& bucket) const {
  const TensorOptions options{.dtype = options_.reduce_dtype, .device = bucket.flat.device()};
  bucket.sent = is_narrowed(bucket) ? empty(bucket.flat.shape(), options) : bucket.flat;
}

Tensor GradientExchange::place_of(const Member& member) const {
  return buckets_[member.bucket].flat.slice(0, member.begin, member.begin + member.parameter.numel());
}

}  // namespace tern::dist
