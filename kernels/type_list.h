#pragma once

#include <type_traits>

namespace tern::kernels {

/// A list of types.
template <class... Types>
struct TypeList {
  static constexpr int size = sizeof...(Types);
  /// Calls f.template operator()<Type>() for each type in order.
  template <class F>
  static constexpr void for_each(F&& f) {
    (f.template operator()<Types>(), ...);
  }
};

/// The type's index in the list, or -1.
template <class Type, class... Types>
constexpr int index_in(TypeList<Types...>) {
  int index = 0;
  const bool found = ((std::is_same_v<Type, Types> || (++index, false)) || ...);
  return found ? index : -1;
}

}  // namespace tern::kernels
