#pragma once
// The contract of attention: a case and its tensors. The definition and the bounds: attention_definition.h.

#include <sstream>
#include <utility>

#include "tern/kernels/attention.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels::attention_test {

/// A call without its tensors.
struct Case {
  DType dtype = float32;
  std::vector<int32_t> query_offsets, key_offsets;
  int64_t heads = 1, kv_heads = 1, head_dim = 8, spare_tokens = 0, misalignment = 0;
  double scale = 1;
  bool causal = false, fused = false, masked = false, keyed_rows = false;
  int64_t window = -1, bias_sequences = 0, bias_heads = 0;  // bias_sequences == 0: no bias
  Dropout dropout;
  uint64_t seed = 0;

  int64_t sequences() const { return static_cast<int64_t>(query_offsets.size()) - 1; }
  int64_t query_tokens() const { return query_offsets.back() + spare_tokens; }
  int64_t key_tokens() const { return key_offsets.back() + spare_tokens; }
  bool has_bias() const { return bias_sequences > 0; }
  DType compute_type() const { return dtype == float64 ? float64 : float32; }
  static int64_t longest(const std::vector<int32_t>& offsets) {
    int64_t result = 0;
    for (size_t i = 1; i < offsets.size(); ++i) result = std::max<int64_t>(result, offsets[i] - offsets[i - 1]);
    return result;
  }
};

inline std::string describe(const Case& c) {
  std::ostringstream s;
  s << name_of(c.dtype) << " queries";
  for (int32_t o : c.query_offsets) s << ' ' << o;
  s << " keys";
  for (int32_t o : c.key_offsets) s << ' ' << o;
  s << " heads " << c.heads << '/' << c.kv_heads << " d " << c.head_dim << (c.causal ? " causal" : "") << " scale "
    << c.scale << " window " << c.window << (c.masked ? " masked" : "") << (c.fused ? " fused" : "")
    << " misaligned by " << c.misalignment << " bias " << c.bias_sequences << 'x' << c.bias_heads << " p "
    << c.dropout.p << " seed " << c.seed;
  return s.str();
}

/// A tensor [tokens, heads, head_dim] within the rows of an array.
struct Heads {
  std::shared_ptr<Array> array;
  View view;
  /// Element `e` of a token's head; e may reach into the heads that follow.
  double at(int64_t token, int64_t head, int64_t e) const { return Array::read(view, index(token, head, e)); }
  void set(int64_t token, int64_t head, int64_t e, double value) { Array::write(view, index(token, head, e), value); }
  void fill(double value) {
    for (int64_t i = 0; i < view.numel(); ++i) Array::write(view, i, value);
  }
  View on(Call& call) { return call(*array, view); }
  ConstView on(Call& call) const { return call(std::as_const(*array), ConstView(view)); }

 private:
  int64_t index(int64_t token, int64_t head, int64_t e) const {
    return (token * view.shape[1] + head) * view.shape[2] + e;
  }
};

/// All results of a call in fp64.
struct Results {
  std::vector<double> out, lse, dq, dk, dv, dbias;
};
inline const std::vector<std::pair<const char*, std::vector<double> Results::*>> kParts = {
    {"out", &Results::out}, {"lse", &Results::lse}, {"dq", &Results::dq},
    {"dk", &Results::dk},   {"dv", &Results::dv},   {"dbias", &Results::dbias}};

/// Inputs and outputs of one call.
struct Trial {
  Case c;
  Heads q, k, v, dq, dk, dv, out, dout;
  Array bias, lse, dbias;
  std::vector<uint8_t> mask;
  std::vector<int64_t> row_keys;

  explicit Trial(const Case& config)
      : c(config),
        bias(c.dtype, bias_shape(), kAllOrders[c.seed % kAllOrders.size()]),
        lse(c.compute_type(), {c.heads, c.query_tokens()}),
        dbias(c.compute_type(), bias_shape()) {
    place(q, k, v);
    place(dq, dk, dv);
    out = slice(rows(c.query_tokens(), c.heads * c.head_dim), c.query_tokens(), 0, c.heads);
    dout = slice(rows(c.query_tokens(), c.heads * c.head_dim), c.query_tokens(), 0, c.heads);
    std::mt19937_64 random(c.seed);
    std::normal_distribution<double> normal;
    for (Array* array : {q.array.get(), k.array.get(), v.array.get(), dout.array.get(), &bias})
      for (int64_t i = 0; i < array->numel(); ++i) array->set(i, normal(random));
    if (c.masked) choose_mask(random);
    if (c.keyed_rows) row_keys.resize(c.query_tokens());
    for (int64_t& key : row_keys) key = static_cast<int64_t>(random());
  }

