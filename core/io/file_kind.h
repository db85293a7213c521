#pragma once
// What a path stands for when it is no regular file.

#include <sys/types.h>

#include <string>
#include <string_view>

namespace tern::detail {

/// "a named pipe", "a socket", "a folder", "a device"; null for a regular file. `mode` is stat's.
const char* other_file_kind(mode_t mode);

/// The descriptor that a path names: /dev/stdin, /dev/stdout, /dev/stderr, or the N of /dev/fd/N and /proc/self/fd/N.
/// -1 for other paths.
int descriptor_named(std::string_view path);

/// Whether something has this name: also a link that leads nowhere, and what may not be looked at. Opening it says why
/// it cannot be read, so an optional file that is damaged in that way is not taken for one that is absent.
bool name_exists(const std::string& path);

/// Throws Error, which ends with `advice`, unless the path is a folder, or a link to one.
void require_folder(const std::string& path, const std::string& advice);

/// Throws Error when the path is there and is no regular file: one that is written would replace it, or wait for a
/// reader of the pipe that may never come.
void refuse_to_write_other_kinds(const std::string& path);

}  // namespace tern::detail
