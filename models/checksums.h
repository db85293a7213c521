#pragma once
// checksums.json: the bytes and the SHA-256 of every file in a folder.

#include <string>
#include <vector>

namespace tern::models {

/// Writes DIR/checksums.json for the files that are in the folder. Throws Error if one cannot be read.
void write_checksums(const std::string& dir);

/// Throws Error, which names the file, unless all files of DIR/checksums.json but those of `except` are there with
/// their original bytes. Files that it does not name are not looked at.
void check_checksums(const std::string& dir, const std::vector<std::string>& except = {});

/// Throws Error unless the files that a model is loaded from have the bytes with which they were written, where `path`
/// is a checkpoint of a training run (trainer/checkpoint.h) or a file in one. Other folders have no checksums.
void check_model_files(const std::string& path);

}  // namespace tern::models