  void forward(Call& on) {
    const AttentionParams p = params(on);
    void* const workspace = on.workspace(attention_forward_workspace(on.stream(), p, c.dtype));
    attention_forward(on.stream(), p, std::as_const(q).on(on), std::as_const(k).on(on), std::as_const(v).on(on),
                      out.on(on), on(lse), workspace);
  }
  void backward(Call& on) {
    const AttentionParams p = params(on);
    void* const workspace = on.workspace(attention_backward_workspace(on.stream(), p, c.dtype));
    attention_backward(on.stream(), p, std::as_const(q).on(on), std::as_const(k).on(on), std::as_const(v).on(on),
                       std::as_const(out).on(on), std::as_const(dout).on(on), on(std::as_const(lse)), dq.on(on),
                       dk.on(on), dv.on(on), on.when(c.has_bias(), dbias), workspace);
  }
  /// Both, with garbage in all results and marks around them before.
  void call(Call& on) {
    for (const Heads* heads : {&out, &dq, &dk, &dv}) mark(heads->array->view());
    for (const View& view : written()) Array::set_bytes(view, static_cast<char>(garbage_byte));
    forward(on);
    backward(on);
  }
  void run() {
    run_kernel([&](Call& on) { call(on); });
  }
  void run_in_every_way() {
    std::vector<Array*> arrays = {out.array.get(), dq.array.get(), dk.array.get(), dv.array.get(), &lse, &dbias};
    expect_same_in_every_run(arrays, [&](Call& on) { call(on); });
  }

  Results results() const {
    return {values_of(out.view), lse.values(),       values_of(dq.view),
            values_of(dk.view),  values_of(dv.view), c.has_bias() ? dbias.values() : std::vector<double>()};
  }
  /// Expects that nothing around the results was written, and destroys them.
  void expect_only_results_written() {
    for (const View& view : written()) mark(view);
    for (const Heads* heads : {&out, &dq, &dk, &dv}) expect_gaps_untouched(*heads->array, {});
  }

 private:
  Shape bias_shape() const {
    return {c.bias_sequences, c.bias_heads, Case::longest(c.query_offsets), Case::longest(c.key_offsets)};
  }
  std::shared_ptr<Array> rows(int64_t tokens, int64_t row) const {
    return std::make_shared<Array>(c.dtype, Shape{c.misalignment + tokens * row});
  }
  Heads slice(std::shared_ptr<Array> array, int64_t tokens, int64_t first_head, int64_t heads) const {
    const int64_t row = tokens == 0 ? 0 : (array->numel() - c.misalignment) / tokens;
    const int64_t shape[] = {tokens, heads, c.head_dim}, strides[] = {row, c.head_dim, 1};
    char* const start = array->view().as<char>() + (c.misalignment + first_head * c.head_dim) * size_of(c.dtype);
    return {std::move(array), View(start, c.dtype, 3, shape, strides)};
  }
  /// Queries, keys and values, or their gradients: one row per token, which contains all heads of q, then k, then v; or
  /// arrays with a gap after each row.
  void place(Heads& queries, Heads& keys, Heads& values) const {
    const int64_t qt = c.query_tokens(), kt = c.key_tokens(), d = c.head_dim, gap = c.misalignment;
    if (c.fused) {
      const auto array = rows(qt, (c.heads + 2 * c.kv_heads) * d);
      queries = slice(array, qt, 0, c.heads);
      keys = slice(array, qt, c.heads, c.kv_heads);
      values = slice(array, qt, c.heads + c.kv_heads, c.kv_heads);
    } else {
      queries = slice(rows(qt, c.heads * d + gap), qt, 0, c.heads);
      keys = slice(rows(kt, c.kv_heads * d + gap), kt, 0, c.kv_heads);
      values = slice(rows(kt, c.kv_heads * d + gap), kt, 0, c.kv_heads);
    }
  }
  void choose_mask(std::mt19937_64& random) {
    mask.resize(c.key_tokens());
    const int style = static_cast<int>(random() % 3);  // scattered, whole sequences in places, padding at the end
    for (int64_t s = 0; s < c.sequences(); ++s) {
      const int64_t length = c.key_offsets[s + 1] - c.key_offsets[s],
                    valid = static_cast<int64_t>(random() % static_cast<uint64_t>(length + 1));
      for (int64_t i = 0; i < length; ++i)
        mask[c.key_offsets[s] + i] = style == 0 ? random() % 3 != 0 : style == 1 ? s % 2 : i < valid;
    }
  }
  std::vector<View> written() { return {out.view, dq.view, dk.view, dv.view, lse.view(), dbias.view()}; }

  AttentionParams params(Call& on) const {
    AttentionParams p;
    p.sequences = c.sequences();
    p.query_offsets = on.memory(c.query_offsets.data(), c.sequences() + 1);
    const bool self = c.key_offsets == c.query_offsets;
    p.key_offsets = self ? p.query_offsets : on.memory(c.key_offsets.data(), c.sequences() + 1);
    p.max_query_length = Case::longest(c.query_offsets);
    p.max_key_length = Case::longest(c.key_offsets);
    p.heads = c.heads;
    p.kv_heads = c.kv_heads;
    p.head_dim = c.head_dim;
    p.scale = c.scale;
    p.causal = c.causal;
    p.window = c.window;
    p.key_mask = c.masked ? on.memory(mask.data(), c.key_tokens()) : nullptr;
    p.bias = on.when(c.has_bias(), bias);
    p.dropout = {c.dropout.p, on.key(c.dropout.key)};
    p.row_keys = c.keyed_rows ? on.memory(row_keys.data(), c.query_tokens()) : nullptr;
    return p;
  }
};

}  // namespace tern::kernels::attention_test
