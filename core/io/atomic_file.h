#pragma once

#include <functional>
#include <string>

namespace tern {

/// Writes a file completely or not at all: `write` appends through the given function to a temporary file in the same
/// folder, which is fsynced and renamed to `path`; then the folder is synced. The file's mode is 0666 less the umask.
/// On any failure before the rename the temporary file is removed, `path` is unchanged, and Error gives the path and
/// the reason ("no space left on device").
///   An existing `path` that is not a regular file (a named pipe, a socket, a device, a folder) is an Error, because it
/// would be lost. Only /dev/null and open descriptors of the process (/dev/stdout, /dev/stderr, /dev/fd/N,
/// /proc/self/fd/N) are written to directly.
void write_atomically(
    const std::string& path,
    const std::function<void(const std::function<void(const void* data, size_t bytes)>& append)>& write);
void write_atomically(const std::string& path, const std::string& text);

/// True for the name of a temporary file of write_atomically(): "PATH.tern-tmp-" and 16 hexadecimal digits. A killed
/// process leaves one; it may be removed when no process writes in its folder.
bool is_unfinished_file(const std::string& name);

}  // namespace tern
