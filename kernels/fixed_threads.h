#pragma once
// One number of threads for several kernel calls.

namespace tern::kernels {

/// While one lives, num_threads() on its thread is what it was when the outermost of them began, whatever another
/// thread sets. A workspace has a piece of memory for each thread that can take part: who asks a kernel's
/// ..._workspace() and then calls it holds one over both.
class FixedThreads {
 public:
  FixedThreads();
  ~FixedThreads();
  FixedThreads(const FixedThreads&) = delete;
  FixedThreads& operator=(const FixedThreads&) = delete;

 private:
  const bool outermost_;
};

}  // namespace tern::kernels
