#include "tern/models/onnx/weights.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/folders.h"
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

Tensor tensor_as_saved(const SavedTensor& saved) {
  return saved.tensor.detach().to(cpu).to(storage_of(saved.element)).contiguous();
}

namespace {

/// A copy of a file with other bytes at the places of these tensors.
void patch_file(const MappedFile& file, const std::string& to, std::vector<const SavedTensor*> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SavedTensor* a, const SavedTensor* b) { return a->place.offset < b->place.offset; });
  write_atomically(to, [&](const std::function<void(const void*, size_t)>& append) {
    int64_t at = 0;
    for (const SavedTensor* saved : tensors) {
      const Tensor bytes = tensor_as_saved(*saved);
      TERN_CHECK(bytes.nbytes() == saved->place.bytes && saved->place.offset >= at &&
                     static_cast<uint64_t>(saved->place.offset + saved->place.bytes) <= file.bytes(),
                 "onnx: cannot save ", to, ": the place of '", saved->name, "' is not free");
      append(file.data() + at, static_cast<size_t>(saved->place.offset - at));
      append(bytes.raw_data(), static_cast<size_t>(bytes.nbytes()));
      at = saved->place.offset + saved->place.bytes;
    }
    append(file.data() + at, static_cast<size_t>(file.bytes()) - static_cast<size_t>(at));
    file.check();
  });
}

}  // namespace

void patch_external_files(const std::map<std::string, std::shared_ptr<MappedFile>>& files, const std::string& target,
                          const std::vector<SavedTensor>& tensors, const FileChanges& changes) {
  for (const auto& [name, file] : files) {
    if (name.empty()) continue;
    std::vector<const SavedTensor*> parts;
    for (const SavedTensor& saved : tensors)
      if (saved.place.file == name && !saved.is_new && tensor_as_saved(saved).nbytes() == saved.place.bytes)
        parts.push_back(&saved);  // one of another size, of a new head, is in the model's file
    const auto renamed = changes.data_files.find(name);
    const std::string to = path_of(target, renamed == changes.data_files.end() ? name : renamed->second);
    if (const auto folder = std::filesystem::path(to).parent_path(); !folder.empty()) create_folders(folder.string());
    patch_file(*file, to, parts);
  }
}

void patch_file_of(const MappedFile& source, const std::string& target, const std::vector<SavedTensor>& tensors) {
  std::vector<const SavedTensor*> own;
  for (const SavedTensor& saved : tensors)
    if (saved.place.file.empty()) own.push_back(&saved);
  patch_file(source, target, own);
}

}  // namespace tern::onnx
