// A variational autoencoder (Kingma & Welling, arXiv:1312.6114) of the handwritten digits: it learns a distribution of
// images, of which new ones are drawn.
#include <tern/tern.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

using namespace tern;

constexpr int64_t kPixels = 64, kLatent = 8;

// -log of the evidence's lower bound, mean over images, in its two terms.
struct Bound {
  Tensor reconstruction, divergence;
};

class Vae final : public nn::Module {
 public:
  explicit Vae(const nn::Scope& s, int64_t hidden = 128)
      : Module(s),
        encoder_(sub("encoder"), nn::make<nn::Linear>(kPixels, hidden), silu,
                 nn::make<nn::Linear>(hidden, 2 * kLatent)),
        decoder_(sub("decoder"), nn::make<nn::Linear>(kLatent, hidden), silu, nn::make<nn::Linear>(hidden, kPixels)) {}

  // The latent code of each image is normal, with these means and logarithms of variances: [batch, kLatent] each.
  std::pair<Tensor, Tensor> encode(const Tensor& pixels) const {
    const auto halves = encoder_.forward(pixels).chunk(2, -1);
    return {halves[0], halves[1]};
  }
  // Logits of the pixels.
  Tensor decode(const Tensor& code) const { return decoder_.forward(code); }

  Bound bound(const Tensor& pixels) const {
    const auto [mean, log_variance] = encode(pixels);
    // Reparametrisation: the noise has no parameters, so the code is differentiable by mean and variance.
    const Tensor noise = randn(mean.shape(), generator(), {.device = device()});
    const Tensor code = mean + exp(log_variance * 0.5) * noise;
    const auto images = static_cast<double>(pixels.size(0));
    const Tensor reconstruction =
        binary_cross_entropy_with_logits(decode(code), pixels, {.reduction = LossReduction::kSum}) / images;
    // KL(q || N(0, 1)) in closed form (appendix B).
    const Tensor divergence = sum(exp(log_variance) + square(mean) - 1.0 - log_variance) * (0.5 / images);
    return {reconstruction, divergence};
  }

 private:
  nn::Sequential encoder_, decoder_;
};

// Of a few images next to one another, as text.
void draw(const Tensor& pixels, int64_t count) {
  const std::vector<double> values = pixels.to_vector<double>();
  for (int64_t row = 0; row < 8; ++row) {
    std::string line;
    for (int64_t image = 0; image < count; ++image) {
      for (int64_t column = 0; column < 8; ++column)
        line += " .:+*#@@"[static_cast<size_t>(values[static_cast<size_t>(image * kPixels + row * 8 + column)] * 7)];
      line += "  ";
    }
    std::printf("%s\n", line.c_str());
  }
}

// -log p of each pixel, summed over pixels, mean over images. A grey pixel has more than 0 nats whatever its
// prediction.
double nats(const Tensor& predicted, const Tensor& pixels) {
  const Tensor all = binary_cross_entropy(predicted, pixels, {.reduction = LossReduction::kSum});
  return all.item<double>() / static_cast<double>(pixels.size(0));
}

void check_bound(const Vae& net, const Tensor& train, const Tensor& test) {
  const NoGrad off;
  const Bound bound = net.bound(test);
  const double reached = (bound.reconstruction + bound.divergence).item<double>();
  const double least = nats(test, test), independent = nats(mean(train, {0}, true).expand(test.shape()), test);
  std::printf("test images: %.2f nats; independent pixels have %.2f, perfect predictions %.2f\n", reached, independent,
              least);
  TERN_CHECK(reached < independent - 2 && reached > least, "vae: the bound is ", reached, ", expected from ", least,
             " to ", independent - 2);
  TERN_CHECK(bound.divergence.item<double>() > 1, "vae: the codes say nothing of the images");
}

Tensor covariance(const Tensor& rows) {
  const Tensor centred = rows - mean(rows, {0}, true);
  return matmul(centred.t(), centred) / static_cast<double>(rows.size(0) - 1);
}

// New images have the means of the training images, and pixels that vary together where theirs do.
void check_samples(const Vae& net, const Tensor& train) {
  const NoGrad off;
  Generator generator(7);
  const Tensor samples = sigmoid(net.decode(randn({2000, kLatent}, generator, {.device = net.device()})));
  draw(samples, 8);
  const double difference = max(abs(mean(samples, {0}) - mean(train, {0}))).item<double>();
  const double likeness =
      cosine_similarity(covariance(samples).flatten(), covariance(train).flatten(), 0).item<double>();
  std::printf("samples: means differ by at most %.3f, likeness of covariances %.3f\n", difference, likeness);
  TERN_CHECK(difference < 0.1, "vae: the mean of a pixel differs by ", difference);
  TERN_CHECK(likeness > 0.8, "vae: the likeness of covariances is ", likeness);
}

int main() try {
  const Device device = best_device();
  Vae net(nn::Scope({.device = device, .generator = Generator(42)}));
  optim::Adam optimizer(net.parameters(), {.lr = 2e-3});
  const data::Loader loader(data::digits("train"), {.batch_size = 64, .shuffle = true, .seed = 42});
  const Tensor train = data::digits("train").tensors()[0].to(device),
               test = data::digits("test").tensors()[0].to(device);
  for (int epoch = 0; epoch < 60; ++epoch) {
    double total = 0, divergence = 0;
    for (const auto& batch : loader.epoch(epoch)) {
      const Bound bound = net.bound(batch[0].to(device));
      const Tensor loss = bound.reconstruction + bound.divergence;
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      total += loss.item<double>() / static_cast<double>(loader.steps());
      divergence += bound.divergence.item<double>() / static_cast<double>(loader.steps());
    }
    if (epoch % 10 == 9)
      std::printf("epoch %d: bound %.2f nats, of which divergence %.2f\n", epoch + 1, total, divergence);
  }

  check_bound(net, train, test);
  check_samples(net, train);
  return 0;
} catch (const Error& error) {
  std::printf("%s\n", error.what());
  return 1;
}
