#pragma once
// What an error says.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tern/kernels/base/check.h"
#include "tern/tests/support/text.h"

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
  for (const std::string& part : parts) EXPECT_TRUE(has(text, part));
}

/// `action` throws an Error whose message has every part and none of `absent`.
template <class Action>
void expect_error(Action&& action, const std::vector<std::string>& parts, const std::vector<std::string>& absent = {}) {
  const std::string message = error_of(std::forward<Action>(action));
  EXPECT_NE(message, "no error");
  expect_contains(message, parts);
  for (const std::string& part : absent) EXPECT_FALSE(has(message, part));
}

}  // namespace tern::test
