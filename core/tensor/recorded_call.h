#pragma once
// Calls of ops as trace() (core/graph/trace.h) records them: the op's function, and its arguments, which can be looked
// at and replaced. Function::apply records every op that is a struct; what computes without one calls record_call().

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tern/core/tensor.h"

namespace tern::detail {

/// Is given the arguments of a call in their order; the fields of a struct and the elements of a list one by one. What
/// it writes to a tensor or a number becomes the argument.
class ArgumentVisitor {
 public:
  virtual ~ArgumentVisitor() = default;
  virtual void tensor(Tensor& x) = 0;
  /// A size, a count, a dimension.
  virtual void integer(int64_t& value) = 0;
  virtual void number(double& value) = 0;
  /// A flag or one of an enumeration's values.
  virtual void choice(int64_t value) = 0;
  virtual void text(const std::string& value) = 0;
  virtual void dtype(DType value) = 0;
  virtual void device(Device& value) = 0;
  virtual void begin_list(size_t size) = 0;
  virtual void end_list() = 0;
  /// Something whose inside cannot be seen, in which a tensor may be.
  virtual void opaque(const char* type) = 0;
};

/// One call. run() calls the function again with the arguments as they are now.
class OpCall {
 public:
  virtual ~OpCall() = default;
  virtual const char* name() const = 0;
  virtual std::unique_ptr<OpCall> clone() const = 0;
  virtual void visit(ArgumentVisitor& visitor) = 0;
  virtual std::vector<Tensor> run() const = 0;
};

/// What is told of the calls that a thread makes while it is traced.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void record(std::unique_ptr<OpCall> call, const std::vector<Tensor>& results) = 0;
  /// A tensor was made outside of a recorded call.
  virtual void made(const Tensor& x) = 0;
  /// The tensor has numbers of the program, which are the same in each run.
  virtual void constant(const Tensor& x) = 0;
  /// The program reads the elements of x.
  virtual void read(const Tensor& x, const char* how) = 0;
  /// x was changed in place and has now the elements of `value`.
  virtual void changed(const Tensor& x, const Tensor& value) = 0;
};

/// What this thread's calls are recorded by; null unless it traces, and within a recorded call.
TraceSink* active_trace();

/// Sets active_trace() while it lives.
class TraceScope {
 public:
  explicit TraceScope(TraceSink* sink);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceSink* const before_;
};

// ---- the fields of a struct ----

/// Converts to any field of the aggregate Of, but not to Of or a base of it.
template <class Of, bool kClassesOnly = false>
struct AnyField {
  template <class T>
  requires(!std::is_base_of_v<T, Of> && !std::is_same_v<T, Of> && (!kClassesOnly || std::is_class_v<T>)) constexpr
  operator T() const noexcept {  // NOLINT: not explicit
    __builtin_unreachable();
  }
};

template <class T, size_t... I>
constexpr bool takes_fields(std::index_sequence<I...>) {
  return requires { T{(void(I), AnyField<T>{})...}; };
}
/// Whether the initialiser after that many may be one for a class.
template <class T, size_t... I>
constexpr bool takes_class(std::index_sequence<I...>) {
  return requires { T{(void(I), AnyField<T>{})..., AnyField<T, true>{}}; };
}
/// Whether it may be a list of as many as J.
template <class T, size_t... I, size_t... J>
constexpr bool takes_list(std::index_sequence<I...>, std::index_sequence<J...>) {
  return requires { T{(void(I), AnyField<T>{})..., {(void(J), AnyField<T>{})...}}; };
}

inline constexpr size_t kMaxFields = 16;

/// The number of initialisers of an aggregate, of which a C array takes one for each element.
template <class T, size_t N = kMaxFields + 1>
constexpr size_t count_initialisers() {
  if constexpr (N == 0)
    return 0;
  else if constexpr (takes_fields<T>(std::make_index_sequence<N>{}))
    return N;
  else
    return count_initialisers<T, N - 1>();
}

template <class T, size_t kBefore, size_t N>
constexpr size_t count_elements() {
  if constexpr (N <= 1)
    return 1;
  else if constexpr (takes_list<T>(std::make_index_sequence<kBefore>{}, std::make_index_sequence<N>{}))
    return N;
  else
    return count_elements<T, kBefore, N - 1>();
}

/// The number of fields of an aggregate whose fields are in one class; of C arrays only those of numbers are known.
/// More than kMaxFields: it has too many.
template <class T, size_t kBefore = 0>
constexpr size_t count_fields() {
  constexpr size_t kAll = count_initialisers<T>();
  if constexpr (kBefore >= kAll || kAll > kMaxFields)
    return kAll > kMaxFields ? kMaxFields + 1 : 0;
  else if constexpr (takes_class<T>(std::make_index_sequence<kBefore>{}))
    return 1 + count_fields<T, kBefore + 1>();
  else
    return 1 + count_fields<T, kBefore + count_elements<T, kBefore, kAll - kBefore>()>();
}

