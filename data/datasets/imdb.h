#pragma once
// The Large Movie Review Dataset v1.0: A. Maas et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011.
// 25,000 reviews for training and 25,000 for testing, half negative (0, "neg"), half positive (1, "pos").

#include <functional>
#include <optional>
#include <string>

#include "tern/data/datasets/text_set.h"

namespace tern::data {

/// The aclImdb folder on this machine: in $TERN_DATA, otherwise in the cache. A folder counts when it holds
/// {train,test}/{neg,pos}. Fetches nothing.
std::optional<std::string> find_imdb();

/// find_imdb(); otherwise fetches the official archive (84 MB) to the cache, checks its SHA-256 and unpacks it. Throws
/// Error in one line when that fails.
std::string fetch_imdb(const std::function<void(const std::string&)>& log = {});

/// How a set read from such a folder differs from the published one, in one line: "train/neg has 3 texts instead of
/// 12500, ...; 2 texts are empty". Empty when it does not differ.
std::string imdb_difference(const TextSet& set);

}  // namespace tern::data
