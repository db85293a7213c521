#pragma once
// The Large Movie Review Dataset v1.0: A. Maas et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011.
// 25,000 reviews for training and 25,000 for testing, half negative (0, "neg"), half positive (1, "pos").

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace tern::data {

/// The aclImdb folder on this machine: $TERN_DATA/aclImdb, otherwise the cache's. Nothing is fetched. A folder counts
/// when it holds {train,test}/{neg,pos}.
std::optional<std::filesystem::path> find_imdb();

/// find_imdb(), or the official archive (84 MB) fetched to the cache, checked by its
/// SHA-256 and unpacked. Throws Error in one line when it cannot be had.
std::filesystem::path fetch_imdb(const std::function<void(const std::string&)>& log = {});

}  // namespace tern::data
