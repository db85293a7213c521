#include "tern/models/onnx/weights.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/input_file.h"
#include "tern/core/io/mapped_file.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/parallel.h"

namespace tern::onnx {
namespace {

constexpr int64_t kBlock = 4 << 20;

struct Piece {
  int descriptor;
  int64_t offset, bytes;
  char* to;
};

void read_piece(const Piece& piece) {
  for (int64_t done = 0; done < piece.bytes;) {
    const ssize_t count =
        pread(piece.descriptor, piece.to + done, static_cast<size_t>(piece.bytes - done), piece.offset + done);
    if (count < 0 && errno == EINTR) continue;
    TERN_CHECK(count > 0, "the file is shorter than when it was opened");
    done += count;
  }
}

std::string path_of(const std::string& model, const std::string& file) {
  return file.empty() ? model : (std::filesystem::path(model).parent_path() / file).string();
}

}  // namespace

void read_tensors(const std::string& model, const std::vector<TensorData*>& tensors) {
  std::map<std::string, std::unique_ptr<InputFile>> files;
  std::vector<Piece> pieces;
  for (TensorData* tensor : tensors) {
    if (tensor->place.offset < 0 || tensor->bytes == 0 || is_narrow(tensor->element)) continue;
    if (!is_supported(tensor->element) || tensor->element == kBool) continue;
    const auto size = static_cast<uintptr_t>(size_of(storage_of(tensor->element)));
    if (reinterpret_cast<uintptr_t>(tensor->data) % size == 0) continue;
    auto& file = files[tensor->place.file];
    if (!file) file = std::make_unique<InputFile>(path_of(model, tensor->place.file));
    const auto memory = std::make_shared<Tensor>(empty({tensor->bytes}, {.dtype = uint8}));
    char* to = static_cast<char*>(memory->raw_data());
    for (int64_t at = 0; at < tensor->bytes; at += kBlock)
      pieces.push_back({file->descriptor(), tensor->place.offset + at, std::min(kBlock, tensor->bytes - at), to + at});
    tensor->data = to;
    tensor->owner = memory;
  }
  kernels::parallel_for(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) read_piece(pieces[static_cast<size_t>(i)]);
  });
}

}  // namespace tern::onnx
