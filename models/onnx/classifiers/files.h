#pragma once
// The files of a model in ONNX's format, as Hugging Face's optimum and `tern train onnx` lay them out, and what they
// say of it besides the network.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/datasets/labelled_set.h"

namespace tern::models {

struct OnnxFiles {
  std::string model;   // the .onnx file
  std::string folder;  // of config.json, preprocessor_config.json and the tokenizer's files, as far as there are any
};

/// Of FOLDER/NAME.onnx, of FOLDER/onnx/NAME.onnx where the inner folder has no such files and FOLDER has a config.json,
/// or of a folder with a model.onnx or onnx/model.onnx and no weights of another format. Nothing for other paths.
std::optional<OnnxFiles> onnx_files(const std::string& path);

/// Where the tokenizer and the preprocessing of a model are: the folder of its ONNX file, or the path itself.
std::string folder_of_model(const std::string& path);

/// What a model in ONNX's format is used with.
struct OnnxConfig {
  std::vector<std::string> labels = {};
  data::LabelKind label_kind = data::LabelKind::kOne;
  std::string architecture = {};  // of config.json, "BertForMaskedLM"; empty: unknown
  int64_t max_positions = 0;      // tokens; 0: unknown
  int64_t vocab_size = 0;         // 0: unknown
  int64_t token_types = 2;        // that the network tells apart if it reads them
  int64_t padding_id = 0;
  int64_t first_position = 0;      // of a text's first token; RoBERTa's is behind padding_id
  std::string preprocessing = {};  // the content of a preprocessor_config.json in the file's metadata
};

/// What decides a configuration where no file says it.
struct OnnxFacts {
  int64_t outputs = 0;          // numbers for each input; 0: no labels are read
  bool several_labels = false;  // the network ended in a sigmoid
  bool is_classifier = true;    // its labels are of a whole input
};

/// Of config.json (transformers', timm's or Tern's own), else of the metadata that `tern export` writes, else LABEL_0,
/// LABEL_1, ... Throws Error for labels of another number than the network's outputs.
OnnxConfig read_onnx_config(const OnnxFiles& files, const std::map<std::string, std::string>& metadata,
                            const OnnxFacts& facts);

/// The labels as entries of a file's metadata, from which the same are read.
std::map<std::string, std::string> onnx_metadata(const std::vector<std::string>& labels, data::LabelKind kind);

/// The config.json of a folder that has model.onnx, from which the same is read.
std::string onnx_config_json(const OnnxConfig& config);

}  // namespace tern::models
