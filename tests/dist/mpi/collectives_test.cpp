// Every operation of a communicator, compared with loops over the inputs of all ranks.

#include <array>
#include <cmath>

#include "tern/tests/dist/mpi/world_test.h"

namespace tern::dist {
namespace {

constexpr DType kAll[] = {float64, float32, bfloat16, float16, int64, int32, uint8, DType::kBool};
const std::vector<int64_t> kSizes = {0, 1, 2, 3, 5, 64, 1023, 2049, 4097, 70'001};
uint64_t next_test = 1;

/// The reduction, required bit for bit: in rank order, 16-bit types in float, rounded once.
Tensor reference(const std::vector<Tensor>& values, ReduceOp op) {
  return dispatch_any(values[0].dtype(), [&]<class T>() {
    using Compute = ComputeType<T>;
    Tensor result = values[0].clone();
    T* const out = result.data<T>();
    for (int64_t i = 0; i < result.numel(); ++i) {
      Compute sum = static_cast<Compute>(values[0].data<T>()[i]);
      for (size_t r = 1; r < values.size(); ++r) {
        const Compute x = static_cast<Compute>(values[r].data<T>()[i]);
        sum = op == ReduceOp::kMax ? std::max(sum, x) : op == ReduceOp::kMin ? std::min(sum, x) : Compute(sum + x);
      }
      if (op == ReduceOp::kMean) sum = static_cast<Compute>(sum / static_cast<Compute>(values.size()));
      out[i] = static_cast<T>(sum);
    }
    return result;
  });
}

bool is_legal(DType dtype, ReduceOp op) {
  return (op != ReduceOp::kMean || is_floating(dtype)) && (op != ReduceOp::kSum || dtype != DType::kBool);
}

TEST(Collectives, AllReduce) {
  for (const DType dtype : kAll)
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin}) {
      if (!is_legal(dtype, op)) continue;
      for (const int64_t n : kSizes) {
        const auto values = all_values(next_test, {n}, dtype);
        Tensor x = of_this_rank(values).clone();
        group().all_reduce(x, op);
        expect_bits(x, reference(values, op), x.describe());
        ++next_test;
      }
    }
}

TEST(Collectives, ALargeTensorIsReducedInPieces) {
  for (const DType dtype : {float32, bfloat16}) {
    const auto values = all_values(next_test++, {1'500'007}, dtype);
    Tensor x = of_this_rank(values).clone();
    group().all_reduce(x);
    expect_bits(x, reference(values, ReduceOp::kSum), x.describe());
  }
}

TEST(Collectives, SpecialValues) {
  const double nan = std::nan(""), infinity = HUGE_VAL;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    Tensor x = tensor({rank() == size() - 1 ? nan : 1.0, rank() == 0 ? nan : 2.0, infinity, -0.0});
    group().all_reduce(x, op);
    const std::vector<double> got = x.to_vector<double>();
    EXPECT_TRUE(std::isnan(got[0]));
    EXPECT_TRUE(size() == 1 || std::isnan(got[1]));
    EXPECT_EQ(got[2], infinity);
    EXPECT_EQ(got[3], 0);
  }
}

TEST(Collectives, ReduceScatter) {
  for (const DType dtype : kAll) {
    const ReduceOp op = dtype == DType::kBool ? ReduceOp::kMax : ReduceOp::kSum;
    for (const int64_t n : {0, 1, 3, 1000, 4099}) {
      const auto values = all_values(next_test++, {size(), n}, dtype);
      Tensor out = zeros({n}, {.dtype = dtype});
      group().reduce_scatter(out, of_this_rank(values), op);
      expect_bits(out, reference(values, op)[rank()], out.describe());
    }
  }
  // In place: the output is this rank's part of the input.
  const int64_t n = 300'007;
  const auto values = all_values(next_test++, {size(), n}, float32);
  Tensor in = of_this_rank(values).clone();
  Tensor out = in[rank()];
  group().reduce_scatter(out, in, ReduceOp::kMean);
  expect_bits(out, reference(values, ReduceOp::kMean)[rank()], "in place");
}

