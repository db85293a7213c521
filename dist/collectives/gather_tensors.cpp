#include "tern/dist/collectives/gather_tensors.h"

#include <algorithm>
#include <cstring>

namespace tern {

nn::GatherRanks dist::gather_over(std::shared_ptr<Communicator> group) {
  return [group = std::move(group)](const Tensor& own) { return detail::gather_tensors(*group, own); };
}

namespace detail {

std::vector<Tensor> gather_tensors(dist::Communicator& group, const Tensor& own) {
  const Tensor host = own.detach().to(cpu).contiguous();
  constexpr int64_t kDims = kMaxDims;
  std::vector<int64_t> facts = {static_cast<int64_t>(host.dtype()), host.dim()};
  for (const int64_t length : host.shape().vec()) facts.push_back(length);
  facts.resize(2 + kDims);
  std::vector<Tensor> all;
  int64_t longest = 0;
  for (const Tensor& of_rank : group.all_gather(from_vector(facts, {2 + kDims}).to(group.device()))) {
    const std::vector<int64_t> given = of_rank.to(cpu).to_vector<int64_t>();
    const std::vector<int64_t> shape(given.begin() + 2, given.begin() + 2 + given[1]);
    all.push_back(empty(Shape(shape), {.dtype = static_cast<DType>(given[0])}));
    longest = std::max(longest, all.back().nbytes());
  }
  if (longest == 0) return all;
  Tensor padded = zeros({longest}, {.dtype = uint8});
  if (host.numel() > 0) std::memcpy(padded.raw_data(), host.raw_data(), static_cast<size_t>(host.nbytes()));
  const std::vector<Tensor> bytes = group.all_gather(padded.to(group.device()));
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].numel() > 0)
      std::memcpy(all[r].raw_data(), bytes[r].to(cpu).contiguous().raw_data(), static_cast<size_t>(all[r].nbytes()));
  return all;
}

}  // namespace detail
}  // namespace tern
