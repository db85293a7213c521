// Knowledge distillation (Hinton et al., arXiv:1503.02531): a small network learns the softened probabilities of a
// large one, and is compared with the same network that learned the labels alone.
#include <tern/tern.h>

#include <cstdio>
#include <functional>
#include <vector>

using namespace tern;

class Mlp final : public nn::Module {
 public:
  Mlp(const nn::Scope& s, int64_t hidden, double dropout = 0)
      : Module(s), body_(sub("body"), 64, hidden), dropout_(sub("dropout"), dropout), head_(sub("head"), hidden, 10) {}
  Tensor forward(const Tensor& x) const { return head_.forward(dropout_.forward(relu(body_.forward(x)))); }

 private:
  nn::Linear body_;
  nn::Dropout dropout_;
  nn::Linear head_;
};

// The loss of scores for pixels and labels.
using Loss = std::function<Tensor(const Tensor& scores, const Tensor& pixels, const Tensor& labels)>;

void train(Mlp& net, const data::TensorDataset& set, int epochs, uint64_t seed, const Loss& loss) {
  net.train();
  optim::AdamW optimizer(net.parameters(), {.lr = 5e-3});
  const data::Loader loader(set, {.batch_size = 32, .shuffle = true, .seed = seed});
  const auto schedule = optim::cosine_schedule({.total_steps = epochs * loader.steps()});
  int64_t step = 0;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (const auto& batch : loader.epoch(epoch)) {
      schedule.apply(optimizer, step++);
      const Tensor pixels = batch[0].to(net.device()), labels = batch[1].to(net.device());
      loss(net.forward(pixels), pixels, labels).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
  net.eval();
}

Tensor label_loss(const Tensor& scores, const Tensor&, const Tensor& labels) { return cross_entropy(scores, labels); }

// KL(teacher || student) at a temperature, times its square, which keeps the gradient's size at any temperature.
Tensor soft_loss(const Tensor& student, const Tensor& teacher, double temperature) {
  const Tensor target = log_softmax(teacher / temperature), given = log_softmax(student / temperature);
  return kl_div(given, target, {.log_target = true, .batch_mean = true}) * (temperature * temperature);
}

struct Comparison {
  double accuracy = 0;   // of the labels
  double agreement = 0;  // of predictions with the teacher's
  double distance = 0;   // KL(teacher || student)
};

Comparison compare(const Mlp& net, const Mlp& teacher, const data::TensorDataset& test) {
  const NoGrad off;
  const Tensor pixels = test.tensors()[0].to(net.device());
  const Tensor scores = net.forward(pixels), expected = teacher.forward(pixels);
  nn::Accuracy accuracy, agreement;
  accuracy.update(scores, test.tensors()[1]);
  agreement.update(scores, argmax(expected));
  return {accuracy.compute(), agreement.compute(), soft_loss(scores, expected, 1).item<double>()};
}

// Means over students with different initial values and orders.
Comparison mean_of(const std::vector<Comparison>& all) {
  Comparison mean;
  for (const Comparison& each : all) {
    const auto n = static_cast<double>(all.size());
    mean.accuracy += each.accuracy / n;
    mean.agreement += each.agreement / n;
    mean.distance += each.distance / n;
  }
  return mean;
}

int main() try {
  constexpr double kTemperature = 4;
  const Device device = best_device();
  const auto images = data::digits("train"), test = data::digits("test");
  const data::TensorDataset few({images.tensors()[0].narrow(0, 0, 200), images.tensors()[1].narrow(0, 0, 200)});

  Mlp teacher(nn::Scope({.device = device, .generator = Generator(1)}), 512, /*dropout=*/0.5);
  train(teacher, images, /*epochs=*/30, 1, label_loss);
  std::printf("teacher: accuracy %.3f\n", compare(teacher, teacher, test).accuracy);
  const Loss teacher_loss = [&](const Tensor& scores, const Tensor& pixels, const Tensor&) {
    return soft_loss(scores, teacher.forward(pixels).detach(), kTemperature);
  };

  const auto students = [&](const char* what, const data::TensorDataset& set, int epochs, const Loss& loss) {
    std::vector<Comparison> results;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      Mlp student(nn::Scope({.device = device, .generator = Generator(seed)}), /*hidden=*/12);
      train(student, set, epochs, seed, loss);
      results.push_back(compare(student, teacher, test));
    }
    const Comparison mean = mean_of(results);
    std::printf("students of %s: accuracy %.3f, agreement with the teacher %.3f, divergence %.3f\n", what,
                mean.accuracy, mean.agreement, mean.distance);
    return mean;
  };
  const Comparison few_labels = students("200 labels", few, 30 * 7, label_loss);  // as many steps
  const Comparison all_labels = students("all labels", images, 30, label_loss);
  const Comparison distilled = students("the teacher, without labels", images, 30, teacher_loss);

  // What is claimed: the teacher replaces labels that are missing, and its students compute probabilities more like its
  // own. With all labels there is little left to gain in accuracy.
  TERN_CHECK(distilled.accuracy > few_labels.accuracy + 0.02, "distillation: no better than 200 labels");
  TERN_CHECK(distilled.accuracy > all_labels.accuracy - 0.02, "distillation: worse than all labels");
  TERN_CHECK(distilled.distance < 0.9 * all_labels.distance, "distillation: no closer to the teacher than by labels");
  return 0;
} catch (const Error& error) {
  std::printf("%s\n", error.what());
  return 1;
}
