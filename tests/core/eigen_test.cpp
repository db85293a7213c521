// Eigen's maps of tensors: the same memory, and Eigen's arithmetic gives what Tern's does.

#include "tern/core/interop/eigen.h"

#include <Eigen/LU>

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

TEST(EigenMaps, AreTheTensorsMemory) {
  const Tensor x = arange(0, 6).reshape({2, 3}).to(float32);
  auto matrix = eigen_map<float>(x);
  EXPECT_EQ(matrix.data(), x.data<float>());
  EXPECT_EQ(matrix.rows(), 2);
  EXPECT_EQ(matrix.cols(), 3);
  EXPECT_EQ(matrix(1, 0), 3);
  matrix(1, 2) = 50;
  matrix.row(0) *= 2;
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 2, 4, 3, 4, 50}));
  x.clone();
  Tensor(x).zero_();
  EXPECT_EQ(matrix.sum(), 0);
}

TEST(EigenMaps, EveryType) {
  const Tensor x = arange(0, 2).reshape({1, 2});
  EXPECT_EQ(eigen_map<double>(x.to(float64))(0, 1), 1);
  EXPECT_EQ(eigen_map<int64_t>(x)(0, 1), 1);
  EXPECT_EQ(eigen_map<int32_t>(x.to(int32))(0, 1), 1);
  EXPECT_EQ(eigen_map<uint8_t>(x.to(uint8))(0, 1), 1);
  EXPECT_EQ(eigen_map<bool>(x.to(boolean))(0, 1), true);
  const Tensor half = x.to(float16) * 1.5, brain = x.to(bfloat16) * -2.5;
  EXPECT_EQ(static_cast<float>(eigen_map<Eigen::half>(half)(0, 1)), 1.5f);
  EXPECT_EQ(static_cast<float>(eigen_map<Eigen::bfloat16>(brain)(0, 1)), -2.5f);
}

TEST(EigenMaps, Views) {
  const Tensor whole = arange(0, 24).reshape({4, 6});
  const Tensor rows = whole.slice(0, 1, 4, 2).slice(1, 2, 5);  // rows 1 and 3, columns 2 to 4
  const auto matrix = eigen_map<int64_t>(rows);
  EXPECT_EQ(matrix(0, 0), 8);
  EXPECT_EQ(matrix(1, 2), 22);
  const auto turned = eigen_strided_map<int64_t>(rows.t());
  EXPECT_EQ(turned.rows(), 3);
  EXPECT_EQ(turned(2, 1), 22);
  EXPECT_EQ(turned, eigen_map<int64_t>(rows).transpose());
  const auto column = eigen_vector_map<int64_t>(whole.select(1, 2));
  EXPECT_EQ(column, (Eigen::Matrix<int64_t, 4, 1>(2, 8, 14, 20)));
  EXPECT_EQ(column.dot(column), 4 + 64 + 196 + 400);
  EXPECT_EQ(eigen_map<int64_t>(whole.slice(1, 3, 4))(3, 0), 21);  // a column: a stride without effect
  EXPECT_EQ(eigen_map<int64_t>(whole.slice(0, 3))(0, 5), 23);
  EXPECT_EQ(eigen_map<int64_t>(whole[2].expand({5, 6}))(4, 5), 17);
  EXPECT_EQ(eigen_map<float>(empty({0, 3})).rows(), 0);
  EXPECT_EQ(eigen_map<float>(empty({3, 0})).cols(), 0);
  EXPECT_EQ(eigen_vector_map<float>(empty({0})).size(), 0);
}

TEST(EigenMaps, ProductsAndSolutions) {
  Generator generator(fresh_seed());
  const Tensor a = randn({9, 9}, generator, {.dtype = float64}), b = randn({9, 4}, generator, {.dtype = float64});
  Tensor product = empty({9, 4}, {.dtype = float64});
  eigen_map<double>(product).noalias() = eigen_map<double>(a) * eigen_map<double>(b);
  expect_near(product, matmul(a, b), 1e-12);
  eigen_map<double>(product) = eigen_strided_map<double>(a.t()) * eigen_map<double>(b);
  expect_near(product, matmul(a.t(), b), 1e-12);
  Tensor solution = empty({9, 4}, {.dtype = float64});
  const Tensor regular = a + 20 * eye(9, {.dtype = float64});
  eigen_map<double>(solution) = eigen_map<double>(regular).partialPivLu().solve(eigen_map<double>(b));
  expect_near(matmul(regular, solution), b, 1e-12);
}

TEST(EigenMaps, MatricesOfEigenAsTensors) {
  int released = 0;
  const auto m = std::make_shared<Eigen::MatrixXf>(2, 3);
  *m << 1, 2, 3, 4, 5, 6;
  {
    const Tensor x =
        from_blob(m->data(), {m->rows(), m->cols()}, {1, m->outerStride()}, float32, [m, &released] { ++released; });
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    Tensor(x[1]).fill_(0);
    EXPECT_EQ(m->row(1).sum(), 0);
    EXPECT_EQ(eigen_map<float>(x.t()).transpose(), *m);
  }
  EXPECT_EQ(released, 1);
}

TEST(EigenMaps, WhatCannotBeMapped) {
  const Tensor x = ones({2, 3});
  expect_error([&] { eigen_map<double>(x); }, {"eigen_map", "float32 [2, 3]", "not float64"});
  expect_error([&] { eigen_map<Eigen::half>(x); }, {"not float16"});
  expect_error([&] { eigen_map<float>(x[0]); }, {"2 dimensions", "[3]"});
  expect_error([&] { eigen_vector_map<float>(x); }, {"1 dimension,", "[2, 3]"});
  expect_error([&] { eigen_strided_map<float>(Tensor()); }, {"undefined"});
  expect_error([&] { eigen_map<float>(x.t()); }, {"3 apart", "transpose()", "contiguous()"});
}

}  // namespace
}  // namespace tern::test
