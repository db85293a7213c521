#pragma once
// The Large Movie Review Dataset v1.0: A. Maas et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011.
// 25,000 reviews for training and 25,000 for testing, half negative (0, "neg"), half positive (1, "pos").

#include <functional>
#include <optional>
#include <string>

#include "tern/data/datasets/text_dataset.h"

namespace tern::data {

/// The aclImdb folder on this machine: $TERN_DATA/aclImdb, otherwise the cache's. Nothing is fetched. A folder counts
/// when it holds {train,test}/{neg,pos}.
std::optional<std::string> find_imdb();

/// find_imdb(), or the official archive (84 MB) fetched to the cache, checked by its
/// SHA-256 and unpacked. Throws Error in one line when it cannot be had.
std::string fetch_imdb(const std::function<void(const std::string&)>& log = {});

/// How a set read from such a folder differs from the published one, in one line: "train/neg has 3 texts instead of
/// 12500, ...; 2 texts are empty". Empty where it does not.
std::string imdb_difference(const TextDataset& set);

}  // namespace tern::data
