#pragma once
// Keeps the number of threads constant over several kernel calls.

namespace tern::kernels {

/// Fixes num_threads() on the constructing thread until destruction, whatever other threads set; nested objects have no
/// effect. The size of a workspace depends on the number of threads: code that calls a kernel's ..._workspace() and
/// then the kernel keeps one object alive over both calls.
class FixedThreads {
 public:
  [[nodiscard]] FixedThreads();
  ~FixedThreads();
  FixedThreads(const FixedThreads&) = delete;
  FixedThreads& operator=(const FixedThreads&) = delete;

 private:
  const bool outermost_;
};

}  // namespace tern::kernels
