// What a call of the C API takes more than the call of C++ behind it: the smallest models and ops, so that the rest of
// the time is small. Both sides take turns.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/models/c_api/model.h"

namespace tern::bench {
namespace {

constexpr int kRounds = 401, kCalls = 1000;

double nanoseconds(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) call();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / kCalls;
}

/// The time that a tenth of the rounds stay below: other programs of the machine disturb it less than the median.
double undisturbed(std::vector<double>& times) {
  std::nth_element(times.begin(), times.begin() + kRounds / 10, times.end());
  return times[kRounds / 10];
}

void row(const char* name, int calls, const std::function<void()>& in_c, const std::function<void()>& in_cpp) {
  std::vector<double> c, cpp;
  for (int round = 0; round < kRounds; ++round) {
    c.push_back(nanoseconds(in_c));
    cpp.push_back(nanoseconds(in_cpp));
  }
  const double of_c = undisturbed(c), of_cpp = undisturbed(cpp);
  std::printf("%-30s %6.0f ns in C, %6.0f ns in C++: %4.0f ns more for each of %d calls\n", name, of_c, of_cpp,
              (of_c - of_cpp) / calls, calls);
}

void check(tern_code code) {
  if (code != TERN_OK) fail("the C API returned ", tern_code_name(code));
}

int run() {
  tern_status* const status = tern_status_new();
  const int64_t one[] = {1, 4}, sizes[] = {4, 4};
  const float values[] = {1, 2, 3, 4};
  tern_tensor* x = nullptr;
  tern_model* model = nullptr;
  check(tern_tensor_new(TERN_FLOAT32, one, 2, nullptr, values, sizeof values, &x, status));
  check(tern_model_mlp(sizes, 2, TERN_RELU, nullptr, &model, status));
  const Tensor same = from_vector<float>({1, 2, 3, 4}, {1, 4});
  const nn::Scope scope;
  const models::c_api::Perceptron layers(scope, {4, 4}, TERN_RELU);

  for (const bool recorded : {false, true}) {
    check(tern_set_grad_enabled(recorded ? 1 : 0, nullptr, status));
    const GradMode mode(recorded);
    row(
        recorded ? "run and free, recorded" : "run and free", 2,
        [&] {
          tern_tensor* y = nullptr;
          check(tern_model_run(model, &x, 1, &y, 1, status));
          check(tern_tensor_free(y));
        },
        [&] { const Tensor y = layers.forward(same); });
  }
  row(
      "binary and free", 2,
      [&] {
        tern_tensor* y = nullptr;
        check(tern_binary(TERN_ADD, x, x, &y, status));
        check(tern_tensor_free(y));
      },
      [&] { const Tensor y = add(same, same); });
  int64_t count = 0;
  row(
      "numel", 1, [&] { check(tern_tensor_numel(x, &count, status)); }, [&] { count += same.numel(); });
  check(tern_model_free(model));
  check(tern_tensor_free(x));
  check(tern_status_free(status));
  return count == 0 ? 1 : 0;
}

}  // namespace
}  // namespace tern::bench

int main() { return tern::bench::run(); }
