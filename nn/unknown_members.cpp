#include "tern/nn/unknown_members.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

#include "tern/nn/module.h"

namespace tern::detail {

using nn::Module;

namespace {

struct LiveModules {
  std::mutex mutex;
  std::set<const Module*, std::less<>> all;
  std::set<const Module*, std::less<>> roots;  // modules without a parent at construction
};
LiveModules& live() {
  static auto* modules = new LiveModules;  // never destroyed, because static modules may be destroyed late
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

using Words = std::vector<uintptr_t>;

/// The words of an object. Other threads may write its members under locks unknown here; the values read are then
/// irrelevant, and sanitizers must ignore the access.
__attribute__((no_sanitize("thread", "address"))) Words words_of(const Memory& object) {
  Words words;
  for (const char* at = object.begin; at + sizeof(uintptr_t) <= object.end; at += sizeof(uintptr_t))
    words.push_back(uintptr_t{*reinterpret_cast<const volatile uintptr_t*>(at)});
  return words;
}

/// The elements of a std::vector whose three words (begin, end, end of the memory) start at word i; empty when the
/// words cannot be a vector. They may be numbers that only look like pointers, so the system reads the memory, which
/// cannot fault.
Words elements_at(const Words& words, size_t i) {
  constexpr uintptr_t kMax = uintptr_t{1} << 16;
  if (i + 2 >= words.size()) return {};
  const uintptr_t begin = words[i], end = words[i + 1], limit = words[i + 2];
  const bool aligned = (begin | end | limit) % sizeof(uintptr_t) == 0;
  if (!aligned || begin == 0 || begin >= end || end > limit) return {};
  Words elements(std::min(end - begin, kMax) / sizeof(uintptr_t));
  const iovec to{elements.data(), elements.size() * sizeof(uintptr_t)};
  const iovec from{reinterpret_cast<void*>(begin), to.iov_len};
  if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != static_cast<ssize_t>(to.iov_len)) elements.clear();
  return elements;
}

/// The module addresses in `known` that the object holds directly or in vectors of std::unique_ptr or plain pointers
/// (each word is such an address or null) and of std::shared_ptr (every second word is).
std::set<uintptr_t> pointers_of(const Memory& object, const std::set<uintptr_t>& known) {
  std::set<uintptr_t> found;
  const auto add = [&](const Words& words, size_t step) {
    for (size_t k = 0; k < words.size(); k += step)
      if (known.contains(words[k])) found.insert(words[k]);
  };
  const Words words = words_of(object);
  add(words, 1);
  for (size_t i = 0; i < words.size(); ++i) {
    const Words elements = elements_at(words, i);
    for (const size_t step : {1, 2}) {
      bool all = elements.size() % step == 0;
      for (size_t k = 0; k < elements.size() && all; k += step) all = elements[k] == 0 || known.contains(elements[k]);
      if (all) add(elements, step);
    }
  }
  return found;
}

/// True when both were made from one Scope object that no longer exists.
bool same_gone_scope(const ModuleOrigin& a, const ModuleOrigin& b) {
  return a.scope.expired() && !a.scope.owner_before(b.scope) && !b.scope.owner_before(a.scope);
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
       "'s sub(\"name\"). Make it with sub(\"name\"); a model "
       "that is not to be a part of ",
       type, " is made outside of it, from another Scope, and held by reference");
}

}  // namespace

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

void MemberCheck::check(const Module& module, const Module& root) {
  const char* begin = static_cast<const char*>(whole_object(module));
  const Memory object{begin, begin + module.object_size()};
  LiveModules& modules = live();
  const std::lock_guard<std::mutex> lock(modules.mutex);
  const auto first = modules.all.lower_bound(reinterpret_cast<const Module*>(begin));
  for (auto it = first; it != modules.all.end() && object.contains(*it); ++it)
    if (*it != &module && root_of(*it) != &root) fail_unknown(module, **it);

  std::vector<const Module*> candidates;
  for (const Module* other : modules.roots)
    if (other->origin_.number > std::max(module.origin_.number, module.checked_.load()) &&
        same_gone_scope(other->origin_, module.origin_))
      candidates.push_back(other);
  if (candidates.empty()) return;
  const auto address = [](const void* at) { return reinterpret_cast<uintptr_t>(at); };
  std::set<uintptr_t> known;
  for (const Module* other : modules.all) known.insert(address(other));
  // A pointer to another base class has another value. Only candidates are certainly complete, so only for them is the
  // address of the whole object computed.
  for (const Module* other : candidates) known.insert(address(whole_object(*other)));
  const std::set<uintptr_t> held = pointers_of(object, known);
  for (const Module* other : candidates)
    if (held.contains(address(other)) || held.contains(address(whole_object(*other)))) fail_unknown(module, *other);
}

void MemberCheck::check_tree(const Module& module, const Module& root, uint64_t now) {
  // Children first: an object in a child is also in this module, and the error must name the child.
  for (const Module* child : module.children()) check_tree(*child, root, now);
  check(module, root);
  module.checked_.store(now);
}

void MemberCheck::run(const Module& module) {
  const uint64_t now = modules_made.load();
  if (module.checked_.load() != now) check_tree(module, *root_of(&module), now);
}

}  // namespace tern::detail
