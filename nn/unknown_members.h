#pragma once
// Finds modules that belong to another module but are not in its tree: they would silently never be trained.

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

namespace tern::nn {
class Module;
}  // namespace tern::nn

namespace tern::detail {

/// How long a Scope exists, counted in modules made: what is made in that time may be a member of the scope's module.
class ScopeLife {
 public:
  using End = std::atomic<uint64_t>;
  ScopeLife() : end_(std::make_shared<End>(UINT64_MAX)) {}
  ScopeLife(const ScopeLife&) : ScopeLife() {}
  ScopeLife& operator=(const ScopeLife&) { return *this; }
  ~ScopeLife();
  /// The number of the last module made while the scope existed; UINT64_MAX as long as it does.
  const std::shared_ptr<End>& end() const { return end_; }

 private:
  std::shared_ptr<End> end_;
};

/// When, where and from which scope a module was made.
struct ModuleOrigin {
  explicit ModuleOrigin(const ScopeLife& scope) : scope_end(scope.end()) {}
  uint64_t number = 0;  // counts all modules
  std::thread::id thread = std::this_thread::get_id();
  std::shared_ptr<const ScopeLife::End> scope_end;
};

class MemberCheck {
 public:
  /// Enters a new module in the list of those that live, and gives it a number.
  static void enter(nn::Module& module);
  static void leave(const nn::Module& module);

  /// Throws Error when `module`, or a module below it, has a member that is no part of the tree. Found are
  ///   - modules in the object's memory: members, also of base classes, in std::optional and in std::array;
  ///   - modules on the heap that the object holds a pointer to (std::unique_ptr, std::shared_ptr) and that were made
  ///     while its scope existed, as in its constructor: a pointer to a module made elsewhere is only a reference;
  ///   - when the object is on the stack, modules on the heap that were made from its scope, which is gone since: those
  ///     are members in a container.
  /// Does nothing when no module was made since the last time.
  static void run(const nn::Module& module);

 private:
  static void check_tree(const nn::Module& module, const nn::Module& root);
  static void check(const nn::Module& module, const nn::Module& root);
  static bool is_on_heap_from_scope_of(const nn::Module& other, const nn::Module& module);
};

}  // namespace tern::detail
