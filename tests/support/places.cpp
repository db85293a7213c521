#include "tern/tests/places.h"

namespace tern::test {

const char* const kCompiledSourceDir = TERN_SOURCE_DIR;

}  // namespace tern::test
