#include "tern/nn/unknown_members.h"

#include <pthread.h>

#include <functional>
#include <mutex>
#include <set>

#include "tern/nn/module.h"

namespace tern::detail {

using nn::Module;

namespace {

struct LiveModules {
  std::mutex mutex;
  std::set<const Module*, std::less<>> all;
  std::set<const Module*, std::less<>> roots;  // made as roots
};
LiveModules& live() {
  static auto* modules = new LiveModules;  // modules in static storage may be destroyed later than any other
  return *modules;
}
std::atomic<uint64_t> modules_made{0};

struct Memory {
  const char* begin;
  const char* end;
  bool contains(const void* address) const {
    const std::less<> before;
    return !before(static_cast<const char*>(address), begin) && before(static_cast<const char*>(address), end);
  }
};

const void* whole_object(const Module& module) { return dynamic_cast<const void*>(&module); }

/// Whether a word of the object is the module's address. The object's members may be written by other threads under
/// locks that are not known here: what the read finds then does not matter, and sanitizers leave it out.
__attribute__((no_sanitize("thread", "address"))) bool holds_pointer(const Memory& object, const Module& module) {
  const auto address = reinterpret_cast<uintptr_t>(&module);
  const auto whole = reinterpret_cast<uintptr_t>(whole_object(module));
  for (const char* at = object.begin; at + sizeof(uintptr_t) <= object.end; at += sizeof(uintptr_t)) {
    const uintptr_t word = *reinterpret_cast<const volatile uintptr_t*>(at);
    if (word == address || word == whole) return true;
  }
  return false;
}

/// The calling thread's stack; empty where the system does not say.
Memory stack() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {nullptr, nullptr};
  void* lowest = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_destroy(&attributes);
  return {static_cast<const char*>(lowest), static_cast<const char*>(lowest) + size};
}

const Module* root_of(const Module* module) {
  while (module->parent()) module = module->parent();
  return module;
}

[[noreturn]] void fail_unknown(const Module& owner, const Module& member) {
  const std::string type = owner.type_name();
  fail("nn: ", type, owner.name().empty() ? "" : " '" + owner.name() + "'", " has a member of type ",
       member.type_name(),
       " that is not in its tree of modules, and so would never be trained, saved or switched by "
       "train(): it was made from another scope than ",
       type,
       "'s sub(\"name\"). Make it with sub(\"name\"); a module "
       "that shall not be a part of ",
       type, " is made outside of it and held by reference");
}

}  // namespace

ScopeLife::~ScopeLife() { end_->store(modules_made.load()); }

void MemberCheck::enter(Module& module) {
  LiveModules& modules = live();
  const std::lock_guard<std::mutex> lock(modules.mutex);
  modules.all.insert(&module);
  if (!module.parent_) modules.roots.insert(&module);
  module.origin_.number = modules_made.fetch_add(1) + 1;
}

void MemberCheck::leave(const Module& module) {
  LiveModules& modules = live();
  const std::lock_guard<std::mutex> lock(modules.mutex);
  modules.all.erase(&module);
  modules.roots.erase(&module);
}

bool MemberCheck::is_on_heap_from_scope_of(const Module& other, const Module& module) {
  const ModuleOrigin &made = other.origin_, &owner = module.origin_;
  if (made.scope_end != owner.scope_end || *owner.scope_end == UINT64_MAX) return false;
  const Memory frames = stack();
  return frames.contains(&module) && !frames.contains(&other);
}

void MemberCheck::check(const Module& module, const Module& root) {
  const char* begin = static_cast<const char*>(whole_object(module));
  const Memory object{begin, begin + module.object_size()};
  LiveModules& modules = live();
  const std::lock_guard<std::mutex> lock(modules.mutex);
  const auto first = modules.all.lower_bound(reinterpret_cast<const Module*>(begin));
  for (auto it = first; it != modules.all.end() && object.contains(*it); ++it)
    if (*it != &module && root_of(*it) != &root) fail_unknown(module, **it);

  const ModuleOrigin& owner = module.origin_;
  for (const Module* other : modules.roots) {
    const ModuleOrigin& made = other->origin_;
    const bool within = made.thread == owner.thread && made.number > owner.number && made.number <= *owner.scope_end;
    if (within && (holds_pointer(object, *other) || is_on_heap_from_scope_of(*other, module)))
      fail_unknown(module, *other);
  }
}

void MemberCheck::check_tree(const Module& module, const Module& root) {
  // Children first: what lies in a child lies in this module too, and the child is the one to name.
  for (const Module* child : module.children()) check_tree(*child, root);
  check(module, root);
}

void MemberCheck::run(const Module& module) {
  const uint64_t now = modules_made.load();
  if (module.checked_.load() == now) return;
  check_tree(module, *root_of(&module));
  const bool complete = *module.origin_.scope_end != UINT64_MAX;  // otherwise a constructor may be the caller
  if (complete) module.checked_.store(now);
}

}  // namespace tern::detail
