#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tern/core/ops/attention/attention.h"
#include "tern/core/tensor.h"
#include "tern/core/tensor/recorded_call.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/recurrent/recurrent.h"
#include "tern/kernels/recurrent/sequence.h"

namespace tern {

/// Which rows of an input are which step of which sequence. It is made once for a batch, and serves all layers and both
/// directions; copies share it. Every row belongs to a sequence, and every sequence has a step.
class RecurrentLayout {
 public:
  /// Sequences one after another. Throws Error where a length is below 1, and for a GPU in a captured step, whose
  /// replays would all have these lengths.
  static RecurrentLayout packed(const std::vector<int64_t>& lengths, Device device = {});
  /// The same by offsets; those on a GPU are copied to the host, which waits for them. Throws Error when offsets do not
  /// begin with 0 and ascend, or the layout has a key_mask.
  static RecurrentLayout packed(const SequenceLayout& layout);
  /// `batch` sequences of equal length: step t of sequence b is row b * steps + t with batch_first, else t * batch + b.
  /// A captured step may make it. Throws Error where steps is below 1.
  static RecurrentLayout padded(int64_t batch, int64_t steps, bool batch_first, Device device = {});

  /// For record_call(): what the layout was made of.
  friend void visit_arguments(RecurrentLayout& layout, detail::ArgumentVisitor& visitor);

  int64_t batch() const { return static_cast<int64_t>(lengths().size()); }
  int64_t rows() const { return data().rows; }
  /// The length of each sequence.
  const std::vector<int64_t>& lengths() const { return data().lengths; }
  Device device() const { return order().device(); }

  /// For kernels and ops: the order of steps in which kernels/recurrent/recurrent.h describes it.
  kernels::RecurrentSteps steps(bool reverse) const;
  /// int64 [running sequences]: the rows of a step, of the longest sequence first.
  Tensor rows_of_step(int64_t step, bool reverse) const;
  /// int64 [batch]: the sequences, the longest first.
  const Tensor& order() const { return data().order; }

  /// For libraries that take whole sequences: the order of rows in which such a library is given them.
  struct RowsKind {
    kernels::SequenceRows kind = kernels::SequenceRows::kByStep;
    bool gathered = true;  // by by_step(); false: the rows are in this order
    bool sorted = true;    // the states must be in the order order()
  };
  RowsKind rows_kind(bool reverse) const;
  /// int64 [rows]. rows: that of each step of the sequences in order(), step after step; places: where in `rows` each
  /// row is.
  struct ByStep {
    Tensor rows, places;
  };
  ByStep by_step(bool reverse) const;
  /// int64 [batch]: the places of the sequences in order().
  Tensor places() const;
  /// The longest first; in host memory.
  const std::vector<int64_t>& sorted_lengths() const { return data().sorted; }

 private:
  struct Data {
    std::vector<int64_t> lengths, sorted, counts, first, last;  // the rows of first and last steps, in order
    int64_t rows = 0, stride = 1;
    bool batch_first = true;  // sequence after sequence
    bool padded = false;      // made by padded()
    Tensor order, first_rows, last_rows;
    // Made when they are first needed.
    mutable std::mutex mutex;
    mutable ByStep by_step[2];
    mutable Tensor places;
  };
  ByStep make_by_step(bool reverse) const;
  /// Throws Error where there is none.
  const Data& data() const {
    TERN_CHECK(data_, "recurrent: the layout is empty; make one by RecurrentLayout::packed() or padded()");
    return *data_;
  }
  std::shared_ptr<const Data> data_;
};

}  // namespace tern
