#include "tern/core/io/npy.h"

#include <cstring>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/mapped_file.h"
#include "tern/core/io/npy_header.h"
#include "tern/core/io/state_file.h"

namespace tern {

NumpyFile detail::load_npy_entry(const std::string& path) {
  const auto mapping = std::make_shared<MappedFile>(path);
  const std::string_view file(mapping->data(), mapping->bytes());
  TERN_CHECK(!file.empty(), path, ": the file is empty");
  const NpyHeader header = read_npy_header(path, file);
  NumpyFile result;
  if (!header.problem.empty()) {
    result.unreadable.push_back({"tensor", header.problem});
    return result;
  }
  result.tensors.push_back({"tensor", npy_tensor(path, header, file, mapping)});
  if (header.element->widened()) result.widened["tensor"] = header.element->name;
  mapping->check();
  return result;
}

Tensor load_npy(const std::string& path) {
  const NumpyFile file = detail::load_npy_entry(path);
  TERN_CHECK(file.unreadable.empty(), path, ": ", file.unreadable[0].reason);
  return file.tensors[0].tensor;
}

void save_npy(const Tensor& tensor, const std::string& path) {
  TERN_CHECK(tensor.defined(), path, ": the tensor is undefined");
  const Tensor rows = tensor.detach().to(cpu).contiguous();
  const std::string header = detail::npy_header(rows.shape(), rows.dtype());
  write_atomically(path, [&](const auto& append) {
    append(header.data(), header.size());
    append(rows.raw_data(), static_cast<size_t>(rows.nbytes()));
    verify_files_of({{"", rows}});
  });
}

}  // namespace tern
