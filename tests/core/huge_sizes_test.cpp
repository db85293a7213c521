// Every function of core that takes a size, a count or a list, given numbers far outside of what memory holds: it
// throws tern::Error or returns, without a loop or an allocation of that length.

#include "tern/tests/core/huge_sizes.h"

namespace tern::test {
namespace {

using Sizes = std::vector<int64_t>;

int64_t minus(int64_t n) { return n == INT64_MIN ? INT64_MAX : -n; }

Tensor line() { return ones({5}); }
Tensor matrix() { return ones({4, 6}); }
Tensor image() { return ones({1, 4, 6, 6}); }

std::vector<SizedCall> views() {
  return {{"reshape",
           [](int64_t n) {
             line().reshape({n, 5});
           }},
          {"reshape of nothing",
           [](int64_t n) {
             zeros({0}).reshape({n, 0});
           }},
          {"unflatten",
           [](int64_t n) {
             line().unflatten(0, {n, 5});
           }},
          {"expand",
           [](int64_t n) {
             ones({1}).expand({n, 1});
           }},
          {"expand twice",
           [](int64_t n) {
             ones({1, 1}).expand({n, n});
           }},
          {"slice from", [](int64_t n) { line().slice(0, n); }},
          {"slice to", [](int64_t n) { line().slice(0, 1, n); }},
          {"slice step", [](int64_t n) { line().slice(0, 1, 5, n); }},
          {"narrow start", [](int64_t n) { line().narrow(0, n, 1); }},
          {"narrow length", [](int64_t n) { line().narrow(0, 1, n); }},
          {"diagonal", [](int64_t n) { matrix().diagonal(n); }},
          {"diagonal below", [](int64_t n) { matrix().diagonal(minus(n)); }},
          {"select", [](int64_t n) { line().select(0, n); }},
          {"[]", [](int64_t n) { line()[n]; }},
          {"split", [](int64_t n) { line().split(n); }},
          {"split of a list",
           [](int64_t n) {
             line().split(Sizes{n, 5});
           }},
          {"chunk", [](int64_t n) { line().chunk(n); }},
          {"chunk of nothing", [](int64_t n) { zeros({0}).chunk(n); }},
          {"tensor_split", [](int64_t n) { line().tensor_split(n); }},
          {"tensor_split of nothing", [](int64_t n) { zeros({0}).tensor_split(n); }},
          {"tensor_split at",
           [](int64_t n) {
             line().tensor_split(Sizes{n, minus(n)});
           }},
          {"unbind", [](int64_t n) { ones({1}).expand({n}).unbind(); }},
          {"split into ones", [](int64_t n) { ones({1}).expand({n}).split(1); }},
          {"index number", [](int64_t n) { line().index({n}); }},
          {"index slice",
           [](int64_t n) {
             line().index({Slice{n, n, n}});
           }},
          {"index_put_", [](int64_t n) { line().index_put_({n}, 1.0); }},
          {"tril_", [](int64_t n) { matrix().tril_(n); }},
          {"triu_", [](int64_t n) { matrix().triu_(minus(n)); }}};
}

std::vector<SizedCall> factories() {
  return {
      {"empty", [](int64_t n) { empty({n}); }},
      {"empty of two",
       [](int64_t n) {
         empty({n, n});
       }},
      {"empty beside nothing",
       [](int64_t n) {
         empty({0, n, n});
       }},
      {"empty_pinned", [](int64_t n) { empty_pinned({n}, float64); }},
      {"zeros", [](int64_t n) { zeros({n}, {.dtype = float64}); }},
      {"full",
       [](int64_t n) {
         full({n, 3}, 2);
       }},
      {"eye", [](int64_t n) { eye(n); }},
      {"eye of no columns", [](int64_t n) { eye(n, 0), eye(0, n); }},
      {"linspace", [](int64_t n) { linspace(0, 1, n); }},
      {"arange", [](int64_t n) { arange(0, static_cast<double>(n)); }},
      {"arange step", [](int64_t n) { arange(0, 5, static_cast<double>(n)); }},
      {"rand", [](int64_t n) { rand({n}, default_generator()); }},
      {"randn", [](int64_t n) { randn({n}, default_generator()); }},
      {"randint", [](int64_t n) { randint(0, n, {3}, default_generator()); }},
      {"randint from", [](int64_t n) { randint(minus(n), n, {3}, default_generator()); }},
      {"randint of", [](int64_t n) { randint(0, 2, {n}, default_generator()); }},
      {"randperm", [](int64_t n) { randperm(n, default_generator()); }},
      {"multinomial", [](int64_t n) { multinomial(line(), n, default_generator()); }},
      {"multinomial again", [](int64_t n) { multinomial(line(), n, default_generator(), true); }},
      {"exponential", [](int64_t n) { exponential({n}, default_generator()); }},
      {"normal", [](int64_t n) { normal(0, 1, {n}, default_generator()); }},
      {"truncated_normal", [](int64_t n) { truncated_normal({n}, default_generator()); }},
      {"binomial", [](int64_t n) { binomial(full({3}, static_cast<double>(n)), full({3}, 0.5), default_generator()); }},
      {"from_vector", [](int64_t n) { from_vector(Sizes{1}, {n}); }},
      {"from_blob",
       [](int64_t n) {
         float x = 0;
         from_blob(&x, {n, n}, float32);
       }},
      {"from_storage", [](int64_t n) { from_storage(line().storage(), n, {2}, {1}, float32); }},
      {"from_storage strides",
       [](int64_t n) {
         from_storage(line().storage(), 0, {2, 2}, {n, n}, float32);
       }},
      {"tril_indices", [](int64_t n) { tril_indices(n, 3); }},
      {"triu_indices", [](int64_t n) { triu_indices(3, n, n); }},
      {"one_hot", [](int64_t n) { one_hot(arange(0, 3), n); }},
      {"one_hot of", [](int64_t n) { one_hot(from_vector(Sizes{n}, {1})); }}};
}

std::vector<SizedCall> rearrangements() {
  return {{"rot90", [](int64_t n) { rot90(matrix(), n); }},
          {"roll", [](int64_t n) { roll(line(), {n}); }},
          {"roll back",
           [](int64_t n) {
             roll(matrix(), {minus(n), n}, {0, 1});
           }},
          {"repeat", [](int64_t n) { repeat(line(), {n}); }},
          {"repeat twice",
           [](int64_t n) {
             repeat(line(), {n, n});
           }},
          {"repeat one", [](int64_t n) { repeat(ones({1}), {n}); }},
          {"repeat nothing",
           [](int64_t n) {
             repeat(zeros({0}), {n, n});
           }},
          {"repeat of 8",
           [](int64_t n) {
             repeat(ones({1, 1, 1, 1, 1, 1, 1, 2}), {1, 1, 1, 1, 1, 1, 1, n});
           }},
          {"tile", [](int64_t n) { tile(matrix(), {n}); }},
          {"repeat_interleave", [](int64_t n) { repeat_interleave(line(), n); }},
          {"repeat_interleave along", [](int64_t n) { repeat_interleave(matrix(), n, 1); }},
          {"repeat_interleave by one", [](int64_t n) { repeat_interleave(line(), from_vector(Sizes{n}, {1})); }},
          {"repeat_interleave by each",
           [](int64_t n) {
             repeat_interleave(line(), from_vector(Sizes{n, n, n, n, n}, {5}));
           }},
          {"pad",
           [](int64_t n) {
             pad(line(), {n, n});
           }},
          {"pad away",
           [](int64_t n) {
             pad(line(), {minus(n), n});
           }},
          {"pad reflect",
           [](int64_t n) {
             pad(image(), {n, 0}, PadMode::kReflect);
           }},
          {"pad replicate",
           [](int64_t n) {
             pad(image(), {n, n, n, n}, PadMode::kReplicate);
           }},
          {"pad circular",
           [](int64_t n) {
             pad(image(), {0, n}, PadMode::kCircular);
           }},
          {"tril", [](int64_t n) { tril(matrix(), n); }},
          {"triu", [](int64_t n) { triu(matrix(), minus(n)); }},
          {"diag", [](int64_t n) { diag(line(), n); }},
          {"diag of a matrix", [](int64_t n) { diag(matrix(), minus(n)); }},
          {"diag_embed", [](int64_t n) { diag_embed(line(), n); }},
          {"combinations", [](int64_t n) { combinations(line(), n); }},
          {"combinations again", [](int64_t n) { combinations(line(), n, true); }},
          {"combinations of nothing", [](int64_t n) { combinations(zeros({0}), n, true); }},
          {"vander", [](int64_t n) { vander(line(), n); }},
          {"vander of nothing", [](int64_t n) { vander(zeros({0}), n); }},
          {"meshgrid",
           [](int64_t n) {
             meshgrid({ones({1}).expand({n}), ones({1}).expand({n})});
           }},
          {"cartesian_prod",
           [](int64_t n) {
             cartesian_prod({ones({1}).expand({n}), ones({1}).expand({n})});
           }},
          {"cat",
           [](int64_t n) {
             cat({ones({1}).expand({n}), ones({1}).expand({n})});
           }},
          {"stack",
           [](int64_t n) {
             stack({ones({1}).expand({n}), ones({1}).expand({n})});
           }},
          {"block_diag",
           [](int64_t n) {
             block_diag({ones({1, 1}).expand({n, 1}), ones({1, 1}).expand({1, n})});
           }},
          {"broadcast_tensors",
           [](int64_t n) {
             broadcast_tensors({ones({1}).expand({n, 1}), ones({1}).expand({n})});
           }},
          {"unravel_index",
           [](int64_t n) {
             unravel_index(arange(0, 3), {n, 2});
           }},
          {"unravel_index of", [](int64_t n) {
             unravel_index(from_vector(Sizes{n}, {1}), {3, 2});
           }}};
}

std::vector<SizedCall> orders() {
  return {{"topk", [](int64_t n) { topk(line(), n); }},
          {"kthvalue", [](int64_t n) { kthvalue(line(), n); }},
          {"diff", [](int64_t n) { diff(line(), n); }},
          {"bincount", [](int64_t n) { bincount(arange(0, 3), {}, n); }},
          {"bincount of", [](int64_t n) { bincount(from_vector(Sizes{n}, {1})); }},
          {"histc", [](int64_t n) { histc(line(), n); }},
          {"histogram", [](int64_t n) { histogram(line(), n); }},
          {"matrix_power", [](int64_t n) { matrix_power(eye(3), n); }},
          {"embedding", [](int64_t n) { embedding(matrix(), from_vector(Sizes{n}, {1})); }},
          {"embedding padding", [](int64_t n) { embedding(matrix(), arange(0, 2), n); }},
          {"gather", [](int64_t n) { gather(line(), 0, from_vector(Sizes{n}, {1})); }},
          {"scatter", [](int64_t n) { scatter(line(), 0, from_vector(Sizes{n}, {1}), 1.0); }},
          {"take", [](int64_t n) { take(line(), from_vector(Sizes{n}, {1})); }},
          {"einsum",
           [](int64_t n) {
             einsum("i,j->ij", {ones({1}).expand({n}), ones({1}).expand({n})});
           }},
          {"outer",
           [](int64_t n) {
             ones({1, 1}).expand({n, 1}) * ones({1}).expand({n});
           }},
          {"matmul", [](int64_t n) {
             matmul(ones({1, 1}).expand({n, 1}), ones({1, 1}).expand({1, n}));
           }}};
}

std::vector<SizedCall> images() {
  const Tensor ones_1d = ones({1, 2, 8});
  return {{"unfold kernel", [](int64_t n) { unfold(image(), n); }},
          {"unfold stride", [](int64_t n) { unfold(image(), 2, {.stride = n}); }},
          {"unfold padding", [](int64_t n) { unfold(image(), 2, {.padding = n}); }},
          {"unfold dilation", [](int64_t n) { unfold(image(), 2, {.dilation = n}); }},
          {"fold size",
           [](int64_t n) {
             fold(ones({1, 4, 9}), n, 2);
           }},
          {"fold kernel",
           [](int64_t n) {
             fold(ones({1, 4, 9}), 4, n);
           }},
          {"fold padding",
           [](int64_t n) {
             fold(ones({1, 4, 9}), 4, 2, {.padding = n});
           }},
          {"pixel_shuffle", [](int64_t n) { pixel_shuffle(image(), n); }},
          {"pixel_unshuffle", [](int64_t n) { pixel_unshuffle(image(), n); }},
          {"channel_shuffle", [](int64_t n) { channel_shuffle(image(), n); }},
          {"max_pool2d", [](int64_t n) { max_pool2d(image(), n); }},
          {"max_pool2d stride", [](int64_t n) { max_pool2d(image(), 2, {.stride = n}); }},
          {"max_pool2d padding", [](int64_t n) { max_pool2d(image(), 2, {.padding = n}); }},
          {"max_pool2d dilation", [](int64_t n) { max_pool2d(image(), 2, {.dilation = n}); }},
          {"avg_pool2d", [](int64_t n) { avg_pool2d(image(), n); }},
          {"avg_pool2d padding", [](int64_t n) { avg_pool2d(image(), 2, {.padding = n}); }},
          {"avg_pool2d divisor", [](int64_t n) { avg_pool2d(image(), 2, {.divisor_override = n}); }},
          {"lp_pool2d", [](int64_t n) { lp_pool2d(image(), 2, n); }},
          {"adaptive_avg_pool2d", [](int64_t n) { adaptive_avg_pool2d(image(), n); }},
          {"adaptive_max_pool2d", [](int64_t n) { adaptive_max_pool2d(image(), n); }},
          {"adaptive_avg_pool3d",
           [](int64_t n) {
             adaptive_avg_pool3d(ones({1, 1, 2, 2, 2}), n);
           }},
          {"max_unpool2d",
           [](int64_t n) {
             max_unpool2d(image(), zeros({1, 4, 6, 6}, {int64}), n);
           }},
          {"max_unpool2d size",
           [](int64_t n) {
             max_unpool2d(image(), zeros({1, 4, 6, 6}, {int64}), 2, {.size = Sizes{n, n}});
           }},
          {"interpolate", [](int64_t n) { interpolate(image(), {.size = n}); }},
          {"interpolate scale", [](int64_t n) { interpolate(image(), {.scale_factor = {static_cast<double>(n)}}); }},
          {"interpolate cubic",
           [](int64_t n) { interpolate(image(), {.size = n, .mode = InterpolateMode::kCubic, .antialias = true}); }},
          {"conv1d stride",
           [=](int64_t n) {
             conv1d(ones_1d, ones({2, 2, 3}), {}, {.stride = n});
           }},
          {"conv1d padding",
           [=](int64_t n) {
             conv1d(ones_1d, ones({2, 2, 3}), {}, {.padding = n});
           }},
          {"conv1d dilation",
           [=](int64_t n) {
             conv1d(ones_1d, ones({2, 2, 3}), {}, {.dilation = n});
           }},
          {"conv1d groups",
           [=](int64_t n) {
             conv1d(ones_1d, ones({2, 2, 3}), {}, {.groups = n});
           }},
          {"conv_transpose1d stride",
           [=](int64_t n) {
             conv_transpose1d(ones_1d, ones({2, 2, 3}), {}, {.stride = n});
           }},
          {"conv_transpose1d padding",
           [=](int64_t n) {
             conv_transpose1d(ones_1d, ones({2, 2, 3}), {}, {.padding = n});
           }},
          {"conv_transpose1d output_padding",
           [=](int64_t n) {
             conv_transpose1d(ones_1d, ones({2, 2, 3}), {}, {.output_padding = n});
           }},
          {"conv_transpose1d dilation",
           [=](int64_t n) {
             conv_transpose1d(ones_1d, ones({2, 2, 3}), {}, {.dilation = n});
           }},
          {"conv_transpose1d groups",
           [=](int64_t n) {
             conv_transpose1d(ones_1d, ones({2, 2, 3}), {}, {.groups = n});
           }},
          {"affine_grid",
           [](int64_t n) {
             affine_grid(ones({1, 2, 3}), {1, 1, n, n});
           }},
          {"drop_block2d", [](int64_t n) { drop_block2d(image(), n, {.p = 0.1, .generator = &default_generator()}); }},
          {"group_norm", [](int64_t n) { group_norm(image(), n); }},
          {"local_response_norm", [](int64_t n) { local_response_norm(image(), n); }}};
}

std::vector<SizedCall> sequences() {
  return {{"padded_layout", [](int64_t n) { padded_layout(n, 3); }},
          {"padded_layout length", [](int64_t n) { padded_layout(3, n); }},
          {"packed_layout",
           [](int64_t n) {
             packed_layout({n, n});
           }},
          {"sequence_positions", [](int64_t n) { sequence_positions(packed_layout({3}), n); }},
          {"attention window",
           [](int64_t n) {
             self_attention(ones({3, 3, 1, 4}), packed_layout({3}), {.window = n});
           }},
          {"RecurrentLayout packed", [](int64_t n) { RecurrentLayout::packed({n}); }},
          {"RecurrentLayout packed two",
           [](int64_t n) {
             RecurrentLayout::packed({n, n});
           }},
          {"RecurrentLayout of offsets",
           [](int64_t n) {
             SequenceLayout layout;
             layout.offsets = from_vector(Sizes{0, n}, {2});
             RecurrentLayout::packed(layout);
           }},
          {"RecurrentLayout padded", [](int64_t n) { RecurrentLayout::padded(n, 3, true); }},
          {"RecurrentLayout padded steps", [](int64_t n) { RecurrentLayout::padded(3, n, false); }},
          {"RecurrentLayout padded both", [](int64_t n) { RecurrentLayout::padded(n, n, false); }},
          {"RecurrentLayout padded nothing", [](int64_t n) { RecurrentLayout::padded(0, n, true); }},
          {"cross_entropy", [](int64_t n) { cross_entropy(matrix(), zeros({4}, {int64}), {.ignore_index = n}); }},
          {"ctc_loss blank",
           [](int64_t n) {
             ctc_loss(log_softmax(ones({5, 1, 3})), ones({1, 2}, {int64}), from_vector(Sizes{5}, {1}),
                      from_vector(Sizes{2}, {1}), {.blank = n});
           }},
          {"ctc_loss lengths", [](int64_t n) {
             ctc_loss(log_softmax(ones({5, 1, 3})), ones({1, 2}, {int64}), from_vector(Sizes{n}, {1}),
                      from_vector(Sizes{n}, {1}));
           }}};
}

TEST(HugeSizes, AreErrorsOrNoWork) {
  expect_errors_or_no_work({views(), factories(), rearrangements(), orders(), images(), sequences()});
}

/// What must not only return: sizes whose product wraps around would give a result of another size.
TEST(HugeSizes, ProductsThatWrapAroundAreErrors) {
  const int64_t half = int64_t{1} << 32;
  const auto wraps = [](const auto& call) { expect_error(call, {}); };
  wraps([&] { RecurrentLayout::padded(half, half, true); });
  wraps([&] { RecurrentLayout::packed({INT64_MAX, 2}); });
  wraps([&] { repeat_interleave(line(), from_vector(Sizes{INT64_MAX, INT64_MAX, 7, 1, 1}, {5})); });
  wraps([&] { repeat_interleave(ones({3}), from_vector(Sizes{int64_t{1} << 62}, {1})); });
  wraps([&] { combinations(ones({100}), 50); });
  wraps([&] { combinations(ones({70}), 35, true); });
  wraps([&] { bincount(from_vector(Sizes{INT64_MAX}, {1})); });
  wraps([&] { one_hot(from_vector(Sizes{INT64_MAX}, {1})); });
  wraps([&] { diag_embed(line(), int64_t{1} << 50); });
  wraps([&] { line().tensor_split(INT64_MAX); });
}

}  // namespace
}  // namespace tern::test
