#pragma once
// Models in ONNX's format as a model family: `tern train onnx --init m.onnx`, and a .onnx file or a folder with one
// wherever a model is given.
//
// A network that reads tokens becomes a classifier of texts, a classifier of tokens, a model of masked words, or an
// encoder, by its output and config.json; one that reads pixels becomes a classifier of images. Its parameters have the
// names of the file. What was a softmax or a sigmoid at the end is left out while it trains and stays in the file.

#include <map>
#include <string>

#include "tern/models/families.h"

namespace tern::models {

/// The row of model_families().
ModelFamily onnx_family();

/// Whether a model is of this family.
bool is_onnx_model(const Model& model);

/// Writes a model of this family as a file: that of its source with the weights and labels of now, and `metadata`.
/// Returns false, and writes nothing, for a model of another family.
bool save_onnx_file(const Model& model, const std::string& path,
                    const std::map<std::string, std::string>& metadata = {});

}  // namespace tern::models
