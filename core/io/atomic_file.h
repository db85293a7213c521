#pragma once

#include <functional>
#include <string>

namespace tern {

/// Writes a file whole or not at all: `write` appends through the given function to a temporary file in the same
/// folder, which is fsynced and renamed to `path`. On any failure the temporary file is removed, `path` is untouched,
/// and Error says what and why ("no space left on device").
void write_atomically(
    const std::string& path,
    const std::function<void(const std::function<void(const void* data, size_t bytes)>& append)>& write);
void write_atomically(const std::string& path, const std::string& text);

}  // namespace tern
