#pragma once
// What an error says.

#include <string>
#include <utility>

#include "tern/kernels/base/check.h"

namespace tern::test {

/// The message of the Error that `action` throws; "no error" when it throws none.
template <class Action>
std::string error_of(Action&& action) {
  try {
    std::forward<Action>(action)();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tern::test
