#pragma once
// The rows of the node tests: how each of ONNX's ops is computed, and which cases are left out, for what reason.

#include <set>

#include "tern/tests/core/onnx_attention.h"
#include "tern/tests/core/onnx_pointwise.h"
#include "tern/tests/core/onnx_reduce.h"
#include "tern/tests/core/onnx_shape.h"

namespace tern::test::onnx {

/// The ops of core.
inline const Table& rows() {
  static const Table table = [] {
    Table all;
    for (const auto add : {add_pointwise, add_reducing, add_shapes, add_attention}) add(all);
    return all;
  }();
  return table;
}

/// The ops of tests/optim/onnx_optimizer_test.cpp.
inline const std::set<std::string> kOptimizers = {"Adagrad", "Adam", "Momentum"};

inline const std::map<std::string, std::string> kLeftOutCases = {
    {"test_dropout_default_mask", "dropout returns no mask"},
    {"test_dropout_default_mask_ratio", "dropout returns no mask"},
    {"test_training_dropout", "NumPy's random numbers"},
    {"test_training_dropout_default", "NumPy's random numbers"},
    {"test_training_dropout_default_mask", "NumPy's random numbers"},
    {"test_training_dropout_mask", "NumPy's random numbers"},
    {"test_training_dropout_zero_ratio_mask", "dropout returns no mask"},
    {"test_identity_sequence", "a list of tensors"},
    {"test_onehot_out_of_range_indices", "zeros for an index out of range; Tern and PyTorch throw"},
    {"test_reduce_max_empty_set", "-infinity of an empty set; Tern and PyTorch throw"},
    {"test_reduce_max_empty_set_bool", "false of an empty set; Tern and PyTorch throw"},
    {"test_reduce_min_empty_set", "infinity of an empty set; Tern and PyTorch throw"},
    {"test_flexattention_causal_mask", "a graph for the scores"},
    {"test_flexattention_prob_mod", "a graph for the probabilities"},
    {"test_flexattention_relative_positional", "a graph for the scores"},
    {"test_flexattention_score_mod", "a graph for the scores"},
    {"test_flexattention_soft_cap", "a graph for the scores"},
    // Larger than make_onnx.py stores.
    {"test_nllloss_NCd1d2d3d4d5_mean_weight", "size"},
    {"test_nllloss_NCd1d2d3d4d5_none_no_weight", "size"},
    {"test_sce_NCd1d2d3d4d5_mean_weight", "size"},
    {"test_sce_NCd1d2d3d4d5_mean_weight_log_prob", "size"},
    {"test_sce_NCd1d2d3d4d5_none_no_weight", "size"},
    {"test_sce_NCd1d2d3d4d5_none_no_weight_log_prob", "size"},
    {"test_tile", "size"},
};

/// Ops without an equivalent, by the reason. A case of several nodes has the names of all.
inline const std::map<std::string, std::string> kLeftOutOps = {
    {"convolutional networks, which Tern does not have",
     "AffineGrid AveragePool BatchNormalization CausalConvWithState Col2Im Conv ConvTranspose DeformConv "
     "GlobalAveragePool GlobalMaxPool GridSample GroupNormalization InstanceNormalization LRN LpPool MaxPool MaxUnpool "
     "NonMaxSuppression Resize RoiAlign Upsample"},
    {"recurrent layers and states, which Tern does not have", "GRU LSTM LinearAttention RNN"},
    {"quantised tensors, which Tern does not have",
     "ConvInteger DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul QuantizeLinear"},
    {"sequences, optional values and control flow of a graph",
     "If Loop OptionalGetElement OptionalHasElement Scan SequenceInsert SequenceMap"},
    {"strings, or rows of scikit-learn's models",
     "ArrayFeatureExtractor Binarizer LabelEncoder RegexFullMatch StringConcat StringNormalizer StringSplit "
     "TfIdfVectorizer TreeEnsemble"},
    {"Fourier transforms and windows", "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT"},
    {"decompositions of linear algebra", "Det"},
    {"tables of any cosines and sines, where rotary has the angles of positions", "RotaryEmbedding"},
    {"files of pictures, which tests/data/image_test.cpp reads", "ImageDecoder"},
    {"NumPy's random numbers", "Bernoulli"},
    {"an output that is an attribute", "Constant"},
};

/// The same values with twice the strides.
inline Tensor strided(const Tensor& x) { return x.defined() && x.dim() > 0 ? stack({x, x}, -1).select(-1, 1) : x; }

/// The cases that rows() computes, on the device.
inline std::vector<Case> cases_to_run(Device device) {
  std::vector<Case> cases = load_cases(device);
  std::erase_if(cases, [](const Case& c) {
    return !c.missing.empty() || !rows().contains(c.op) || kLeftOutCases.contains(c.name);
  });
  return cases;
}

}  // namespace tern::test::onnx