TEST(Collectives, AllGather) {
  for (const DType dtype : kAll)
    for (const int64_t n : {0, 1, 3, 1000, 40'001}) {
      const auto values = all_values(next_test++, {n}, dtype);
      Tensor all = zeros({size(), n}, {.dtype = dtype});
      group().all_gather(all, of_this_rank(values));
      for (int r = 0; r < size(); ++r) expect_bits(all[r], values[static_cast<size_t>(r)], all.describe());
      const std::vector<Tensor> list = group().all_gather(of_this_rank(values));
      ASSERT_EQ(list.size(), values.size());
      for (size_t r = 0; r < list.size(); ++r) expect_bits(list[r], values[r], "list");
      // In place.
      Tensor own = all[rank()];
      for (int r = 0; r < size(); ++r)
        if (r != rank()) all[r].zero_();
      group().all_gather(all, own);
      for (int r = 0; r < size(); ++r) expect_bits(all[r], values[static_cast<size_t>(r)], "in place");
    }
}

TEST(Collectives, Broadcast) {
  for (const DType dtype : kAll)
    for (const int64_t n : {0, 1, 3, 1000, 70'001})
      for (int root = 0; root < size(); ++root) {
        const auto values = all_values(next_test++, {n}, dtype);
        Tensor x = of_this_rank(values).clone();
        group().broadcast(x, root);
        expect_bits(x, values[static_cast<size_t>(root)], x.describe());
      }
  const auto values = all_values(next_test++, {1'200'011}, float32);
  Tensor x = of_this_rank(values).clone();
  group().broadcast(x, size() - 1);
  expect_bits(x, values.back(), "large");
}

TEST(Collectives, ViewsThatAreNotContiguous) {
  const auto values = all_values(next_test++, {30, 7}, float32);
  Tensor x = of_this_rank(values).clone();
  Tensor view = x.t();
  group().all_reduce(view);
  expect_bits(x, reference(values, ReduceOp::kSum), "a transposed view");
  EXPECT_EQ(error_of([&] { group().all_reduce_async(view); }).find("all_reduce: the tensor, "), 0u);
}

TEST(Collectives, SendAndReceive) {
  const int to = (rank() + 1) % size(), from = (rank() + size() - 1) % size();
  if (size() > 1) {
    for (const int64_t n : {0, 1, 1000, 300'000}) {
      const auto first = all_values(next_test++, {n}, float32), second = all_values(next_test++, {n}, float32);
      Tensor a = zeros({n}), b = zeros({n});
      Work sends[] = {group().send_async(of_this_rank(first), to), group().send_async(of_this_rank(second), to)};
      group().receive(a, from);
      group().receive(b, from);
      for (Work& work : sends) work.wait();
      expect_bits(a, first[static_cast<size_t>(from)], "first message");
      expect_bits(b, second[static_cast<size_t>(from)], "second message");
    }
  }
  Tensor x = zeros({1});
  EXPECT_THROW(group().send(x, rank()), Error);
  EXPECT_THROW(group().receive(x, size()), Error);
}

TEST(Collectives, ManyAtATime) {
  std::vector<std::vector<Tensor>> values;
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 40; ++i) {
    const int64_t n = (i * 7919) % 20'000;
    values.push_back(all_values(next_test++, {n}, float32));
    tensors.push_back(of_this_rank(values.back()).clone());
    works.push_back(i % 3 == 2 ? group().broadcast_async(tensors.back(), i % size())
                               : group().all_reduce_async(tensors.back()));
  }
  for (size_t i = works.size(); i-- > 0;) {
    works[i].wait();
    EXPECT_TRUE(works[i].done());
    works[i].wait();
    const size_t root = i % static_cast<size_t>(size());
    expect_bits(tensors[i], i % 3 == 2 ? values[i][root] : reference(values[i], ReduceOp::kSum), "of many");
  }
  EXPECT_TRUE(Work().done());
  Work().wait();
}

TEST(Collectives, AWorkMayBeForgotten) {
  for (int i = 0; i < 10; ++i) group().all_reduce_async(ones({100'000}));
  Tensor x = ones({3});
  group().all_reduce(x);
  EXPECT_EQ(x.to_vector<double>(), std::vector<double>(3, size()));
}

TEST(Collectives, VersionsAreCounted) {
  Tensor x = ones({3});
  const uint32_t before = x.version();
  group().all_reduce(x);
  EXPECT_NE(x.version(), before);
}

TEST(Collectives, GroupsOfSomeRanks) {
  // Even and odd ranks by colour, in reverse order.
  const auto half = group().split(rank() % 2, -rank());
  ASSERT_TRUE(half);
  std::vector<int> members;
  for (int r = size() - 1; r >= 0; --r)
    if (r % 2 == rank() % 2) members.push_back(r);
  EXPECT_EQ(half->world_ranks(), members);
  EXPECT_EQ(members[static_cast<size_t>(half->rank())], rank());
  const auto values = all_values(next_test++, {5'000}, float32);
  std::vector<Tensor> theirs;
  for (const int r : members) theirs.push_back(values[static_cast<size_t>(r)]);
  Tensor x = of_this_rank(values).clone();
  half->all_reduce(x);
  expect_bits(x, reference(theirs, ReduceOp::kSum), "half");
  half->barrier();

  // Both groups at the same time, in another order on odd ranks.
  Tensor y = of_this_rank(values).clone(), z = y.clone();
  Work a, b;
  if (rank() % 2 == 0) a = group().all_reduce_async(y);
  b = half->all_reduce_async(z);
  if (rank() % 2 == 1) a = group().all_reduce_async(y);
  for (Work* work : rank() % 2 == 0 ? std::array{&b, &a} : std::array{&a, &b}) work->wait();
  expect_bits(y, reference(values, ReduceOp::kSum), "world");
  expect_bits(z, x, "half again");

  const auto none = group().split(rank() == 0 ? -1 : 3);
  EXPECT_EQ(none == nullptr, rank() == 0);
  if (none) {
    EXPECT_EQ(none->size(), size() - 1);
    EXPECT_EQ(none->rank(), rank() - 1);
  }
}

TEST(Collectives, GroupsOfGivenRanks) {
  const auto ends = group().subgroup(size() > 1 ? std::vector<int>{size() - 1, 0} : std::vector<int>{0});
  EXPECT_EQ(ends != nullptr, rank() == 0 || rank() == size() - 1);
  if (ends) {
    Tensor w = tensor({static_cast<double>(rank())});
    ends->broadcast(w, 0);
    EXPECT_EQ(w.item<double>(), size() - 1);
    // A subgroup of a subgroup.
    const auto alone = ends->split(ends->rank());
    ASSERT_TRUE(alone);
    EXPECT_EQ(alone->size(), 1);
    alone->all_reduce(w);
    EXPECT_EQ(w.item<double>(), size() - 1);
  }
  EXPECT_THROW(group().subgroup({}), Error);
  EXPECT_THROW(group().subgroup({0, 0}), Error);
  EXPECT_THROW(group().subgroup({size()}), Error);
}

TEST(Collectives, ArgumentsAreChecked) {
  Tensor undefined, x = ones({3}), counts = zeros({3}, {.dtype = int64}), flags = zeros({3}, {.dtype = DType::kBool});
  Tensor small = zeros({1}), other = zeros({3 * size()}, {.dtype = float64}),
         weight = zeros({2}, {.requires_grad = true});
  EXPECT_THROW(group().all_reduce(undefined), Error);
  EXPECT_THROW(group().all_reduce(counts, ReduceOp::kMean), Error);
  EXPECT_THROW(group().all_reduce(flags, ReduceOp::kSum), Error);
  EXPECT_THROW(group().all_reduce(weight), Error);
  EXPECT_THROW(group().broadcast(x, size()), Error);
  EXPECT_THROW(group().broadcast(x, -1), Error);
  EXPECT_THROW(group().reduce_scatter(small, small.expand({2 * size()})), Error);
  EXPECT_THROW(group().all_gather(other, x), Error);
  NoGrad off;
  group().all_reduce(weight);
}

}  // namespace
}  // namespace tern::dist
