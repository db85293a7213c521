#include "tern/nn/key_value_cache.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/tensor/size_checks.h"

namespace tern::nn {
namespace {

constexpr int64_t kFirstRoom = 16;

/// x [sequences, room, ...] with more room.
Tensor with_room(const Tensor& x, int64_t room) {
  const Tensor result = empty(x.shape().with(1, room), x.options());
  result.slice(1, 0, x.size(1)).copy_(x);
  return result;
}

}  // namespace

KeyValueCache::KeyValueCache(int64_t layers, int64_t sequences, const KeyValueCacheOptions& options)
    : capacity_(options.capacity), room_(options.capacity), device_(options.device) {
  TERN_CHECK(layers >= 1 && sequences >= 0 && capacity_ >= 0,
             "nn::KeyValueCache: expected at least 1 layer, 0 sequences and capacity 0 (none), got ", layers,
             " layers, ", sequences, " sequences and capacity ", capacity_);
  tern::detail::check_host_list("nn::KeyValueCache", layers, sizeof(Layer));
  tern::detail::check_host_list("nn::KeyValueCache", sequences, 16 * sizeof(int64_t));
  layers_.resize(static_cast<size_t>(layers));
  const std::vector<int64_t> none(static_cast<size_t>(sequences), 0);
  begin(none, none, true);
}

void KeyValueCache::check_complete(const char* what) const {
  for (size_t i = 0; i < layers_.size(); ++i)
    TERN_CHECK(layers_[i].written, "nn::KeyValueCache: ", what, " before layer ", i,
               " has the keys of the last extend(); call attention() of each of the ", layers_.size(),
               " layers, or truncate() or reset()");
}

int64_t KeyValueCache::room_for(int64_t tokens, int64_t sequences) const {
  int64_t room = capacity_ > 0 ? capacity_ : std::max(room_, kFirstRoom);
  while (room < tokens) room *= 2;
  TERN_CHECK(sequences == 0 || room <= INT32_MAX / sequences, "nn::KeyValueCache: ", sequences,
             " sequences with room for ", room,
             " tokens do not fit 32-bit offsets; choose a smaller capacity or fewer sequences");
  return room;
}

void KeyValueCache::extend(const std::vector<int64_t>& counts) {
  check_complete("extend()");
  TERN_CHECK(counts.size() == lengths_.size(), "nn::KeyValueCache: extend() of ", counts.size(),
             " sequences, the cache has ", lengths_.size());
  for (size_t s = 0; s < counts.size(); ++s) {
    TERN_CHECK(counts[s] >= 0 && counts[s] <= INT32_MAX, "nn::KeyValueCache: extend() of sequence ", s, " by ",
               counts[s], " tokens");
    const int64_t length = lengths_[s] + counts[s];
    TERN_CHECK(capacity_ == 0 || length <= capacity_, "nn::KeyValueCache: sequence ", s, " would have ", length,
               " tokens, the capacity is ", capacity_,
               "; stop there, truncate() or reset() the cache, or make one with a larger capacity or with none (0)");
  }
  begin(lengths_, counts, false);
}

/// Each sequence is followed by one without queries, whose keys are the room that is not used: so kernels, for which
/// sequences lie one after another, read the memory in place.
KeyValueCache::Step KeyValueCache::step_from(const std::vector<int64_t>& lengths, const std::vector<int64_t>& counts,
                                             int64_t room) const {
  std::vector<int64_t> query_lengths, key_lengths, positions, rows;
  for (size_t s = 0; s < counts.size(); ++s) {
    const int64_t end = lengths[s] + counts[s];
    query_lengths.insert(query_lengths.end(), {counts[s], 0});
    key_lengths.insert(key_lengths.end(), {end, room - end});
    for (int64_t position = lengths[s]; position < end; ++position) {
      positions.push_back(position);
      rows.push_back(static_cast<int64_t>(s) * room + position);
    }
  }
  const Shape shape = {static_cast<int64_t>(rows.size())};
  return {packed_layout(query_lengths, device_), packed_layout(key_lengths, device_),
          from_vector(positions, shape).to(device_), from_vector(rows, shape).to(device_)};
}

/// Changes nothing if it throws.
void KeyValueCache::begin(const std::vector<int64_t>& lengths, const std::vector<int64_t>& counts, bool written) {
  std::vector<int64_t> before = lengths, with = lengths;
  int64_t longest = 0, tokens = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    longest = std::max(longest, with[s] += counts[s]);
    tokens += counts[s];
  }
  tern::detail::check_host_list("nn::KeyValueCache", tokens, 4 * sizeof(int64_t));
  const int64_t room = room_for(longest, static_cast<int64_t>(counts.size()));
  step_ = step_from(lengths, counts, room);
  lengths_ = std::move(with);
  before_ = std::move(before);
  room_ = room;
  for (Layer& layer : layers_) layer.written = written;
}

