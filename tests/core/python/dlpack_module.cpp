// A shared library that check_dlpack.py loads by ctypes: functions of C that give and take DLPack's structs, and write
// and read NumPy's files.

#include <cstring>
#include <map>
#include <sstream>

#include "tern/core/interop/dlpack.h"
#include "tern/core/io/npy.h"
#include "tern/core/ops/ops.h"

namespace tern::test {
namespace {

std::map<int64_t, Tensor> tensors;  // by the numbers that Python has
int64_t next_number = 1;
int released = 0;
std::string answer;

/// Calls fn; an Error becomes the answer "error: ..." and the result 0.
template <class F>
auto guarded(F&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const std::exception& error) {
    answer = std::string("error: ") + error.what();
    return {};
  }
}

int64_t kept(const Tensor& tensor) {
  tensors[next_number] = tensor;
  return next_number++;
}

Tensor tensor_of(const std::string& kind) {
  const Tensor numbers = arange(0, 24).reshape({2, 3, 4});
  if (kind == "scalar") return full({}, 2.5);
  if (kind == "empty") return empty({0, 3});
  if (kind == "view") return numbers.slice(2, 1, 4, 2).transpose(0, 1);
  if (kind == "broadcast") return arange(0, 3).expand({4, 3});
  if (kind == "gradient") return ones({2}, {.requires_grad = true});
  if (kind == "counted") {
    auto* const memory = new float[4]{1, 2, 3, 4};
    return from_blob(memory, {4}, float32, [memory] {
      ++released;
      delete[] memory;
    });
  }
  for (const DType dtype : {float64, float32, bfloat16, float16, int64, int32, uint8, boolean})
    if (kind == name_of(dtype)) return arange(0, 6).reshape({2, 3}).to(dtype);
  fail("no kind '", kind, "'");
}

}  // namespace
}  // namespace tern::test

using namespace tern;        // NOLINT(google-build-using-namespace)
using namespace tern::test;  // NOLINT(google-build-using-namespace)

extern "C" {

const char* last_answer() { return answer.c_str(); }
int released_blobs() { return released; }

int64_t make(const char* kind) {
  return guarded([&] { return kept(tensor_of(kind)); });
}
void forget(int64_t number) { tensors.erase(number); }

void* give(int64_t number, int versioned) {
  return guarded([&]() -> void* {
    const Tensor& tensor = tensors.at(number);
    if (versioned != 0) return to_dlpack(tensor);
    return to_dlpack_unversioned(tensor);
  });
}

int64_t take(void* managed, int versioned, int copy) {
  return guarded([&] {
    const auto choice = static_cast<DLPackCopy>(copy);
    return kept(versioned != 0 ? from_dlpack(static_cast<DLManagedTensorVersioned*>(managed), choice)
                               : from_dlpack(static_cast<DLManagedTensor*>(managed), choice));
  });
}

/// "float32 [2, 3] strides 3 1 values 0 1 2 3 4 5"
const char* describe(int64_t number) {
  return guarded([&] {
    const Tensor& x = tensors.at(number);
    std::ostringstream text;
    text << x.dtype() << " " << x.shape() << " strides";
    for (int d = 0; d < x.dim(); ++d) text << " " << x.strides()[static_cast<size_t>(d)];
    text << " values";
    for (const double value : x.to_vector<double>()) text << " " << value;
    answer = text.str();
    return answer.c_str();
  });
}

/// 1 when it is written: as an array, or as the array `name` and "other/name" of an archive.
int save(int64_t number, const char* path, const char* name) {
  return guarded([&] {
    const Tensor& x = tensors.at(number);
    if (std::string(name).empty())
      save_npy(x, path);
    else
      save_npz({{name, x}, {std::string("other/") + name, x}}, path);
    return 1;
  });
}
int64_t load(const char* path, const char* name) {
  return guarded([&] {
    const Tensor x = std::string(name).empty() ? load_npy(path) : find(load_npz(path).tensors, name);
    TERN_CHECK(x.defined(), path, ": has no array ", name);
    return kept(x);
  });
}

void fill(int64_t number, double value) { tensors.at(number).fill_(value); }
}
