#pragma once
// Copies of weights in the layouts that kernels read, where packing a weight takes a large part of a call.

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tern/core/memory/storage.h"
#include "tern/core/tensor.h"
#include "tern/kernels/kernel.h"

namespace tern::detail {

/// The copies that were used last, each of which serves as long as its weight is unchanged: an in-place op or an
/// optimizer's step is seen by the version of the weight's memory. Writes through Tensor::data() are not;
/// bump_version() says that there were some. A copy does not keep the weight's memory, and is dropped when another is
/// packed after the weight is gone. Several threads may use it at a time. Key: on what the layout depends besides the
/// CPU's level, with operator==.
template <class Key, size_t kEntries>
class PackedWeights {
 public:
  /// The copy for `key`, which pack() returns where there is none. `weight`: the tensor that lives on, of which pack()
  /// may read a converted one. An undefined result, for a kernel that reads the weight itself, is kept as well.
  template <class Pack>
  Tensor find(const Key& key, const Tensor& weight, const Pack& pack) {
    const Weight now(weight);
    const std::lock_guard lock(mutex_);
    const auto same = [&](const Entry& e) { return e.key == key && e.weight == now; };
    if (const auto found = std::find_if(entries_.begin(), entries_.end(), same); found != entries_.end()) {
      std::rotate(found, found + 1, entries_.end());
      return entries_.back().packed;
    }
    std::erase_if(entries_, [&](const Entry& e) { return e.weight.is_gone() || (e.key == key && e.weight.was(now)); });
    Entry entry{key, now, pack()};
    if (entries_.size() == kEntries) entries_.erase(entries_.begin());
    entries_.push_back(entry);
    return entry.packed;
  }

 private:
  /// What a copy was made of.
  class Weight {
   public:
    explicit Weight(const Tensor& weight)
        : storage_(weight.storage()),
          version_(weight.version()),
          data_(weight.raw_data()),
          shape_(weight.shape()),
          strides_(weight.strides()),
          dtype_(weight.dtype()),
          level_(kernels::cpu_level()) {}
    /// Whether it was a version of the same tensor. An address alone may be of a new one.
    bool was(const Weight& now) const {
      return !storage_.owner_before(now.storage_) && !now.storage_.owner_before(storage_) && data_ == now.data_ &&
             shape_ == now.shape_ && strides_ == now.strides_ && dtype_ == now.dtype_ && level_ == now.level_;
    }
    bool operator==(const Weight& now) const { return was(now) && version_ == now.version_; }
    bool is_gone() const { return storage_.expired(); }

   private:
    std::weak_ptr<const Storage> storage_;
    uint32_t version_;
    const void* data_;
    Shape shape_;
    Strides strides_;
    DType dtype_;
    kernels::CpuLevel level_;  // tests change it
  };
  struct Entry {
    Key key;
    Weight weight;
    Tensor packed;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;  // the one that was used last is last
};

}  // namespace tern::detail
