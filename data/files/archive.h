#pragma once
// Unpacking archives.

#include <cstdint>
#include <filesystem>
#include <string>

namespace tern::data {

/// Unpacks a tar archive of any compression into an existing folder. Only files and folders whose paths stay inside are
/// accepted: a link, a device, an absolute path or "..", more than `max_bytes` in all, and a damaged archive are
/// errors. Owners, modes and times are not restored.
void extract_archive(const std::filesystem::path& archive, const std::filesystem::path& folder, int64_t max_bytes);

/// Throws Error that names `archive` in a build without TERN_ARCHIVES, where extract_archive() does nothing else.
void require_archives(const std::string& archive);

}  // namespace tern::data
