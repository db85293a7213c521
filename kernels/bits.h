#pragma once
// Dispatch for kernels that move elements without interpreting them.

#include <cstdint>
#include <utility>

namespace tern::kernels {

/// Calls body.operator()<Word>() with the unsigned integer type that has an element's size: 1, 2, 4 or 8 bytes.
template <class Body>
decltype(auto) dispatch_size(int64_t bytes, Body&& body) {
  switch (bytes) {
    case 1:
      return body.template operator()<uint8_t>();
    case 2:
      return body.template operator()<uint16_t>();
    case 4:
      return body.template operator()<uint32_t>();
    default:
      return body.template operator()<uint64_t>();
  }
}

}  // namespace tern::kernels
