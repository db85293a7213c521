#pragma once
// The error of a part that this build leaves out (CMake's options TERN_CURL, TERN_ARCHIVES, TERN_IMAGES and
// TERN_EMBEDDED_DATA). The files of this folder replace the part's files.

#include <string>

#include "tern/kernels/base/check.h"

namespace tern::data {

/// Throws Error: "cat.png: cannot decode a PNG image: this build of Tern has no libpng; configure Tern with
/// -DTERN_IMAGES=ON".
[[noreturn]] inline void fail_without(const std::string& what, const char* part, const char* option) {
  fail(what, ": this build of Tern has no ", part, "; configure Tern with -D", option, "=ON");
}

}  // namespace tern::data
