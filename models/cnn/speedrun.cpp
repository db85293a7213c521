#include "tern/models/cnn/speedrun.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"

namespace tern::models {
namespace {

constexpr int64_t kPatch = 2;               // pixels a side of what is whitened
constexpr double kSmallestVariance = 5e-4;  // added to the variances
constexpr int64_t kWhitenedImages = 5000;   // whose patches are looked at

/// Kernels that copy the first input channels to the first outputs; the other outputs are torch.nn's default values.
Initializer identities() {
  return [](Tensor& weight, Generator& generator) {
    nn::init::kaiming_uniform({.slope = std::sqrt(5.0)})(weight, generator);
    const int64_t count = std::min(weight.size(0), weight.size(1));
    Tensor copied = weight.slice(0, 0, count);
    copied.fill_(0);
    for (int64_t i = 0; i < count; ++i) copied[i][i][weight.size(2) / 2][weight.size(3) / 2].fill_(1);
  };
}

nn::ConvOptions convolution() { return {.padding = 1, .bias = false, .weight_init = identities()}; }
/// Jordan's momentum is 0.4. With 0.1 the running statistics are means over more steps; the weights hardly change in
/// the last ones, because the learning rate falls to 0.
nn::BatchNormLayerOptions norm_options() { return {.eps = 1e-12, .momentum = 0.1}; }

/// Rows are the 2 x 2 patches of the images, in the order of a kernel's elements: [patches, channels * 4].
Tensor patches_of(const Tensor& images) {
  std::vector<Tensor> shifted;
  for (int64_t y = 0; y < kPatch; ++y)
    for (int64_t x = 0; x < kPatch; ++x)
      shifted.push_back(images.slice(2, y, images.size(2) - kPatch + 1 + y)
                            .slice(3, x, images.size(3) - kPatch + 1 + x)
                            .permute({0, 2, 3, 1}));
  return stack(shifted, 4).reshape({-1, images.size(1) * kPatch * kPatch});
}

}  // namespace

SpeedrunBlock::SpeedrunBlock(const nn::Scope& s, int64_t in, int64_t out)
    : CnnBlock(s),
      conv1_(sub("conv1"), in, out, 3, convolution()),
      norm1_(sub("norm1"), out, norm_options()),
      conv2_(sub("conv2"), out, out, 3, convolution()),
      norm2_(sub("norm2"), out, norm_options()) {
  for (nn::BatchNorm2d* norm : {&norm1_, &norm2_}) norm->freeze("weight");
}

Tensor SpeedrunBlock::forward(const Tensor& x, const Tensor&) const {
  const Tensor y = norm1_.forward(max_pool2d(conv1_.forward(x), 2), ImageActivation::kGelu);
  return second_.forward(y, ImageActivation::kGelu);
}

double SpeedrunBlock::flops(int64_t& side) const {
  const double count = convolution_flops(conv1_, side);
  side /= 2;
  return count + convolution_flops(conv2_, side);
}

Speedrun::Speedrun(const nn::Scope& s, const CnnConfig& config)
    : Cnn(s, config),
      whiten_(sub("whiten"), config.channels, 2 * config.channels * kPatch * kPatch, kPatch),
      layers_(sub("layers")),
      head_(sub("head"), 256, config.num_labels(), {.bias = false, .weight_init = nn::init::normal()}) {
  TERN_CHECK(config.image_size >= CnnConfig::kSpeedrunSide, "speedrun: images must have ", CnnConfig::kSpeedrunSide,
             " pixels a side or more, got ", config.image_size);
  whiten_.freeze("weight");
  std::vector<const CnnBlock*> blocks;
  int64_t in = whiten_.weight().shape()[0];
  for (const int64_t out : {64, 256, 256}) {
    blocks.push_back(&layers_.emplace_back(in, out));
    in = out;
  }
  run_in_order(blocks);
}

void Speedrun::initialize(const std::function<Tensor(int64_t n)>& first_images) {
  NoGrad off;
  const Tensor images = first_images(kWhitenedImages);
  const Tensor rows = patches_of(images.to(DType::kFloat64));
  const int64_t size = rows.size(1);
  const std::vector<double> covariance =
      (matmul(rows.transpose(0, 1), rows) / static_cast<double>(rows.size(0))).to(Device()).to_vector<double>();
  const Eigen::Map<const Eigen::MatrixXd> matrix(covariance.data(), size, size);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solved(matrix);
  TERN_CHECK(solved.info() == Eigen::Success,
             "speedrun: the covariance of the images' patches has no eigenvalues: ", "a pixel is not finite");
  std::vector<double> kernels;
  for (int64_t i = size - 1; i >= 0; --i) {  // the largest eigenvalue first
    Eigen::VectorXd vector = solved.eigenvectors().col(i);
    Eigen::Index largest = 0;
    vector.cwiseAbs().maxCoeff(&largest);
    if (vector[largest] < 0) vector = -vector;  // its sign is not determined otherwise
    vector /= std::sqrt(std::max(solved.eigenvalues()[i], 0.0) + kSmallestVariance);
    kernels.insert(kernels.end(), vector.data(), vector.data() + size);
  }
  const Tensor half = from_vector(kernels, {size, images.size(1), kPatch, kPatch});
  Tensor(whiten_.weight().tensor()).copy_(cat({half, -half}, 0));
}

Tensor Speedrun::stem(const Tensor& images) const {
  TERN_CHECK(images.size(2) >= CnnConfig::kSpeedrunSide && images.size(3) >= CnnConfig::kSpeedrunSide,
             "speedrun: images must have ", CnnConfig::kSpeedrunSide, " pixels a side or more, got ", images.size(2),
             " x ", images.size(3));
  return gelu(whiten_.forward(images));
}

Tensor Speedrun::pool(const Tensor& feature_map) const { return max(feature_map, {2, 3}); }

Tensor Speedrun::head(const Tensor& features, const Tensor& image_keys) const {
  const Tensor x =
      dropout(features, {.p = is_training() ? config().dropout : 0, .generator = &generator(), .row_keys = image_keys});
  return head_.forward(x) * (1 / static_cast<double>(features.size(1)));
}

}  // namespace tern::models
