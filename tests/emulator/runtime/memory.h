#pragma once
// Device memory in a separate range of addresses. Every allocation gets new addresses, so that an access to freed
// memory or far beyond an end always faults. Also host memory that is known to CUDA.

#include "tern/tests/emulator/runtime/state.h"

namespace tern::standin {

struct Allocation {
  char* start = nullptr;
  size_t bytes = 0;
  int device = 0;
  uint64_t serial = 0;  // counts allocations
};

struct HostRange {
  char* start = nullptr;
  size_t bytes = 0;
};

enum class Place { kDevice, kPinned, kPageable, kInvalid };  // kInvalid: unallocated device addresses

/// The place of the whole range.
Place place_of(const void* pointer, size_t bytes);
/// The existing allocation that contains the address; nullptr if there is none.
Allocation* find_allocation(const void* pointer);

/// New memory filled with 0xff; nullptr if the device does not have enough.
Allocation* allocate(State& s, size_t bytes);
/// Frees memory. A write just after its end is detected here and gives a sticky error.
void release(State& s, Allocation* allocation);
std::map<char*, HostRange>& host_ranges();
size_t used_on(int device);

/// Whether queued work was stopped for an invalid address since the last call.
bool take_illegal_access();

}  // namespace tern::standin
