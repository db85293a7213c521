#pragma once
// What an error says.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

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

/// Every part is in the text.
inline void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

/// `action` throws an Error whose message has every part.
template <class Action>
void expect_error(Action&& action, const std::vector<std::string>& parts) {
  expect_contains(error_of(std::forward<Action>(action)), parts);
}

}  // namespace tern::test
