#pragma once
// One call of a communicator's operation, as passed to backends.

#include "tern/dist/collectives/communicator.h"

namespace tern::dist {

enum class Operation { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kReceive, kBarrier };

struct Call {
  Operation operation = Operation::kBarrier;
  Tensor input = {}, output = {};  // equal for in-place operations; send sets only the first, receive only the second
  ReduceOp op = ReduceOp::kSum;
  int peer = 0;        // root, or the other rank of send and receive
  int64_t number = 0;  // of this group's calls, from 1; send and receive count per pair and direction

  bool is_pairwise() const { return operation == Operation::kSend || operation == Operation::kReceive; }
  const Tensor& tensor() const { return input.defined() ? input : output; }
  /// The properties that must match on all ranks: "all_reduce of float32 [3, 4], sum"; for send and receive only the
  /// tensor.
  std::string text() const;
};

const char* name_of(Operation operation);
const char* name_of(ReduceOp op);

}  // namespace tern::dist
