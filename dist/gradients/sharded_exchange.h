#pragma once

#include "tern/dist/gradients/gradient_exchange.h"
#include "tern/dist/gradients/shard_layout.h"

namespace tern::dist {

/// Each rank gets the mean gradients of its part of every bucket (ZeRO stage 1). The parameters themselves are moved
/// into buckets of the same layout; their own gradients are undefined after a pass.
class ShardedExchange final : public GradientExchange {
 public:
  ShardedExchange(const std::shared_ptr<Communicator>& group, const std::vector<NamedTensor>& parameters,
                  const ExchangeOptions& options);

  /// What this rank has of a parameter.
  struct Shard {
    std::string name;
    Tensor parameter;
    Tensor weight;  // [n]: a view of the rank's elements, n = 0 when it has none; its grad() is their mean gradient
    int64_t bucket = 0, begin = 0;  // of the parameter in the bucket, in elements
    int64_t part = 0;               // elements of the bucket that each rank has
  };
  /// One for each parameter.
  std::vector<Shard> shards() const;
  /// Every rank's part of a bucket's weights goes to all.
  Work gather_weights(int64_t bucket);
  /// Drops the gradients of the parts, and what passes without exchange have gathered.
  void drop_gradients();

  void begin_pass() override;
  void deliver(const std::vector<bool>& unused) override;
  void adopt_order(const std::vector<size_t>& ready) override;

 private:
  struct Part {
    Tensor weight;   // Shard::weight
    Tensor earlier;  // its gradient of earlier passes that no step has used yet
  };
  int64_t lay_out(const Bucket& bucket, int64_t packed) override;
  void complete(size_t bucket) override;
  Work start(size_t bucket) override;
  /// This rank's part of a bucket.
  Tensor part_of(const Tensor& bucket) const;
  ShardRange range_of(const Member& member) const;
  int64_t part_size(const Member& member) const { return buckets_[member.bucket].flat.numel() / group_->size(); }

  std::vector<Part> parts_;      // by member
  std::vector<Tensor> weights_;  // by bucket: the parameters, as their gradients lie in it
};

}  // namespace tern::dist
