#pragma once
// Finds modules that belong to another module but are not in its tree: they would silently never be trained.

#include <cstdint>
#include <memory>

namespace tern::nn {
class Module;
}  // namespace tern::nn

namespace tern::detail {

/// Which Scope object a module was made from, and whether that object is gone. A copy of a Scope is another one.
class ScopeIdentity {
 public:
  ScopeIdentity() : token_(std::make_shared<char>()) {}
  ScopeIdentity(const ScopeIdentity&) : ScopeIdentity() {}
  ScopeIdentity& operator=(const ScopeIdentity&) { return *this; }
  std::weak_ptr<const char> token() const { return token_; }

 private:
  std::shared_ptr<const char> token_;
};

/// When and from which scope a module was made.
struct ModuleOrigin {
  explicit ModuleOrigin(const ScopeIdentity& identity) : scope(identity.token()) {}
  uint64_t number = 0;  // counts all modules
  std::weak_ptr<const char> scope;
};

class MemberCheck {
 public:
  /// Enters a new module in the list of those that live, and gives it a number.
  static void enter(nn::Module& module);
  static void leave(const nn::Module& module);

  /// Throws Error when `module`, or a module below it, has a member that is no part of the tree. Found are
  ///   - modules in the object's memory: members, also of base classes, in std::optional and in std::array, whatever
  ///     scope they were made from;
  ///   - modules elsewhere that the object points to, from itself (std::unique_ptr, std::shared_ptr) or from a
  ///     std::vector of such pointers in it, when they were made after it from the very Scope object that it was made
  ///     from, and that object is gone. That is a model made from a temporary, M model(nn::Scope(...)), whose
  ///     constructor hands that scope on.
  /// A pointer by itself means nothing: any model may refer to any other. Hence nothing is said of a pointer to a
  /// module from another scope, or while the scope, a variable, lives on and may have served for a model of its own.
  /// Does nothing when no module was made since the last time.
  static void run(const nn::Module& module);

 private:
  static void check_tree(const nn::Module& module, const nn::Module& root, uint64_t now);
  static void check(const nn::Module& module, const nn::Module& root);
};

}  // namespace tern::detail
