#pragma once
// The rows of the node tests: how each of ONNX's ops is computed, and which cases are left out, for what reason.

#include <set>

#include "tern/tests/core/onnx_attention.h"
#include "tern/tests/core/onnx_images.h"
#include "tern/tests/core/onnx_pointwise.h"
#include "tern/tests/core/onnx_reduce.h"
#include "tern/tests/core/onnx_shape.h"

namespace tern::test::onnx {

/// The ops of core.
inline const Table& rows() {
  static const Table table = [] {
    Table all;
    for (const auto add : {add_pointwise, add_reducing, add_shapes, add_attention, add_images}) add(all);
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
    {"test_averagepool_2d_ceil_last_window_starts_on_pad", "expected numbers of four digits"},
    {"test_gridsample_bicubic", "expected numbers of four digits"},
    {"test_averagepool_2d_dilations", "means without dilation"},
    {"test_averagepool_3d_dilations_small", "means without dilation"},
    {"test_lppool_2d_dilations", "means without dilation"},
    {"test_col2im_5d", "windows of two dimensions"},
    {"test_maxpool_2d_uint8", "pooling of floats"},
    {"test_maxpool_with_argmax_2d_precomputed_strides", "indices are row-major"},
    {"test_maxunpool_export_with_output_shape", "indices of an image of another size"},
    {"test_resize_downsample_scales_cubic_A_n0p5_exclude_outside", "places and filters that PyTorch does not have"},
    {"test_resize_downsample_scales_cubic_antialias", "places and filters that PyTorch does not have"},
    {"test_resize_downsample_scales_linear_antialias", "places and filters that PyTorch does not have"},
    {"test_resize_downsample_scales_linear_half_pixel_symmetric", "places and filters that PyTorch does not have"},
    {"test_resize_downsample_sizes_cubic_antialias", "places and filters that PyTorch does not have"},
    {"test_resize_downsample_sizes_linear_antialias", "places and filters that PyTorch does not have"},
    {"test_resize_downsample_sizes_linear_pytorch_half_pixel", "places and filters that PyTorch does not have"},
    {"test_resize_tf_crop_and_resize", "places and filters that PyTorch does not have"},
    {"test_resize_tf_crop_and_resize_axes_2_3", "places and filters that PyTorch does not have"},
    {"test_resize_tf_crop_and_resize_axes_3_2", "places and filters that PyTorch does not have"},
    {"test_resize_tf_crop_and_resize_extrapolation_value", "places and filters that PyTorch does not have"},
    {"test_resize_upsample_scales_cubic_A_n0p5_exclude_outside", "places and filters that PyTorch does not have"},
    {"test_resize_upsample_scales_cubic_asymmetric", "places and filters that PyTorch does not have"},
    {"test_resize_upsample_scales_linear_half_pixel_symmetric", "places and filters that PyTorch does not have"},
    {"test_resize_upsample_sizes_nearest_ceil_half_pixel", "places and filters that PyTorch does not have"},
    {"test_resize_upsample_sizes_nearest_floor_align_corners", "places and filters that PyTorch does not have"},
    {"test_resize_upsample_sizes_nearest_round_prefer_ceil_asymmetric",
     "places and filters that PyTorch does not have"},
    {"test_resize_downsample_sizes_nearest_not_larger", "sizes that keep the ratio of the sides"},
    {"test_resize_downsample_sizes_nearest_not_smaller", "sizes that keep the ratio of the sides"},
    {"test_resize_upsample_sizes_nearest_not_larger", "sizes that keep the ratio of the sides"},
    {"test_resize_upsample_sizes_nearest_not_smaller", "sizes that keep the ratio of the sides"},
    {"test_resize_downsample_scales_cubic_align_corners", "corners at a size that is not whole"},
    {"test_resize_downsample_scales_linear_align_corners", "corners at a size that is not whole"},
    {"test_resize_downsample_sizes_nearest", "of two nearest pixels the first"},
    {"test_resize_upsample_sizes_nearest", "of two nearest pixels the first"},
    {"test_resize_upsample_sizes_nearest_axes_2_3", "of two nearest pixels the first"},
    {"test_resize_upsample_sizes_nearest_axes_3_2", "of two nearest pixels the first"},
    // Larger than make_onnx.py stores.
    {"test_nllloss_NCd1d2d3d4d5_mean_weight", "size"},
    {"test_nllloss_NCd1d2d3d4d5_none_no_weight", "size"},
    {"test_sce_NCd1d2d3d4d5_mean_weight", "size"},
    {"test_sce_NCd1d2d3d4d5_mean_weight_log_prob", "size"},
    {"test_sce_NCd1d2d3d4d5_none_no_weight", "size"},
    {"test_sce_NCd1d2d3d4d5_none_no_weight_log_prob", "size"},
    {"test_tile", "size"},
    {"test_averagepool_3d_default", "size"},
    {"test_averagepool_3d_dilations_large_count_include_pad_is_0_ceil_mode_is_False", "size"},
    {"test_averagepool_3d_dilations_large_count_include_pad_is_0_ceil_mode_is_True", "size"},
    {"test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_False", "size"},
    {"test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True", "size"},
    {"test_lppool_3d_default", "size"},
    {"test_maxpool_3d_default", "size"},
    {"test_maxpool_3d_dilations_use_ref_impl_large", "size"},
};

/// Ops without an equivalent, by the reason. A case of several nodes has the names of all.
inline const std::map<std::string, std::string> kLeftOutOps = {
    {"layers of images that Tern does not have",
     "BatchNormalization CausalConvWithState DeformConv NonMaxSuppression RoiAlign Upsample"},
    {"recurrent layers, whose weights ONNX orders otherwise (nn_recurrent_test has PyTorch's), and linear attention",
     "GRU LSTM LinearAttention RNN"},
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
