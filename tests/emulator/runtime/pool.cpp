// Stream-ordered allocation. Memory exists from the call on and is freed when the queue reaches the free.

#include <algorithm>

#include "tern/tests/emulator/runtime/memory.h"

using namespace tern::standin;

namespace {

CUmemPoolHandle_st* create_pool(State& s, int device) {
  auto pool = std::make_unique<CUmemPoolHandle_st>();
  pool->device = device;
  CUmemPoolHandle_st* const handle = pool.get();
  s.pools.emplace(handle, std::move(pool));
  return handle;
}

CUmemPoolHandle_st* default_pool(State& s, int device) {
  for (const auto& [handle, pool] : s.pools) {
    if (pool->is_default && pool->device == device) return handle;
  }
  CUmemPoolHandle_st* const made = create_pool(s, device);
  made->is_default = true;
  return made;
}

CUmemPoolHandle_st* pool_in_use(State& s, int device) {
  s.device_pools.resize(s.config.devices);
  CUmemPoolHandle_st*& pool = s.device_pools[device];
  if (!pool) pool = default_pool(s, device);
  return pool;
}

/// pool == nullptr: the pool that cudaMallocAsync() uses.
cudaError_t allocate_async(const char* function, void** pointer, size_t bytes, cudaMemPool_t pool,
                           cudaStream_t handle) {
  return api(function, [&](State& s) {
    CUstream_st* const stream = find_stream(s, handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!pointer || (pool && !s.pools.contains(pool))) return cudaErrorInvalidValue;
    if (stream->capture) return cudaErrorNotSupported;  // nodes that allocate are not modelled
    ++s.counters.memory_calls;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (!pool) pool = pool_in_use(s, current_device());
    const Allocation* made = allocate(s, bytes, pool);
    if (!made && s.captures.empty()) {  // waits for queued frees
      wait_for_device(s, -1);
      made = allocate(s, bytes, pool);
    }
    if (!made) return cudaErrorMemoryAllocation;
    *pointer = made->start;
    return cudaSuccess;
  });
}

template <class Body>
cudaError_t on_pool(const char* function, cudaMemPool_t pool, Body&& body) {
  return api(function, [&](State& s) { return s.pools.contains(pool) ? body(s) : cudaErrorInvalidValue; });
}

template <class Body>
cudaError_t on_device(const char* function, int device, Body&& body) {
  return api(function,
             [&](State& s) { return device >= 0 && device < s.config.devices ? body(s) : cudaErrorInvalidDevice; });
}

}  // namespace

extern "C" {

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return allocate_async("cudaMallocAsync", pointer, bytes, nullptr, stream);
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return allocate_async("cudaMallocFromPoolAsync", pointer, bytes, pool, stream);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t handle) {
  return api("cudaFreeAsync", [&](State& s) {
    CUstream_st* const stream = find_stream(s, handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    ++s.counters.memory_calls;
    if (!pointer) return cudaSuccess;
    Allocation* const found = find_allocation(pointer);
    if (!found || found->start != pointer || found->being_freed) return cudaErrorInvalidValue;
    if (stream->capture) return cudaErrorNotSupported;
    found->being_freed = true;
    return submit(s, stream, Work{Kind::kMemory, "free", [&s, pointer] { release(s, find_allocation(pointer)); }, {}});
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return api("cudaMemPoolCreate", [&](State& s) {
    if (!pool || !properties || properties->location.type != cudaMemLocationTypeDevice) return cudaErrorInvalidValue;
    if (properties->location.id < 0 || properties->location.id >= s.config.devices) return cudaErrorInvalidDevice;
    *pool = create_pool(s, properties->location.id);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return on_pool("cudaMemPoolDestroy", pool, [&](State& s) {
    if (pool->is_default) return cudaErrorInvalidValue;
    wait_for_device(s, pool->device);  // its memory may be freed later, without a pool
    for (CUmemPoolHandle_st*& used : s.device_pools) {
      if (used == pool) used = nullptr;
    }
    forget_pool(pool);
    s.pools.erase(pool);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return on_device("cudaDeviceGetDefaultMemPool", device, [&](State& s) {
    *pool = default_pool(s, device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return on_device("cudaDeviceGetMemPool", device, [&](State& s) {
    *pool = pool_in_use(s, device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return on_device("cudaDeviceSetMemPool", device, [&](State& s) {
    if (!s.pools.contains(pool) || pool->device != device) return cudaErrorInvalidValue;
    pool_in_use(s, device);
    s.device_pools[device] = pool;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return on_pool("cudaMemPoolTrimTo", pool, [](State&) { return cudaSuccess; });  // no memory is cached
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return on_pool("cudaMemPoolSetAttribute", pool, [&](State&) {
    switch (attribute) {
      case cudaMemPoolAttrReleaseThreshold:
        pool->release_threshold = *static_cast<uint64_t*>(value);
        return cudaSuccess;
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies:
        pool->reuse[attribute - cudaMemPoolReuseFollowEventDependencies] = *static_cast<int*>(value);
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
      case cudaMemPoolAttrUsedMemHigh:  // can only be set to 0, which resets it to the current use
        if (*static_cast<uint64_t*>(value) != 0) return cudaErrorInvalidValue;
        pool->used_high = pool->used;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return on_pool("cudaMemPoolGetAttribute", pool, [&](State&) {
    switch (attribute) {
      case cudaMemPoolAttrReleaseThreshold:
        *static_cast<uint64_t*>(value) = pool->release_threshold;
        return cudaSuccess;
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies:
        *static_cast<int*>(value) = pool->reuse[attribute - cudaMemPoolReuseFollowEventDependencies];
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemCurrent:
      case cudaMemPoolAttrUsedMemCurrent:
        *static_cast<uint64_t*>(value) = pool->used;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
      case cudaMemPoolAttrUsedMemHigh:
        *static_cast<uint64_t*>(value) = pool->used_high;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

}  // extern "C"
