#pragma once
// A convolution pass cut into pieces, each of which oneDNN computes on one thread. Which pieces there are depends on
// the shape alone.

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "tern/kernels/cpu/convolution/primitive.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {

class ConvolutionPieces {
 public:
  /// What a piece computes: y[y, y + y_elements) from x[x, ...), in elements; or x from y. weight: in packed memory,
  /// bytes.
  struct Piece {
    ConvolutionCall& call;
    int64_t index, x, y, y_elements, weight, slot;
  };

  /// key: of the whole batch. Pieces of `units` images, the last of which may be smaller; where the convolution is a
  /// product of matrices, of `units` pixels of any image.
  ConvolutionPieces(const ConvolutionKey& key, int64_t units);

  bool usable() const {
    return std::all_of(layouts_.begin(), layouts_.end(), [](const auto* p) { return p->usable(); });
  }
  int64_t count() const { return (total_ + units_ - 1) / units_; }
  const ConvolutionPrimitive& first() const { return *layouts_[0]; }
  /// Null where the last piece's weight has the layout of the others'.
  const ConvolutionPrimitive* other_layout() const { return layouts_.size() > 1 ? layouts_[1] : nullptr; }
  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t slots_bytes() const { return slots_ * slot_bytes_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  /// Rewrites a weight for all pieces.
  void pack(const void* weight, char* packed) const;

  /// body(piece) for all pieces, on all threads. Pieces with the same slot follow one another.
  template <class Body>
  void run(const Body& body) const {
    std::atomic<int64_t> next = 0;
    parallel_for(slots_, 1, [&](int64_t slot, int64_t) {
      std::optional<ConvolutionCall> call;
      for (int64_t i = next++; i < count(); i = next++) {
        const Part& part = part_at(i);
        if (!call || &call->primitive() != part.primitive.get()) call.emplace(*part.primitive);
        body(Piece{*call, i, i * units_ * x_unit_, i * units_ * y_unit_, part.y_elements, part.weight, slot});
      }
    });
  }

 private:
  struct Part {
    std::shared_ptr<const ConvolutionPrimitive> primitive;
    int64_t y_elements = 0, weight = 0;
  };
  Part units_of(const ConvolutionKey& key, int64_t units);
  const Part& part_at(int64_t index) const { return last_.primitive && index + 1 == count() ? last_ : main_; }

  int64_t total_, units_, x_unit_, y_unit_;
  int64_t slots_ = 1, slot_bytes_ = 0, weight_bytes_ = 0;
  Part main_;                                         // of units_ units
  Part last_;                                         // of fewer; without a primitive where there are none
  std::vector<const ConvolutionPrimitive*> layouts_;  // one for each layout of the weight
};

/// Whether pieces_of() a case are computed by Winograd's algorithm.
bool has_winograd_pieces(const ConvolutionCase& c);
ConvolutionPieces pieces_of(const ConvolutionCase& c);

}  // namespace tern::kernels::TERN_CPU
