#pragma once
// Device memory: its own range of addresses, of which every allocation gets new ones, so that an access to freed memory
// or far past an end always faults. And the host memory that CUDA knows.

#include "tern/tests/standin/state.h"

namespace tern::standin {

struct Allocation {
  char* start = nullptr;
  size_t bytes = 0;
  int device = 0;
  uint64_t serial = 0;  // the how-manieth allocation
  CUmemPoolHandle_st* pool = nullptr;
  bool being_freed = false;  // cudaFreeAsync() is queued
};

struct HostRange {
  char* start = nullptr;
  size_t bytes = 0;
  bool registered = false;  // the program's own memory
  unsigned flags = 0;
};

enum class Place { kDevice, kPinned, kPageable, kInvalid };  // kInvalid: device addresses not allocated

/// Where the whole range lies.
Place place_of(const void* pointer, size_t bytes);
/// The live allocation that holds the address; nullptr: none.
Allocation* find_allocation(const void* pointer);
const HostRange* find_host_range(const void* pointer);

/// New memory full of 0xff, or nullptr when the device has too little left.
Allocation* allocate(State& s, size_t bytes, CUmemPoolHandle_st* pool);
/// A write just past the end shows here, as a sticky error.
void release(State& s, Allocation* allocation);
/// Its allocations have no pool from now on.
void forget_pool(CUmemPoolHandle_st* pool);
std::map<char*, HostRange>& host_ranges();
size_t used_on(int device);

/// Whether queued work was stopped for a wrong address since the last call.
bool take_illegal_access();

}  // namespace tern::standin
