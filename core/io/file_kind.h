#pragma once
// The kinds of paths that are not regular files.

#include <sys/types.h>

#include <string>
#include <string_view>

namespace tern::detail {

/// "a named pipe", "a socket", "a folder", "a device"; null for a regular file. `mode` is stat's st_mode.
const char* other_file_kind(mode_t mode);

/// The descriptor that a path names: /dev/stdin, /dev/stdout, /dev/stderr, or the N of /dev/fd/N and /proc/self/fd/N.
/// -1 for other paths.
int descriptor_named(std::string_view path);

/// True when the name exists, even as a dangling link or without permission to examine it. Opening it reports why it
/// cannot be read, so that a damaged optional file is not treated as absent.
bool name_exists(const std::string& path);

/// Throws Error, ending with `advice`, unless the path is a folder or a link to one.
void require_folder(const std::string& path, const std::string& advice);

/// Throws Error when the path exists and is not a regular file: writing would replace it, or wait for a reader of a
/// pipe that may never come.
void refuse_to_write_other_kinds(const std::string& path);

}  // namespace tern::detail
