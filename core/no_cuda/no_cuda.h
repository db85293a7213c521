#pragma once
// What core/no_cuda and dist/no_cuda say when something of CUDA is called in a program without it. Callers refuse CUDA
// devices before that (require_available()).

#include "tern/kernels/base/check.h"

namespace tern::cuda {

inline constexpr const char* kNoCuda =
    "this build of Tern has no CUDA; configure Tern with -DTERN_CUDA=ON (./tern --cuda does), or use --device cpu";

[[noreturn]] inline void fail_without_cuda(const char* what) { fail(what, ": ", kNoCuda); }

}  // namespace tern::cuda
