#pragma once
// What the tests of the C API share: a fixture that frees what they make.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tern/tern_c.h"
#include "tern/tests/support/seed.h"
#include "tern/tests/support/temporary_folder.h"

#pragma GCC diagnostic ignored "-Wmissing-field-initializers"  // options of C, of which the others are zero

namespace tern::models {

using Doubles = std::vector<double>;
using Sizes = std::vector<int64_t>;

class CApi : public testing::Test {
 protected:
  void TearDown() override {
    for (tern_tensor* tensor : tensors_) EXPECT_EQ(tern_tensor_free(tensor), TERN_OK);
    for (tern_model* model : models_) EXPECT_EQ(tern_model_free(model), TERN_OK);
    for (tern_optimizer* optimizer : optimizers_) EXPECT_EQ(tern_optimizer_free(optimizer), TERN_OK);
    for (tern_tensors* list : lists_) EXPECT_EQ(tern_tensors_free(list), TERN_OK);
    EXPECT_EQ(tern_status_free(status_), TERN_OK);
  }
  void ok(tern_code code) {
    ASSERT_EQ(code, TERN_OK) << tern_status_message(status_);
    ASSERT_EQ(tern_status_code(status_), TERN_OK);
    ASSERT_STREQ(tern_status_message(status_), "");
  }
  /// The call failed with this code and a message with this text.
  void fails(tern_code found, tern_code code, const std::string& text) {
    EXPECT_EQ(found, code) << tern_status_message(status_);
    EXPECT_EQ(tern_status_code(status_), code);
    EXPECT_NE(std::string(tern_status_message(status_)).find(text), std::string::npos) << tern_status_message(status_);
  }
  tern_tensor* kept(tern_tensor* tensor) {
    tensors_.push_back(tensor);
    return tensor;
  }
  tern_tensor* tensor(const Doubles& values, const Sizes& shape, tern_dtype dtype = TERN_FLOAT64) {
    tern_tensor *made = nullptr, *converted = nullptr;
    ok(tern_tensor_new(TERN_FLOAT64, shape.data(), static_cast<int32_t>(shape.size()), nullptr, values.data(),
                       values.size() * sizeof(double), &made, status_));
    if (dtype == TERN_FLOAT64) return kept(made);
    ok(tern_tensor_to(kept(made), nullptr, dtype, &converted, status_));
    return kept(converted);
  }
  Doubles values(tern_tensor* x) {
    int64_t count = 0;
    ok(tern_tensor_numel(x, &count, status_));
    Doubles found(static_cast<size_t>(count));
    ok(tern_tensor_read(x, TERN_FLOAT64, found.data(), found.size() * sizeof(double), status_));
    return found;
  }
  Sizes shape(tern_tensor* x) {
    int64_t sizes[8];
    int32_t dims = 0;
    ok(tern_tensor_shape(x, sizes, 8, &dims, status_));
    return {sizes, sizes + dims};
  }
  tern_model* mlp(const Sizes& sizes, int32_t activation, tern_dtype dtype = TERN_FLOAT64) {
    tern_model_options options{};
    options.size = sizeof options;
    options.dtype = dtype;
    options.seed = 3;
    tern_model* model = nullptr;
    ok(tern_model_mlp(sizes.data(), static_cast<int32_t>(sizes.size()), activation, &options, &model, status_));
    models_.push_back(model);
    return model;
  }
  tern_optimizer* optimizer(tern_model* model, const char* name, double lr, double momentum = -1) {
    tern_optimizer_options options{};
    options.size = sizeof options;
    options.name = name;
    options.lr = lr;
    options.has_momentum = momentum >= 0 ? 1 : 0;
    options.momentum = momentum;
    tern_optimizer* made = nullptr;
    ok(tern_optimizer_new(model, &options, &made, status_));
    optimizers_.push_back(made);
    return made;
  }
  tern_tensors* kept(tern_tensors* list) {
    lists_.push_back(list);
    return list;
  }
  tern_model* kept(tern_model* model) {
    models_.push_back(model);
    return model;
  }
  tern_tensor* run(tern_model* model, tern_tensor* x) {
    tern_tensor* y = nullptr;
    ok(tern_model_run(model, &x, 1, &y, 1, status_));
    return kept(y);
  }
  Doubles parameter(tern_model* model, const char* name) {
    tern_tensors* list = nullptr;
    tern_tensor* found = nullptr;
    ok(tern_model_parameters(model, nullptr, &list, status_));
    ok(tern_tensors_find(kept(list), name, &found, status_));
    return values(kept(found));
  }
  /// All weights one after another.
  Doubles weights(tern_model* model) {
    tern_tensors* list = nullptr;
    int64_t count = 0;
    ok(tern_model_state(model, &list, status_));
    ok(tern_tensors_count(kept(list), &count, status_));
    Doubles all;
    for (int64_t i = 0; i < count; ++i) {
      tern_tensor* found = nullptr;
      ok(tern_tensors_get(list, i, &found, status_));
      const Doubles of_one = values(kept(found));
      all.insert(all.end(), of_one.begin(), of_one.end());
    }
    return all;
  }
  Doubles random(size_t count) {
    std::uniform_real_distribution<double> numbers(-1, 1);
    Doubles drawn(count);
    for (double& value : drawn) value = numbers(random_);
    return drawn;
  }

  tern_status* status_ = tern_status_new();
  std::mt19937_64 random_ = fresh_random();
  std::vector<tern_tensor*> tensors_;
  std::vector<tern_model*> models_;
  std::vector<tern_optimizer*> optimizers_;
  std::vector<tern_tensors*> lists_;
  test::TemporaryFolder folder_;
};

inline void expect_near(const Doubles& found, const Doubles& wanted, double error) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(std::abs(found[i] - wanted[i]) <= error) << i;
}

}  // namespace tern::models
