#include "tern/data/tokenizers/unicode.h"

namespace tern::data::unicode {
namespace {

#include "tern/data/tokenizers/unicode/table.inc"

constexpr char32_t kBlock = 128;

}  // namespace

const CodePoint& properties(char32_t c) { return kRecords[kValues[kBlocks[c / kBlock] * kBlock + c % kBlock]]; }

std::u32string_view expansion(const CodePoint& entry) {
  return {kExpansions + (entry.strip >> 2), static_cast<std::size_t>(entry.strip & 3)};
}

}  // namespace tern::data::unicode
