// Products of a warpgroup (wgmma): when they are computed, and the checks until they have completed.

#include "tern/tests/emulator/simt/scheduler.h"

namespace simt {
namespace {

// The content of a product's registers until the program has waited for it: a NaN that no arithmetic produces.
constexpr uint32_t kUnfinished = 0x7fa5a5a5u;

bool same_product(const Product& a, const Product& b) {
  return a.left_operand == b.left_operand && a.right_operand == b.right_operand && a.accumulate == b.accumulate &&
         a.multiply == b.multiply && (a.left == nullptr) == (b.left == nullptr);
}

/// Whether a wait that leaves the `newest` latest groups incomplete includes the product.
bool is_due(const Thread& thread, const PendingProduct& pending, int newest) {
  return static_cast<int>(thread.product_group - pending.group) > newest;
}

PendingSums& sums_of(Thread& thread, const float* registers) {
  return *std::ranges::find(thread.sums, registers, &PendingSums::registers);
}

}  // namespace

void Scheduler::start_product(const Product& product, Location where) {
  Thread& own = thread();
  const int device = compute_capability();
  if (device != 90) fail("wgmma on a device of compute capability ", device / 10, ".", device % 10, ", ", where);
  if (running_ / 128 * 128 + 128 > thread_count_) fail("wgmma in a warpgroup that lacks warps, ", where);
  if (!own.products_fenced) fail("wgmma without wgmma.fence since the kernel's begin or the last wait, ", where);
  // Bits 46 and above of a descriptor: no base offset, 128-byte swizzle.
  if (product.right_operand >> 46 != 1 << 16 || (product.left == nullptr && product.left_operand >> 46 != 1 << 16))
    fail(
        "wgmma with an operand that is not stored with 128-byte swizzle from an aligned start: the emulator has no "
        "other, ",
        where);
  bool known = false;
  for (const PendingSums& sums : own.sums) {
    if (sums.registers == product.sums && static_cast<int>(sums.values.size()) == product.count)
      known = true;
    else if (product.sums < sums.registers + sums.values.size() && sums.registers < product.sums + product.count)
      fail("wgmma's sums are part of another product's, ", where);
  }
  {
    const sanitizer::Unchecked unchecked;
    if (!known) {
      own.sums.push_back({product.sums, std::vector<float>(product.sums, product.sums + product.count)});
      std::fill_n(product.sums, product.count, std::bit_cast<float>(kUnfinished));
    }
    own.products.push_back({product, own.product_group, false, where});
  }
  warp_operation(
      ~0u, nullptr, [](void* const*, unsigned) { current().start_in_warp(current().running_ / 32); }, where);
}

/// Called when all lanes have arrived.
void Scheduler::start_in_warp(int warp_index) {
  const Thread& first = threads_[warp_index * 32];
  const Product& product = first.products.back().product;
  for (int lane = 1; lane < 32; ++lane) {
    if (!same_product(threads_[warp_index * 32 + lane].products.back().product, product))
      fail("lanes of one warp give different operands to wgmma, ", first.products.back().where);
  }
  ++stats.products;
  std::vector<Product>& started = warps_[warp_index].started;
  {
    const sanitizer::Unchecked unchecked;
    started.push_back(product);
  }
  for (int w = warp_index / 4 * 4; w < warp_index / 4 * 4 + 4; ++w) {
    if (warps_[w].started.size() >= started.size() && !same_product(warps_[w].started[started.size() - 1], product))
      fail("warps of one warpgroup give different operands to wgmma, ", first.products.back().where);
  }
  if (happens_early()) compute_products(warp_index, -1);
}

/// Computes the pending products older than the `newest` latest groups; -1: all, including those of the open group.
void Scheduler::compute_products(int warp_index, int newest) {
  Thread* const lanes = &threads_[warp_index * 32];
  for (size_t i = 0; i < lanes[0].products.size(); ++i) {
    if (lanes[0].products[i].done || !is_due(lanes[0], lanes[0].products[i], newest)) continue;
    const Product& product = lanes[0].products[i].product;
    WarpProduct whole{warp_index % 4, {}, {}, product.left_operand, product.right_operand};
    for (int lane = 0; lane < 32; ++lane) {
      PendingProduct& pending = lanes[lane].products[i];
      PendingSums& sums = sums_of(lanes[lane], pending.product.sums);
      if (!pending.product.accumulate) {
        const sanitizer::Unchecked unchecked;
        std::fill(sums.values.begin(), sums.values.end(), 0.0f);
      }
      whole.sums[lane] = sums.values.data();
      whole.left[lane] = pending.product.left;
      pending.done = true;
    }
    product.multiply(whole);
  }
}

void Scheduler::wait_for_products(int newest, Location where) {
  struct Argument {
    int newest;
  } argument{newest};
  warp_operation(
      ~0u, &argument,
      [](void* const* lanes, unsigned) {
        current().compute_products(current().running_ / 32, static_cast<const Argument*>(lanes[0])->newest);
      },
      where);
  Thread& own = thread();
  own.products_fenced = false;
  {
    const sanitizer::Unchecked unchecked;
    std::erase_if(own.products, [&](const PendingProduct& pending) { return is_due(own, pending, newest); });
  }
  const auto is_finished = [&](const PendingSums& sums) {
    return std::none_of(own.products.begin(), own.products.end(),
                        [&](const PendingProduct& pending) { return pending.product.sums == sums.registers; });
  };
  for (const PendingSums& sums : own.sums) {
    if (!is_finished(sums)) continue;
    for (size_t i = 0; i < sums.values.size(); ++i) {
      if (std::bit_cast<uint32_t>(sums.registers[i]) != kUnfinished)
        fail("the sums of a wgmma were written before it was waited for, ", where);
      sums.registers[i] = sums.values[i];
    }
  }
  const sanitizer::Unchecked unchecked;
  std::erase_if(own.sums, is_finished);
}

/// At a block's end, checks that all warps of a warpgroup took part in every product.
void Scheduler::check_products() {
  for (int w = 0; w + 3 < warp_count_; w += 4)
    for (int other = w + 1; other < w + 4; ++other) {
      if (warps_[other].started.size() != warps_[w].started.size())
        abort_launch(concatenate("warp ", w, " took part in ", warps_[w].started.size(), " products (wgmma), warp ",
                                 other, " of the same warpgroup in ", warps_[other].started.size()));
    }
}

void Scheduler::note_written(const void* shared, size_t bytes) {
  const size_t first = static_cast<const char*>(shared) - arena_;
  for (size_t i = first / 16; i <= (first + bytes - 1) / 16; ++i)
    written_[i] = {serial, running_, thread().proxy_fences};
}

const void* Scheduler::read_by_product(uint32_t address) {
  const char* at = arena_ + address;
  if (address % 16 != 0 || address + 16 > kArenaBytes) fail("wgmma reads outside shared memory");
  const Written& last = written_[address / 16];
  if (last.serial == serial && threads_[last.thread].proxy_fences == last.proxy_fences)
    fail("wgmma reads shared memory that thread ", last.thread, " wrote without fence.proxy.async");
  sanitizer::note_read(at, 16);
  return at;
}

// --- runtime.h ---

void fence_products() { Scheduler::current().thread().products_fenced = true; }
void start_product(const Product& product, Location where) { Scheduler::current().start_product(product, where); }
void commit_products() { ++Scheduler::current().thread().product_group; }
void wait_for_products(int newest, Location where) { Scheduler::current().wait_for_products(newest, where); }
void async_proxy_fence() { ++Scheduler::current().thread().proxy_fences; }

uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) -
                               static_cast<const char*>(Scheduler::current().dynamic_shared()));
}
const void* read_by_product(uint32_t address) { return Scheduler::current().read_by_product(address); }

}  // namespace simt
