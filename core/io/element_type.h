#pragma once
// Element types in files of PyTorch and NumPy, and their conversion to those that Tern has. Internal to core/io.

#include <cstdint>
#include <memory>
#include <string_view>

#include "tern/core/memory/storage.h"

namespace tern::detail {

/// The element types of PyTorch and numpy. Tern reads small integers as its next larger type and does not support all.
struct ElementType {
  const char* name;     // PyTorch's: "float32"
  const char* storage;  // PyTorch's class without "Storage": "Float"; null: only in untyped storages
  const char* numpy;    // numpy's code: "f4"; null: none
  int64_t bytes;
  bool known;  // supported by Tern, as:
  DType dtype = DType::kFloat32;

  bool widened() const { return known && bytes != size_of(dtype); }
};
/// Null when no type has this name, storage class ("Float") or numpy code.
const ElementType* element_by_name(std::string_view name);
const ElementType* element_by_storage(std::string_view name);
const ElementType* element_by_numpy(std::string_view code);

/// Whether bytes of a file cannot be a tensor's memory as they are: big-endian (`swapped`), of a narrower type, or
/// bools that are neither 0 nor 1.
bool needs_conversion(const ElementType& element, bool swapped, std::string_view bytes);
/// The elements in a type that Tern has, in new memory.
std::shared_ptr<Storage> converted(const ElementType& element, bool swapped, std::string_view bytes);

}  // namespace tern::detail