void KeyValueCache::write(Layer& layer, const Tensor& k, const Tensor& v) const {
  const Shape shape = {sequences(), room_, k.size(1), k.size(2)};
  if (!layer.keys.defined()) {
    layer.keys = empty(shape, k.options());
    layer.values = empty(shape, k.options());
  }
  TERN_CHECK(layer.keys.dtype() == k.dtype() && layer.keys.size(2) == k.size(1) && layer.keys.size(3) == k.size(2),
             "nn::KeyValueCache: keys are ", k.describe(), ", this layer has ", layer.keys.dtype(), " with ",
             layer.keys.size(2), " heads of size ", layer.keys.size(3));
  for (Tensor* memory : {&layer.keys, &layer.values}) {
    if (memory->size(1) < room_) *memory = with_room(*memory, room_);
    Tensor all = memory->reshape({sequences() * room_, k.size(1), k.size(2)});
    all.index_copy_(0, step_.rows, memory == &layer.keys ? k : v);
  }
  layer.written = true;
}

/// For the sequences of step_from().
Tensor KeyValueCache::with_unused_room(const Tensor& bias) const {
  const int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
  TERN_CHECK(bias.dim() == 4 && (bias.size(0) == 1 || bias.size(0) == sequences()) &&
                 bias.size(2) == step_.queries.max_length && bias.size(3) == longest,
             "nn::KeyValueCache: the bias is ", bias.shape(), ", expected [", sequences(), " or 1, heads or 1, ",
             step_.queries.max_length, ", ", longest, "]: the most new tokens and the most tokens of a sequence");
  const Tensor padded = pad(bias, {0, step_.keys.max_length - longest});
  return bias.size(0) == 1 ? padded : repeat_interleave(padded, 2, 0);
}

Tensor KeyValueCache::attention(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v,
                                AttentionOptions options) {
  TERN_CHECK(layer >= 0 && layer < layers(), "nn::KeyValueCache: layer ", layer, " of ", layers());
  Layer& own = layers_[static_cast<size_t>(layer)];
  TERN_CHECK(!own.written, "nn::KeyValueCache: layer ", layer,
             " has no new tokens to take; call extend() once before each forward of the model");
  TERN_CHECK(q.dim() == 3 && k.dim() == 3 && k.shape() == v.shape() && k.dtype() == v.dtype() &&
                 q.size(0) == step_.rows.numel() && k.size(0) == step_.rows.numel(),
             "nn::KeyValueCache: expected q [", step_.rows.numel(), ", heads, head_dim] and k, v [", step_.rows.numel(),
             ", kv_heads, head_dim], one row for each new token, got ", q.shape(), ", ", k.shape(), ", ", v.shape());
  TERN_CHECK(k.device() == device_ && v.device() == device_, "nn::KeyValueCache: the cache is on ", device_,
             ", keys are on ", k.device(), "; KeyValueCacheOptions::device must be the model's");
  TERN_CHECK(!grad_enabled() || !(q.requires_grad() || k.requires_grad() || v.requires_grad()),
             "nn::KeyValueCache: the cache keeps no history, so gradients would be wrong; call the model under NoGrad");
  if (options.bias.defined()) options.bias = with_unused_room(options.bias);
  write(own, k, v);
  const auto flat = [](const Tensor& x) { return x.reshape({x.size(0) * x.size(1), x.size(2), x.size(3)}); };
  options.causal = true;
  return tern::attention(q, flat(own.keys), flat(own.values), step_.queries, step_.keys, options);
}

void KeyValueCache::reset() {
  const std::vector<int64_t> none(lengths_.size(), 0);
  begin(none, none, true);
}

void KeyValueCache::truncate(const std::vector<int64_t>& lengths) {
  TERN_CHECK(lengths.size() == lengths_.size(), "nn::KeyValueCache: truncate() of ", lengths.size(),
             " sequences, the cache has ", lengths_.size());
  bool undone = true;
  for (size_t s = 0; s < lengths.size(); ++s) {
    TERN_CHECK(lengths[s] >= 0 && lengths[s] <= lengths_[s], "nn::KeyValueCache: truncate() of sequence ", s, " to ",
               lengths[s], " tokens, it has ", lengths_[s]);
    undone = undone && lengths[s] <= before_[s];
  }
  if (!undone) check_complete("truncate()");
  begin(lengths, std::vector<int64_t>(lengths.size(), 0), true);
}

void KeyValueCache::select(const std::vector<int64_t>& sources) {
  check_complete("select()");
  std::vector<int64_t> lengths;
  for (const int64_t s : sources) {
    TERN_CHECK(s >= 0 && s < sequences(), "nn::KeyValueCache: select() of sequence ", s, ", the cache has ",
               sequences());
    lengths.push_back(lengths_[static_cast<size_t>(s)]);
  }
  const NoGrad off;
  const Tensor index = from_vector(sources, {static_cast<int64_t>(sources.size())}).to(device_);
  std::vector<Layer> layers = layers_;
  for (Layer& layer : layers) {
    if (!layer.keys.defined()) continue;
    layer.keys = index_select(layer.keys, 0, index);
    layer.values = index_select(layer.values, 0, index);
  }
  begin(lengths, std::vector<int64_t>(sources.size(), 0), true);
  layers_ = std::move(layers);
}

int64_t KeyValueCache::bytes() const {
  int64_t sum = 0;
  for (const Layer& layer : layers_)
    if (layer.keys.defined()) sum += layer.keys.nbytes() + layer.values.nbytes();
  return sum;
}

}  // namespace tern::nn