/// function(field) for each.
template <class T, class Function>
void for_each_field(T& x, const Function& function) {
  constexpr size_t kCount = count_fields<std::remove_const_t<T>>();
  const auto all = [&](auto&... fields) { (function(fields), ...); };
  // clang-format off
  if constexpr (kCount == 0) { return; }
  else if constexpr (kCount == 1) { auto& [a] = x; all(a); }
  else if constexpr (kCount == 2) { auto& [a, b] = x; all(a, b); }
  else if constexpr (kCount == 3) { auto& [a, b, c] = x; all(a, b, c); }
  else if constexpr (kCount == 4) { auto& [a, b, c, d] = x; all(a, b, c, d); }
  else if constexpr (kCount == 5) { auto& [a, b, c, d, e] = x; all(a, b, c, d, e); }
  else if constexpr (kCount == 6) { auto& [a, b, c, d, e, f] = x; all(a, b, c, d, e, f); }
  else if constexpr (kCount == 7) { auto& [a, b, c, d, e, f, g] = x; all(a, b, c, d, e, f, g); }
  else if constexpr (kCount == 8) { auto& [a, b, c, d, e, f, g, h] = x; all(a, b, c, d, e, f, g, h); }
  else if constexpr (kCount == 9) { auto& [a, b, c, d, e, f, g, h, i] = x; all(a, b, c, d, e, f, g, h, i); }
  else if constexpr (kCount == 10) { auto& [a, b, c, d, e, f, g, h, i, j] = x; all(a, b, c, d, e, f, g, h, i, j); }
  else if constexpr (kCount == 11) { auto& [a, b, c, d, e, f, g, h, i, j, k] = x; all(a, b, c, d, e, f, g, h, i, j, k); }
  else if constexpr (kCount == 12) { auto& [a, b, c, d, e, f, g, h, i, j, k, l] = x; all(a, b, c, d, e, f, g, h, i, j, k, l); }
  else if constexpr (kCount == 13) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = x; all(a, b, c, d, e, f, g, h, i, j, k, l, m); }
  else if constexpr (kCount == 14) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = x; all(a, b, c, d, e, f, g, h, i, j, k, l, m, n); }
  else if constexpr (kCount == 15) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = x; all(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o); }
  else { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = x; all(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p); }
  // clang-format on
}

template <class T>
inline constexpr bool kHasFields = std::is_empty_v<T> ||
                                   (count_fields<T>() > 0 &&
                                    count_fields<T>() <= kMaxFields);  // 0: they are those of a base

// ---- one argument ----

template <class T>
inline constexpr bool kIsList = false;
template <class T>
inline constexpr bool kIsList<std::vector<T>> = true;
template <class T, size_t N>
inline constexpr bool kIsList<std::array<T, N>> = true;

/// Shows an argument to a visitor. A type that needs another way has a function visit_arguments(T&, ArgumentVisitor&)
/// beside it.
template <class T>
void visit_argument(T& x, ArgumentVisitor& visitor) {
  if constexpr (requires { visit_arguments(x, visitor); }) {
    visit_arguments(x, visitor);
  } else if constexpr (std::is_same_v<T, Tensor>) {
    visitor.tensor(x);
  } else if constexpr (std::is_same_v<T, DType>) {
    visitor.dtype(x);
  } else if constexpr (std::is_same_v<T, Device>) {
    visitor.device(x);
  } else if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T>) {
    visitor.choice(static_cast<int64_t>(x));
  } else if constexpr (std::is_integral_v<T>) {
    auto value = static_cast<int64_t>(x);
    visitor.integer(value);
    x = static_cast<T>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    auto value = static_cast<double>(x);
    visitor.number(value);
    x = static_cast<T>(value);
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, const char*>) {
    visitor.text(x);
  } else if constexpr (std::is_same_v<T, Shape>) {
    std::vector<int64_t> sizes = x.vec();
    visit_argument(sizes, visitor);
    x = Shape(sizes);
  } else if constexpr (kIsList<T>) {
    visitor.begin_list(x.size());
    for (auto& element : x) visit_argument(element, visitor);
    visitor.end_list();
  } else if constexpr (std::is_pointer_v<T> || requires { x.use_count(); }) {
    if (x) visitor.opaque("a pointer");
  } else if constexpr (std::is_array_v<T>) {
    visitor.begin_list(std::extent_v<T>);
    for (auto& element : x) visit_argument(element, visitor);
    visitor.end_list();
  } else if constexpr (std::is_aggregate_v<T> && kHasFields<T>) {
    for_each_field(x, [&](auto& field) { visit_argument(field, visitor); });
  } else if constexpr (requires { x.has_value(); }) {  // std::optional
    visitor.begin_list(x.has_value() ? 1 : 0);
    if (x.has_value()) visit_argument(*x, visitor);
    visitor.end_list();
  } else {
    visitor.opaque("a value whose members are private");
  }
}

// ---- a recorded call ----

/// How an argument is kept: a tensor, or what converts to one, as a Tensor.
template <class T>
using KeptArgument = std::conditional_t<std::is_convertible_v<const T&, const Tensor&>, Tensor, std::decay_t<const T>>;

template <class Function, class... Args>
class RecordedCall final : public OpCall {
 public:
  RecordedCall(const char* name, const Function& function, const Args&... args)
      : name_(name), function_(function), args_(args...) {}
  const char* name() const override { return name_; }
  std::unique_ptr<OpCall> clone() const override { return std::make_unique<RecordedCall>(*this); }
  void visit(ArgumentVisitor& visitor) override {
    std::apply([&](Args&... args) { (visit_argument(args, visitor), ...); }, args_);
  }
  std::vector<Tensor> run() const override {
    auto result = std::apply(function_, args_);
    if constexpr (std::is_same_v<decltype(result), Tensor>)
      return {std::move(result)};
    else
      return result;
  }

 private:
  const char* name_;
  Function function_;
  std::tuple<Args...> args_;
};

/// function(args...), which gives a Tensor or a vector of them, recorded as one call. The function has no state; name
/// lives as long as the program.
template <class Function, class... Args>
auto record_call(TraceSink& sink, const char* name, const Function& function, const Args&... args) {
  auto result = [&] {
    const TraceScope off(nullptr);
    return function(args...);
  }();
  auto call = std::make_unique<RecordedCall<Function, KeptArgument<Args>...>>(name, function, args...);
  if constexpr (std::is_same_v<decltype(result), Tensor>)
    sink.record(std::move(call), {result});
  else
    sink.record(std::move(call), result);
  return result;
}

}  // namespace tern::detail
