#pragma once
// Texts with something else than one label each: any number of labels, or a number.

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/datasets/text_set.h"
#include "tern/data/samples/token_batch.h"

namespace tern::data {

struct TargetSet {
  TextSet texts;                         // texts.labels are all 0 and say nothing
  std::vector<std::string> label_names;  // of the columns of targets
  Tensor targets;  // float32 [texts.size(), columns]: 1 where a text has the label, otherwise 0; or its number
};

struct MultiLabelOptions {
  /// Columns of a .csv or .tsv file, by their headers, whose fields are 0 or 1. Empty: the labels of a text are in one
  /// column "labels" (or "label").
  std::vector<std::string> columns = {};
  char separator = ';';  // of the names in that column
  /// As in LoadOptions. Empty: sorted names.
  std::vector<std::string> known_labels = {};
  std::function<void(const std::string&)> log = {};  // one line each: how the file is read, where that can be doubted
};

/// Texts, each with any number of labels: a .csv or .tsv file with a header row, or a .jsonl file of one object a line.
/// The text's column or name is found as load_text finds it. An empty field is no label; in .jsonl the labels are a
/// list of strings or integers, empty for none, or a string as in .csv. Throws Error with line and column, and when no
/// row has a label.
TargetSet read_multi_label(const std::string& path, const MultiLabelOptions& options = {});

/// Texts, each with a number, in the column or under the name "label" (or "score"), of the same files. label_names is
/// that of Hugging Face's regression, LABEL_0. Throws Error with line for what is no number, and for one that is not
/// finite in float32. `log`: as MultiLabelOptions has it.
TargetSet read_numbers(const std::string& path, const std::function<void(const std::string&)>& log = {});

/// What a text file's rows are labelled with, by its header or its first object: several labels where they are under
/// "labels" and none under "label" or "sentiment", or are a list; otherwise one. Sets by name and folders have one.
LabelKind label_kind_of(const std::string& source);

/// Whether the file's name says that it is a table of texts: .csv, .tsv or .jsonl.
bool is_text_table(const std::string& path);
/// The rows of such a file in turn, one at a time in memory: the columns or names that load_text reads; no labels are
/// needed. The texts of a row are gone after its call. Ill-formed UTF-8 is passed on. Throws Error with the line, after
/// the texts before it.
void read_texts(const std::string& path, const std::function<void(const TextRow& row)>& use);

/// TokenLoaderOptions::transform that replaces a batch's labels by float32 [sequences, columns], the rows of `targets`
/// (float32 [data set rows, columns]). Sequences that only fill a batch get `filler` in every column.
std::function<void(TokenBatch& batch)> row_targets(const Tensor& targets,
                                                   float filler = static_cast<float>(kIgnoredLabel));

}  // namespace tern::data
