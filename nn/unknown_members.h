#pragma once
// Finds modules that are members of another module but not in its tree: they would silently never be trained.

#include <cstdint>
#include <memory>

namespace tern::nn {
class Module;
}  // namespace tern::nn

namespace tern::detail {

/// Identifies the Scope object of a module and whether that object still exists. A copy of a Scope is another object.
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
  uint64_t number = 0;  // position in the order in which all modules were made
  std::weak_ptr<const char> scope;
};

class MemberCheck {
 public:
  /// Adds a new module to the list of live modules and assigns its number.
  static void enter(nn::Module& module);
  static void leave(const nn::Module& module);

  /// Throws Error when `module` or a descendant has a member that is not in the tree. It finds
  ///   - modules in the object's memory: members, also of base classes, in std::optional and in std::array, from any
  ///     scope;
  ///   - modules elsewhere to which the object holds a pointer, directly (std::unique_ptr, std::shared_ptr) or in a
  ///     std::vector of such pointers, if they were made later, from the same Scope object, and that object no longer
  ///     exists. This is a model made from a temporary, M model(nn::Scope(...)), whose constructor passes that scope
  ///     on.
  /// Other pointers are allowed, because any model may refer to another: those to a module from another scope, and
  /// those to a module from a scope that still exists and may have been used for a separate model.
  /// Does nothing when no module was made since the last call.
  static void run(const nn::Module& module);

 private:
  static void check_tree(const nn::Module& module, const nn::Module& root, uint64_t now);
  static void check(const nn::Module& module, const nn::Module& root);
};

}  // namespace tern::detail
