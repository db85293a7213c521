#pragma once

#include <optional>

#include "tern/dist/gradients/gradient_exchange.h"

namespace tern::dist {

/// Every rank gets the means of all gradients: views of the buckets, set as the parameters' gradients.
///
/// On the CPU a parameter with few gradient rows (Parameter::set_few_gradient_rows) of 1 MiB or more that is alone in
/// its bucket is sent by rows: first which rows any rank has, then those (row_exchange.h).
class AllReduceExchange final : public GradientExchange {
 public:
  AllReduceExchange(const std::shared_ptr<Communicator>& group, const std::vector<NamedTensor>& parameters,
                    const ExchangeOptions& options);

  void send_rest() override;
  void deliver(const std::vector<bool>& unused) override;
  void adopt_order(const std::vector<size_t>& ready) override;

 private:
  /// The rows of a bucket that is sent by rows; otherwise `touched` is undefined.
  struct Rows {
    Tensor touched;                            // bool: which rows any rank has
    std::optional<std::vector<int64_t>> sent;  // in this pass; nothing: all rows
  };
  void complete(size_t bucket) override;
  Work start(size_t bucket) override;
  /// The gradient of a bucket that is sent by rows, [rows, width].
  Tensor rows_of(const Bucket& bucket) const;

  std::vector<Rows> rows_;  // by bucket
};

}  // namespace tern::dist
