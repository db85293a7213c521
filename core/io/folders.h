#pragma once
// Folders whose entries survive a power cut. What is created, renamed or removed in a folder is on the disk for certain
// only when that folder has been synced: fsync of a file does not write the file's name.

#include <string>
#include <vector>

namespace tern {

/// Returns when the entries of a folder are on the disk. A file system that cannot sync a folder, and a folder without
/// read permission, are passed over. Error: the path and the system's reason.
void sync_folder(const std::string& path);

/// Creates a folder and the parents that are missing, and syncs the folder of each. Returns those that it created,
/// outermost first. Error: the path and the system's reason.
std::vector<std::string> create_folders(const std::string& path);

/// Returns when everything written to the file system that holds `path` is on the disk: for many files at once. Error:
/// the path and the system's reason.
void sync_file_system(const std::string& path);

}  // namespace tern
