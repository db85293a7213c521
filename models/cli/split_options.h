#pragma once
// --split and --fold: which rows are for training, validation and testing.

#include <string>

namespace tern::cli {

/// True for what --split accepts, in the form that data::make_split takes.
bool is_split(const std::string& text);
inline constexpr const char* kSplitForm =
    "official, all, three parts like 80/10/10 (percent) or 0.8/0.1/0.1, or three numbers of rows";
/// True for what --fold accepts.
bool is_fold(const std::string& text);
inline constexpr const char* kFoldForm = "i/k, like 1/5";

/// Throws UsageError when both are given.
void check_one_of_split_and_fold(const std::string& split, const std::string& fold);

}  // namespace tern::cli
