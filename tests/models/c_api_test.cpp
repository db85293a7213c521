// The C API's handles, tensors and ops: numbers against loops of this file, and every misuse an error with its code.
// docs/examples has programs of it in C and Fortran, tests/repository/c_abi.sh looks at its symbols and structs.

#include "tern/tests/models/c_api_test.h"

#include <atomic>
#include <functional>
#include <thread>

#include "tern/models/c_api/model.h"

namespace tern::models {
namespace {

using c_api::Call;

TEST_F(CApi, VersionsAndSizesOfOtherLibrariesAreErrors) {
  EXPECT_EQ(tern_c_api_version(), TERN_C_API_VERSION);
  ok(tern_check_version(TERN_C_API_VERSION, status_));
  fails(tern_check_version(TERN_C_API_VERSION + 1, status_), TERN_ERROR_VERSION, "this library has 1 to");
  fails(tern_check_version(0, status_), TERN_ERROR_VERSION, "version 0");
  EXPECT_STREQ(tern_code_name(TERN_ERROR_BUSY), "TERN_ERROR_BUSY");
  EXPECT_STREQ(tern_code_name(8), "unknown");
  EXPECT_STREQ(tern_code_name(-1), "unknown");

  const Sizes sizes{2, 1};
  tern_model* model = nullptr;
  tern_model_options of_model{};
  for (const uint32_t size : {0U, 8U, static_cast<uint32_t>(sizeof of_model) + 8}) {
    of_model.size = size;
    fails(tern_model_mlp(sizes.data(), 2, TERN_TANH, &of_model, &model, status_), TERN_ERROR_VERSION,
          "tern_model_options.size is " + std::to_string(size));
    EXPECT_EQ(model, nullptr);
  }
  tern_optimizer* made = nullptr;
  tern_optimizer_options of_optimizer{};
  fails(tern_optimizer_new(mlp(sizes, TERN_TANH), &of_optimizer, &made, status_), TERN_ERROR_VERSION, "size is 0");
  tern_tensor *x = tensor({1}, {1}), *result = nullptr;
  tern_loss_options of_loss{};
  fails(tern_loss(TERN_MSE, x, x, &of_loss, &result, status_), TERN_ERROR_VERSION, "tern_loss_options.size");
  tern_optimizer* const updated = optimizer(models_.front(), "sgd", 0.1);
  tern_step_options of_step{};
  tern_step_result of_result{};
  fails(tern_optimizer_step(updated, &of_step, nullptr, status_), TERN_ERROR_VERSION, "tern_step_options.size");
  fails(tern_optimizer_step(updated, nullptr, &of_result, status_), TERN_ERROR_VERSION, "tern_step_result.size");
}

TEST_F(CApi, HandlesThatAreNoneAreErrors) {
  tern_tensor* const x = tensor({1, 2}, {2});
  int64_t count = -1;
  fails(tern_tensor_numel(nullptr, &count, status_), TERN_ERROR_ARGUMENT, "tensor is NULL");
  fails(tern_tensor_numel(x, nullptr, status_), TERN_ERROR_ARGUMENT, "NULL");
  // Freed, and the same place used again by another.
  tern_tensor* freed = nullptr;
  ok(tern_tensor_clone(x, &freed, status_));
  ok(tern_tensor_free(freed));
  EXPECT_EQ(tern_tensor_free(freed), TERN_ERROR_HANDLE);
  for (int i = 0; i < 3; ++i) {
    fails(tern_tensor_numel(freed, &count, status_), TERN_ERROR_HANDLE, "freed");
    tern_tensor* other = nullptr;
    ok(tern_tensor_clone(x, &other, status_));
    EXPECT_NE(kept(other), freed);
  }
  // Of another kind; addresses; numbers.
  fails(tern_tensor_numel(reinterpret_cast<tern_tensor*>(mlp({2, 1}, TERN_TANH)), &count, status_), TERN_ERROR_HANDLE,
        "is a tern_model; expected a tern_tensor");
  for (void* other : {static_cast<void*>(&count), static_cast<void*>(this), reinterpret_cast<void*>(1),
                      reinterpret_cast<void*>(-1), reinterpret_cast<void*>(uintptr_t{1} << 32)}) {
    fails(tern_tensor_numel(static_cast<tern_tensor*>(other), &count, status_), TERN_ERROR_HANDLE, "tensor is");
    EXPECT_EQ(tern_tensor_free(static_cast<tern_tensor*>(other)), TERN_ERROR_HANDLE);
    EXPECT_EQ(tern_tensor_numel(x, &count, static_cast<tern_status*>(other)), TERN_ERROR_HANDLE);
  }
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(tern_tensor_free(reinterpret_cast<tern_tensor*>(random_() | 1)), TERN_ERROR_HANDLE);
  EXPECT_EQ(count, -1);
  EXPECT_EQ(tern_tensor_free(nullptr), TERN_OK);
  EXPECT_EQ(tern_status_free(nullptr), TERN_OK);
  EXPECT_EQ(tern_status_code(nullptr), TERN_ERROR_ARGUMENT);
  EXPECT_NE(tern_status_message(nullptr), nullptr);
  EXPECT_EQ(tern_tensor_numel(x, &count, nullptr), TERN_OK);
  EXPECT_EQ(count, 2);
  // A message stays until the next call with the status.
  fails(tern_tensor_numel(nullptr, &count, status_), TERN_ERROR_ARGUMENT, "tern_tensor_numel: tensor is NULL");
  ok(tern_tensor_numel(x, &count, status_));
}

TEST_F(CApi, AHandleInUseByAnotherThreadIsBusy) {
  tern_tensor* const x = tensor({1, 2, 3}, {3});
  tern_model* const model = mlp({3, 1}, TERN_TANH);
  tern_optimizer* const updated = optimizer(model, "sgd", 0.1);
  const auto elsewhere = [&](const auto& call) {
    tern_code code = TERN_OK;
    std::thread([&] { code = call(); }).join();
    return code;
  };
  int64_t count = 0;
  int32_t training = 0;
  {
    Call call;
    call.tensor(x, "x");
    call.tensor(x, "x");  // the same call may take it twice
    EXPECT_EQ(elsewhere([&] { return tern_tensor_numel(x, &count, nullptr); }), TERN_ERROR_BUSY);
    EXPECT_EQ(elsewhere([&] { return tern_tensor_free(x); }), TERN_ERROR_BUSY);
    fails(tern_tensor_numel(x, &count, status_), TERN_ERROR_BUSY, "one thread at a time");
    call.content(status_, "status");
    EXPECT_EQ(elsewhere([&] { return tern_c_api_version() == 1 ? tern_check_version(1, status_) : 0; }),
              TERN_ERROR_BUSY);
  }
  {
    Call call;
    c_api::optimizer_of(call, updated);  // and its model
    EXPECT_EQ(elsewhere([&] { return tern_optimizer_zero_grad(updated, nullptr); }), TERN_ERROR_BUSY);
    EXPECT_EQ(elsewhere([&] { return tern_model_is_training(model, &training, nullptr); }), TERN_ERROR_BUSY);
  }
  {
    Call call;
    c_api::model_of(call, model);
    EXPECT_EQ(elsewhere([&] { return tern_optimizer_step(updated, nullptr, nullptr, nullptr); }), TERN_ERROR_BUSY);
  }
  tern_tensor* twice = nullptr;
  ok(tern_binary(TERN_ADD, x, x, &twice, status_));
  EXPECT_EQ(values(kept(twice)), (Doubles{2, 4, 6}));
  EXPECT_EQ(elsewhere([&] { return tern_optimizer_step(updated, nullptr, nullptr, nullptr); }), TERN_OK);
}

TEST_F(CApi, ManyThreadsMakeAndFreeHandles) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  tern_tensor* const shared = tensor({5}, {1});
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const double value = 1000 * t + i;
        tern_tensor* x = nullptr;
        double found = 0;
        if (tern_tensor_new(TERN_FLOAT64, nullptr, 0, nullptr, &value, sizeof value, &x, nullptr) != TERN_OK) ++wrong;
        if (tern_tensor_item(x, &found, nullptr) != TERN_OK || found != value) ++wrong;
        if (tern_tensor_free(x) != TERN_OK || tern_tensor_free(x) != TERN_ERROR_HANDLE) ++wrong;
        const tern_code code = tern_tensor_item(shared, &found, nullptr);
        if (code != TERN_ERROR_BUSY && (code != TERN_OK || found != 5)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(CApi, TensorsGoInAndOut) {
  const Doubles numbers = random(15);
  tern_tensor* const x = tensor(numbers, {3, 5});
  EXPECT_EQ(values(x), numbers);
  EXPECT_EQ(shape(x), (Sizes{3, 5}));
  std::vector<float> floats(15);
  ok(tern_tensor_read(x, TERN_FLOAT32, floats.data(), 60, status_));
  for (size_t i = 0; i < 15; ++i) EXPECT_EQ(floats[i], static_cast<float>(numbers[i]));
  fails(tern_tensor_read(x, TERN_FLOAT32, floats.data(), 56, status_), TERN_ERROR_ARGUMENT, "56 bytes were given");
  // What is not contiguous is read in C's order, but has no data.
  const int32_t order[] = {1, 0};
  tern_tensor* turned = nullptr;
  ok(tern_permute(x, order, 2, &turned, status_));
  EXPECT_EQ(values(kept(turned))[1], numbers[5]);
  void* data = nullptr;
  fails(tern_tensor_data(turned, &data, status_), TERN_ERROR_FAILED, "tern_tensor_clone");
  ok(tern_tensor_data(x, &data, status_));
  EXPECT_EQ(static_cast<double*>(data)[7], numbers[7]);
  const Doubles others = random(15);
  ok(tern_tensor_write(x, TERN_FLOAT64, others.data(), 120, status_));
  EXPECT_EQ(static_cast<double*>(data)[7], others[7]);
  tern_dtype dtype = 0;
  int32_t dims = 0;
  const char* device = nullptr;
  ok(tern_tensor_dtype(x, &dtype, status_));
  ok(tern_tensor_ndim(x, &dims, status_));
  ok(tern_tensor_device(x, &device, status_));
  EXPECT_EQ(dtype, TERN_FLOAT64);
  EXPECT_EQ(dims, 2);
  EXPECT_STREQ(device, "cpu");
  int64_t sizes[1];
  fails(tern_tensor_shape(x, sizes, 1, nullptr, status_), TERN_ERROR_ARGUMENT, "2 dimensions");
  // Zeros, no elements, booleans of C.
  tern_tensor *zero = nullptr, *none = nullptr, *flags = nullptr;
  const int64_t three = 3, empty[] = {4, 0};
  ok(tern_tensor_new(TERN_INT32, &three, 1, "cpu", nullptr, 0, &zero, status_));
  EXPECT_EQ(values(kept(zero)), (Doubles{0, 0, 0}));
  ok(tern_tensor_new(TERN_FLOAT32, empty, 2, nullptr, nullptr, 0, &none, status_));
  EXPECT_TRUE(values(kept(none)).empty());
  const uint8_t bytes[] = {0, 7, 1};
  ok(tern_tensor_new(TERN_BOOL, &three, 1, nullptr, bytes, 3, &flags, status_));
  EXPECT_EQ(values(kept(flags)), (Doubles{0, 1, 1}));
}

TEST_F(CApi, BadTensorsAreErrors) {
  tern_tensor* made = reinterpret_cast<tern_tensor*>(1);
  const int64_t three = 3, negative = -1, huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  const double value = 1;
  const auto fails_to_make = [&](tern_dtype dtype, const int64_t* sizes, int32_t dims, const char* device,
                                 const void* data, size_t bytes, tern_code code, const char* text) {
    made = reinterpret_cast<tern_tensor*>(1);
    fails(tern_tensor_new(dtype, sizes, dims, device, data, bytes, &made, status_), code, text);
    EXPECT_EQ(made, nullptr);
  };
  fails_to_make(0, &three, 1, nullptr, nullptr, 0, TERN_ERROR_ARGUMENT, "dtype");
  fails_to_make(9, &three, 1, nullptr, nullptr, 0, TERN_ERROR_ARGUMENT, "dtype");
  fails_to_make(TERN_FLOAT64, nullptr, 1, nullptr, nullptr, 0, TERN_ERROR_ARGUMENT, "shape is NULL");
  fails_to_make(TERN_FLOAT64, &three, 9, nullptr, nullptr, 0, TERN_ERROR_ARGUMENT, "ndim");
  fails_to_make(TERN_FLOAT64, &three, -1, nullptr, nullptr, 0, TERN_ERROR_ARGUMENT, "ndim");
  fails_to_make(TERN_FLOAT64, &negative, 1, nullptr, nullptr, 0, TERN_ERROR_FAILED, "-1");
  fails_to_make(TERN_FLOAT64, huge, 2, nullptr, nullptr, 0, TERN_ERROR_FAILED, "");
  fails_to_make(TERN_FLOAT64, huge, 1, nullptr, nullptr, 0, TERN_ERROR_MEMORY, "");
  fails_to_make(TERN_FLOAT64, &three, 1, nullptr, &value, 8, TERN_ERROR_ARGUMENT, "8 bytes were given");
  fails_to_make(TERN_FLOAT64, huge, 1, nullptr, &value, 8, TERN_ERROR_ARGUMENT, "8 bytes were given");
  fails_to_make(TERN_FLOAT64, &three, 1, nullptr, nullptr, 24, TERN_ERROR_ARGUMENT, "data is NULL");
  fails_to_make(TERN_FLOAT64, &three, 1, "gpu", nullptr, 0, TERN_ERROR_FAILED, "gpu");
  int32_t available = -1;
  ok(tern_device_available("cpu", &available, status_));
  EXPECT_EQ(available, 1);
  ok(tern_device_available("cuda:77", &available, status_));
  EXPECT_EQ(available, 0);
  fails(tern_device_available("gpu", &available, status_), TERN_ERROR_FAILED, "gpu");
}

void count_release(void* context) { ++*static_cast<std::atomic<int>*>(context); }

TEST_F(CApi, WrappedMemoryIsSharedAndReleasedOnce) {
  std::atomic<int> released = 0;
  double memory[] = {1, 2, 3};
  const int64_t three = 3;
  tern_tensor *x = nullptr, *view = nullptr;
  ok(tern_tensor_wrap(TERN_FLOAT64, &three, 1, memory, sizeof memory, count_release, &released, &x, status_));
  memory[1] = 7;
  EXPECT_EQ(values(x), (Doubles{1, 7, 3}));
  ok(tern_slice(x, 0, 1, 3, 1, &view, status_));
  ok(tern_tensor_free(x));
  EXPECT_EQ(released, 0);
  memory[2] = 9;
  EXPECT_EQ(values(view), (Doubles{7, 9}));
  ok(tern_tensor_free(view));
  EXPECT_EQ(released, 1);
  fails(tern_tensor_wrap(TERN_FLOAT64, &three, 1, memory, 16, count_release, &released, &x, status_),
        TERN_ERROR_ARGUMENT, "16 bytes");
  fails(tern_tensor_wrap(TERN_FLOAT64, &three, 1, reinterpret_cast<char*>(memory) + 1, 24, count_release, &released, &x,
                         status_),
        TERN_ERROR_ARGUMENT, "multiple");
  EXPECT_EQ(released, 1);

  // DLPack: the same memory there and back, with and without version.
  tern_tensor *back = nullptr, *older = nullptr;
  DLManagedTensorVersioned* managed = nullptr;
  DLManagedTensor* unversioned = nullptr;
  tern_tensor* const numbers = tensor({4, 5}, {2});
  ok(tern_tensor_to_dlpack(numbers, &managed, status_));
  ok(tern_tensor_from_dlpack(managed, 0, &back, status_));
  ok(tern_tensor_to_dlpack_unversioned(numbers, &unversioned, status_));
  ok(tern_tensor_from_dlpack_unversioned(unversioned, 2, &older, status_));
  const double others[] = {6, 7};
  ok(tern_tensor_write(numbers, TERN_FLOAT64, others, 16, status_));
  EXPECT_EQ(values(kept(back)), (Doubles{6, 7}));
  EXPECT_EQ(values(kept(older)), (Doubles{4, 5}));
  fails(tern_tensor_from_dlpack(nullptr, 0, &back, status_), TERN_ERROR_ARGUMENT, "managed is NULL");
}

TEST_F(CApi, GradientsOfAnyOrder) {
  const Doubles numbers = random(5);
  tern_tensor *x = tensor(numbers, {5}), *cube = nullptr, *slope = nullptr, *curve = nullptr, *grad = nullptr;
  tern_tensor *square = nullptr, *ones = tensor({1, 1, 1, 1, 1}, {5});
  ok(tern_tensor_set_requires_grad(x, 1, status_));
  ok(tern_unary(TERN_SQUARE, x, &square, status_));
  ok(tern_binary(TERN_MUL, kept(square), x, &cube, status_));
  kept(cube);
  fails(tern_grad(&cube, nullptr, 1, &x, 1, 0, &slope, status_), TERN_ERROR_FAILED, "");  // five outputs need gradients
  ok(tern_grad(&cube, &ones, 1, &x, 1, TERN_CREATE_GRAPH, &slope, status_));
  ok(tern_grad(&slope, &ones, 1, &x, 1, TERN_RETAIN_GRAPH, &curve, status_));
  Doubles first, second;
  for (const double v : numbers) {
    first.push_back(3 * v * v);
    second.push_back(6 * v);
  }
  expect_near(values(kept(slope)), first, 1e-13);
  expect_near(values(kept(curve)), second, 1e-13);
  // d(loss)/d(output) of the caller, accumulated twice.
  tern_tensor* const given = tensor({2, 0, -1, 0.5, 1}, {5});
  ok(tern_tensor_grad(x, &grad, status_));
  EXPECT_EQ(grad, nullptr);
  ok(tern_backward(&cube, &given, 1, TERN_RETAIN_GRAPH, status_));
  ok(tern_backward(&cube, &given, 1, 0, status_));
  ok(tern_tensor_grad(x, &grad, status_));
  const Doubles factors = values(given);
  for (size_t i = 0; i < 5; ++i) first[i] *= 2 * factors[i];
  expect_near(values(kept(grad)), first, 1e-12);
  ok(tern_tensor_zero_grad(x, status_));
  ok(tern_tensor_grad(x, &grad, status_));
  EXPECT_EQ(grad, nullptr);
  // Unused inputs, unknown flags, and nothing recorded.
  tern_tensor *other = tensor({1}, {1}), *nothing = nullptr;
  ok(tern_tensor_set_requires_grad(other, 1, status_));
  tern_tensor* fresh = nullptr;
  ok(tern_reduce(TERN_SUM, x, nullptr, 0, 0, &fresh, status_));
  kept(fresh);
  fails(tern_grad(&fresh, nullptr, 1, &other, 1, TERN_RETAIN_GRAPH, &nothing, status_), TERN_ERROR_FAILED, "");
  ok(tern_grad(&fresh, nullptr, 1, &other, 1, TERN_ALLOW_UNUSED | TERN_RETAIN_GRAPH, &nothing, status_));
  EXPECT_EQ(nothing, nullptr);
  fails(tern_grad(&fresh, nullptr, 1, &x, 1, 8, &nothing, status_), TERN_ERROR_ARGUMENT, "flags");
  fails(tern_backward(&fresh, nullptr, 1, TERN_ALLOW_UNUSED, status_), TERN_ERROR_ARGUMENT, "flags");
  fails(tern_backward(&fresh, nullptr, 0, 0, status_), TERN_ERROR_ARGUMENT, "count");
  int32_t before = -1, recorded = -1;
  ok(tern_set_grad_enabled(0, &before, status_));
  EXPECT_EQ(before, 1);
  ok(tern_unary(TERN_EXP, x, &square, status_));
  ok(tern_tensor_requires_grad(kept(square), &recorded, status_));
  EXPECT_EQ(recorded, 0);
  ok(tern_set_grad_enabled(1, &before, status_));
  EXPECT_EQ(before, 0);
  fails(tern_set_grad_enabled(2, nullptr, status_), TERN_ERROR_ARGUMENT, "0 or 1");
}

TEST_F(CApi, OpsAreThoseOfTheirNumbers) {
  const Doubles a{0.5, 2, 1.25}, b{2, 0.25, 1.25};
  tern_tensor *x = tensor(a, {3}), *y = tensor(b, {3});
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const std::vector<std::function<double(double)>> unary = {
      [](double v) { return -v; },
      [](double v) { return std::abs(v); },
      [](double v) { return std::exp(v); },
      [](double v) { return std::log(v); },
      [](double v) { return std::sqrt(v); },
      [](double v) { return v * v; },
      [](double v) { return 1 / v; },
      [](double v) { return std::sin(v); },
      [](double v) { return std::cos(v); },
      [](double v) { return std::tanh(v); },
      sigmoid,
      [](double v) { return std::max(v, 0.0); },
      [](double v) { return v * (1 + std::erf(v / std::sqrt(2.0))) / 2; },
      [&](double v) { return v * sigmoid(v); },
      [](double v) { return std::log1p(std::exp(v)); }};
  for (size_t op = 0; op < unary.size(); ++op) {
    tern_tensor* result = nullptr;
    ok(tern_unary(static_cast<int32_t>(op) + 1, x, &result, status_));
    expect_near(values(kept(result)), {unary[op](a[0]), unary[op](a[1]), unary[op](a[2])}, 1e-12);
  }
  const std::vector<std::function<double(double, double)>> binary = {
      [](double v, double w) { return v + w; },          [](double v, double w) { return v - w; },
      [](double v, double w) { return v * w; },          [](double v, double w) { return v / w; },
      [](double v, double w) { return std::pow(v, w); }, [](double v, double w) { return std::max(v, w); },
      [](double v, double w) { return std::min(v, w); }, [](double v, double w) { return v == w ? 1 : 0; },
      [](double v, double w) { return v < w ? 1 : 0; }};
  for (size_t op = 0; op < binary.size(); ++op) {
    tern_tensor* result = nullptr;
    ok(tern_binary(static_cast<int32_t>(op) + 1, x, y, &result, status_));
    expect_near(values(kept(result)), {binary[op](a[0], b[0]), binary[op](a[1], b[1]), binary[op](a[2], b[2])}, 1e-12);
  }
  const Doubles reduced{3.75, 1.25, 2, 0.5};
  for (int32_t op = TERN_SUM; op <= TERN_MIN; ++op) {
    tern_tensor* result = nullptr;
    ok(tern_reduce(op, x, nullptr, 0, 0, &result, status_));
    expect_near(values(kept(result)), {reduced[static_cast<size_t>(op) - 1]}, 1e-12);
  }
  tern_tensor* result = nullptr;
  fails(tern_unary(0, x, &result, status_), TERN_ERROR_ARGUMENT, "op");
  fails(tern_unary(16, x, &result, status_), TERN_ERROR_ARGUMENT, "op");
  fails(tern_binary(10, x, y, &result, status_), TERN_ERROR_ARGUMENT, "op");
  fails(tern_reduce(5, x, nullptr, 0, 0, &result, status_), TERN_ERROR_ARGUMENT, "op");
  ok(tern_scale(x, 3, -1, &result, status_));
  expect_near(values(kept(result)), {0.5, 5, 2.75}, 1e-12);
  // [2, 3] times [3, 1], plus what linear and the others do.
  tern_tensor *matrix = tensor({1, 2, 3, 4, 5, 6}, {2, 3}), *column = tensor(a, {3, 1}), *row = tensor(a, {1, 3});
  const Doubles product{1 * 0.5 + 2 * 2 + 3 * 1.25, 4 * 0.5 + 5 * 2 + 6 * 1.25};
  ok(tern_matmul(matrix, column, &result, status_));
  expect_near(values(kept(result)), product, 1e-12);
  ok(tern_linear(matrix, row, tensor({1}, {1}), &result, status_));
  expect_near(values(kept(result)), {product[0] + 1, product[1] + 1}, 1e-12);
  ok(tern_linear(matrix, row, nullptr, &result, status_));
  EXPECT_EQ(shape(kept(result)), (Sizes{2, 1}));
  const Sizes flat{-1, 2};
  ok(tern_reshape(matrix, flat.data(), 2, &result, status_));
  EXPECT_EQ(shape(kept(result)), (Sizes{3, 2}));
  ok(tern_slice(matrix, 1, 0, 3, 2, &result, status_));
  EXPECT_EQ(values(kept(result)), (Doubles{1, 3, 4, 6}));
  ok(tern_index_select(matrix, 1, tensor({2, 0, 2}, {3}, TERN_INT64), &result, status_));
  EXPECT_EQ(values(kept(result)), (Doubles{3, 1, 3, 6, 4, 6}));
  tern_tensor* both[] = {matrix, matrix};
  ok(tern_concatenate(both, 2, 0, &result, status_));
  EXPECT_EQ(shape(kept(result)), (Sizes{4, 3}));
  ok(tern_argmax(matrix, 1, &result, status_));
  EXPECT_EQ(values(kept(result)), (Doubles{2, 2}));
  ok(tern_softmax(x, 0, &result, status_));
  double sum = 0;
  for (const double v : a) sum += std::exp(v);
  expect_near(values(kept(result)), {std::exp(a[0]) / sum, std::exp(a[1]) / sum, std::exp(a[2]) / sum}, 1e-12);
}

TEST_F(CApi, LossesAreThoseOfTheirNumbers) {
  const Doubles p = random(6), t = random(6);
  tern_tensor *x = tensor(p, {2, 3}), *target = tensor(t, {2, 3}), *result = nullptr;
  double squares = 0, distances = 0, huber = 0;
  for (size_t i = 0; i < 6; ++i) {
    const double d = std::abs(p[i] - t[i]);
    squares += d * d;
    distances += d;
    huber += d < 0.5 ? d * d / 2 : 0.5 * (d - 0.25);
  }
  tern_loss_options options{};
  options.size = sizeof options;
  ok(tern_loss(TERN_MSE, x, target, nullptr, &result, status_));
  expect_near(values(kept(result)), {squares / 6}, 1e-12);
  options.reduction = TERN_REDUCE_SUM;
  ok(tern_loss(TERN_L1, x, target, &options, &result, status_));
  expect_near(values(kept(result)), {distances}, 1e-12);
  options.delta = 0.5;
  ok(tern_loss(TERN_HUBER, x, target, &options, &result, status_));
  expect_near(values(kept(result)), {huber}, 1e-12);
  fails(tern_loss(TERN_MSE, x, target, &options, &result, status_), TERN_ERROR_ARGUMENT, "delta");
  options = {.size = sizeof options, .reduction = TERN_REDUCE_MEAN, .label_smoothing = 0.1};
  const std::vector<size_t> classes{2, 0};
  double entropy = 0;
  for (size_t r = 0; r < 2; ++r) {
    double sum = 0;
    for (size_t c = 0; c < 3; ++c) sum += std::exp(p[3 * r + c]);
    for (size_t c = 0; c < 3; ++c)
      entropy -= (0.1 / 3 + (c == classes[r] ? 0.9 : 0)) * (p[3 * r + c] - std::log(sum)) / 2;
  }
  for (const tern_dtype dtype : {TERN_INT64, TERN_INT32}) {
    ok(tern_loss(TERN_CROSS_ENTROPY, x, tensor({2, 0}, {2}, dtype), &options, &result, status_));
    expect_near(values(kept(result)), {entropy}, 1e-12);
  }
  options = {.size = sizeof options, .reduction = TERN_REDUCE_NONE, .ignore_index = 2, .has_ignore_index = 1};
  ok(tern_loss(TERN_CROSS_ENTROPY, x, tensor({2, 0}, {2}, TERN_INT64), &options, &result, status_));
  EXPECT_EQ(values(kept(result))[0], 0);
  ok(tern_loss(TERN_BCE_WITH_LOGITS, x, tensor({0, 1, 0, 1, 1, 0}, {2, 3}), nullptr, &result, status_));
  double bce = 0;
  for (size_t i = 0; i < 6; ++i) bce += std::log1p(std::exp(i == 1 || i == 3 || i == 4 ? -p[i] : p[i])) / 6;
  expect_near(values(kept(result)), {bce}, 1e-12);
  fails(tern_loss(6, x, target, nullptr, &result, status_), TERN_ERROR_ARGUMENT, "loss");
  fails(tern_loss(TERN_MSE, x, tensor({1}, {1}), nullptr, &result, status_), TERN_ERROR_FAILED, "mse");
  fails(tern_loss(TERN_CROSS_ENTROPY, x, tensor({3, 0}, {2}, TERN_INT64), nullptr, &result, status_), TERN_ERROR_FAILED,
        "");
}

}  // namespace
}  // namespace tern::models
