#pragma once
// Expectations about texts.

#include <gtest/gtest.h>

#include <string>

namespace tern::test {

/// Whether the text contains the part. A failed EXPECT_TRUE or EXPECT_FALSE shows both.
inline testing::AssertionResult has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  return (found ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "'" << part << (found ? "' is in: " : "' is not in: ") << text;
}

}  // namespace tern::test
