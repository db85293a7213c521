#pragma once
// Buckets of gradients, and what the ranks exchange of them. DataParallel decides when a bucket is sent; a
// GradientExchange says where the gradients lie in buckets, what is sent, and what each rank gets: every mean gradient
// (all_reduce_exchange.h), or those of its part of the buckets (sharded_exchange.h).

#include <memory>
#include <string>
#include <vector>

#include "tern/dist/collectives/communicator.h"

namespace tern::dist {

/// Every gradient, and every part of a bucket, begins at a multiple of this many bytes, for kernels that read 16 at a
/// time.
inline constexpr int64_t kBucketAlignment = 64;

struct ExchangeOptions {
  // As in DataParallelOptions.
  int64_t bucket_bytes = 0;
  int64_t first_bucket_bytes = 1 << 20;
  DType reduce_dtype = DType::kFloat32;
};

/// The calls of a backward pass, in this order: begin_pass(), send() of every bucket, send_rest(), wait(), deliver().
/// All ranks make the same calls; order() is the same on all of them.
class GradientExchange {
 public:
  /// A parameter and the place of its gradient.
  struct Member {
    std::string name;
    Tensor parameter;
    TensorOptions options = {};  // of the parameter when the buckets were made
    size_t bucket = 0;
    int64_t begin = 0;          // in the bucket, in elements
    bool has_gradient = false;  // when its bucket was sent
  };

  virtual ~GradientExchange() = default;
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  const std::vector<Member>& members() const { return members_; }
  size_t bucket_count() const { return buckets_.size(); }
  /// Members in a bucket.
  int64_t member_count(size_t bucket) const { return static_cast<int64_t>(buckets_[bucket].members.size()); }
  /// Buckets in the order in which they are to be sent.
  const std::vector<size_t>& order() const { return order_; }
  /// Bytes of a bucket's gradients.
  int64_t bytes_of(size_t bucket) const { return buckets_[bucket].flat.nbytes(); }

  /// Throws Error when a parameter is not as it was when the buckets were made: Module::to has converted or moved it.
  virtual void begin_pass();
  /// Gathers a bucket's gradients, also those that earlier passes without exchange have left, and starts to send them.
  /// A member without a gradient counts as zeros.
  void send(size_t bucket);
  /// Starts to send what depends on other ranks' buckets.
  virtual void send_rest() {}
  /// Waits for all buckets. Returns the bytes that were given to the exchange.
  int64_t wait();
  /// Hands out the gradients that have arrived, but for members that are unused: no rank had a gradient of them.
  virtual void deliver(const std::vector<bool>& unused) = 0;
  /// From the next pass on buckets are sent as gradients become ready: the members in this order.
  virtual void adopt_order(const std::vector<size_t>& ready) = 0;

 protected:
  struct Bucket {
    std::vector<size_t> members;
    Tensor flat;  // the gradients
    Tensor sent;  // what is sent: the same tensor unless reduce_dtype is another
    Work work;
  };

  /// Members are the parameters in their order. Unless bucket_bytes are given they are a sixteenth of all gradients',
  /// but for those that is_left_out, in [least, 25 MiB]. Derived constructors call make_buckets().
  GradientExchange(std::shared_ptr<Communicator> group, const std::vector<NamedTensor>& parameters,
                   const ExchangeOptions& options, int64_t min_bytes,
                   bool (*is_left_out)(const Tensor& parameter) = nullptr);

  /// Puts the members into buckets in this order; only equal dtypes share one. Empty: the last member first, as
  /// backward reaches them.
  void make_buckets(std::vector<size_t> order = {});
  /// The elements of a bucket whose members lie one after the other and take `packed`. May move the members.
  virtual int64_t lay_out(const Bucket& /*bucket*/, int64_t packed) { return packed; }
  /// bucket.flat has just been made.
  virtual void complete(size_t bucket) = 0;
  /// The gradients lie in bucket.flat: starts the exchange.
  virtual Work start(size_t bucket) = 0;

  /// Whether the bucket is sent in reduce_dtype.
  bool is_narrowed(const Bucket& bucket) const;
  void make_sent(Bucket& bucket) const;
  /// A member's gradient in its bucket, [numel].
  Tensor place_of(const Member& member) const;

  const std::shared_ptr<Communicator> group_;
  ExchangeOptions options_;
  std::vector<Member> members_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> order_;
};

}  // namespace tern::dist
