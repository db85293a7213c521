#pragma once
// Folders whose entries survive a power cut. An entry that is created, renamed or removed is on the disk only after the
// folder has been synced: fsync of a file does not write the file's name.

#include <string>
#include <vector>

namespace tern {

/// Returns when the entries of a folder are on the disk. Does nothing on a file system that cannot sync folders, and
/// for a folder without read permission. Error: the path and the system's reason.
void sync_folder(const std::string& path);

/// Creates a folder and its missing parents, and syncs the folder of each. Returns the created folders, outermost
/// first. Error: the path and the system's reason.
std::vector<std::string> create_folders(const std::string& path);

/// Returns when everything written to the file system of `path` is on the disk: for many files at once. Error: the path
/// and the system's reason.
void sync_file_system(const std::string& path);

}  // namespace tern
