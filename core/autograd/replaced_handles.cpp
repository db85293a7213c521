#include "tern/core/autograd/replaced_handles.h"

namespace tern::detail {

constinit thread_local const ReplacedHandles* ReplacedHandles::top_ = nullptr;

ReplacedHandles::ReplacedHandles(List tensors) : tensors_(std::move(tensors)), outer_(top_) {
  before_.reserve(tensors_.size());
  for (const auto& [handle, tensor] : tensors_) {
    before_.emplace_back(handle, *handle);
    *handle = tensor;
  }
  top_ = this;
}

ReplacedHandles::~ReplacedHandles() {
  top_ = outer_;
  for (auto entry = before_.rbegin(); entry != before_.rend(); ++entry) *entry->first = entry->second;
}

ReplacedHandles::List ReplacedHandles::now() {
  List list;
  for (const ReplacedHandles* object = top_; object; object = object->outer_)
    list.insert(list.begin(), object->tensors_.begin(), object->tensors_.end());
  return list;
}

ReplacedHandles::List ReplacedHandles::before() {
  List list;
  for (const ReplacedHandles* object = top_; object; object = object->outer_)
    list.insert(list.end(), object->before_.rbegin(), object->before_.rend());
  return list;
}

}  // namespace tern::detail
