#include "tern/core/ops/recurrent/layout.h"

#include <algorithm>
#include <numeric>

#include "tern/core/device/capture_state.h"
#include "tern/core/ops/indexing/scatter.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/tensor/size_checks.h"

namespace tern {

namespace {

/// The position of each value: indices that undo those of `order`, a permutation.
Tensor inverse_of(const Tensor& order) {
  const Tensor places = arange(0, static_cast<double>(order.numel()), 1, order.options());
  return index_copy(places, 0, order, places);
}

}  // namespace

RecurrentLayout RecurrentLayout::packed(const std::vector<int64_t>& lengths, Device device) {
  auto data = std::make_shared<Data>();
  std::vector<int64_t> first, order(lengths.size());
  for (const int64_t length : lengths) {
    TERN_CHECK(length > 0, "recurrent: sequence ", first.size(), " has length ", length,
               ", expected at least 1; leave empty sequences out");
    first.push_back(data->rows);
    data->rows = detail::checked_sum("recurrent: the lengths", data->rows, length);
  }
  if (!lengths.empty()) detail::check_host_list("recurrent", *std::max_element(lengths.begin(), lengths.end()));
  if (device.is_cuda()) detail::forbid_while_recording("a recurrent layer of packed sequences");
  const auto batch = static_cast<int64_t>(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
  data->lengths = lengths;
  int64_t running = batch;
  for (int64_t t = 0; batch > 0 && t < lengths[order[0]]; ++t) {
    while (lengths[order[running - 1]] <= t) --running;
    data->counts.push_back(running);
  }
  for (const int64_t i : order) {
    data->sorted.push_back(lengths[i]);
    data->first.push_back(first[i]);
    data->last.push_back(first[i] + lengths[i] - 1);
  }
  const auto on_device = [&](const std::vector<int64_t>& values) { return from_vector(values, {batch}).to(device); };
  data->order = on_device(order);
  data->first_rows = on_device(data->first);
  data->last_rows = on_device(data->last);
  RecurrentLayout layout;
  layout.data_ = std::move(data);
  return layout;
}

RecurrentLayout RecurrentLayout::packed(const SequenceLayout& layout) {
  const Tensor& offsets = layout.offsets;
  TERN_CHECK(offsets.defined() && offsets.dim() == 1 && offsets.numel() >= 1 &&
                 (offsets.dtype() == DType::kInt32 || offsets.dtype() == DType::kInt64),
             "recurrent: offsets must be int32 [sequences + 1], got ",
             offsets.defined() ? offsets.describe() : "an undefined tensor");
  TERN_CHECK(!layout.key_mask.defined(),
             "recurrent: a layout with a key_mask has padding, which is a sequence's part here; pack the sequences");
  if (offsets.device().is_cuda()) detail::forbid_while_recording("a recurrent layer of packed sequences");
  const std::vector<int64_t> at = offsets.to_vector<int64_t>();
  TERN_CHECK(at[0] == 0, "recurrent: offsets must begin with 0, got ", at[0]);
  std::vector<int64_t> lengths;
  for (size_t s = 1; s < at.size(); ++s) {
    TERN_CHECK(at[s] > at[s - 1], "recurrent: offsets must ascend by at least 1, got ", at[s - 1], " and ", at[s],
               " for sequence ", s - 1, "; leave empty sequences out");
    lengths.push_back(at[s] - at[s - 1]);
  }
  return packed(lengths, offsets.device());
}

RecurrentLayout RecurrentLayout::padded(int64_t batch, int64_t steps, bool batch_first, Device device) {
  TERN_CHECK(batch >= 0 && steps >= 1, "recurrent: expected sequences of at least one step, got batch ", batch, " and ",
             steps, " steps");
  if (batch > 0)
    detail::check_host_list("recurrent", detail::checked_sum("recurrent", steps, 4 * std::min(batch, INT64_MAX / 8)));
  auto data = std::make_shared<Data>();
  const int64_t next = batch_first ? steps : 1;  // sequence's first row
  data->lengths.assign(static_cast<size_t>(batch), steps);
  data->sorted = data->lengths;
  data->batch_first = batch_first;
  data->padded = true;
  data->counts.assign(static_cast<size_t>(batch > 0 ? steps : 0), batch);
  data->rows = detail::checked_product("recurrent: the rows of a padded batch", batch, steps);
  data->stride = batch_first ? 1 : batch;
  for (int64_t b = 0; b < batch; ++b) {
    data->first.push_back(b * next);
    data->last.push_back(b * next + (steps - 1) * data->stride);
  }
  // Nothing is copied from the host, so that a captured step may contain the layer.
  data->order = arange(0, static_cast<double>(batch), 1, {.dtype = int64, .device = device});
  data->first_rows = mul(data->order, next);
  data->last_rows = add(data->first_rows, (steps - 1) * data->stride);
  RecurrentLayout layout;
  layout.data_ = std::move(data);
  return layout;
}

void visit_arguments(RecurrentLayout& layout, detail::ArgumentVisitor& visitor) {
  const std::vector<int64_t>& sorted = layout.data().sorted;
  if (layout.data().padded || (!sorted.empty() && sorted.front() == sorted.back())) {  // of one length
    int64_t batch = layout.batch(), steps = sorted.empty() ? 1 : sorted[0];
    const int64_t batch_before = batch, steps_before = steps;
    visitor.integer(batch);
    visitor.integer(steps);
    visitor.choice(layout.data().batch_first);
    if (batch != batch_before || steps != steps_before)
      layout = RecurrentLayout::padded(batch, steps, layout.data().batch_first, layout.device());
    return;
  }
  std::vector<int64_t> lengths = layout.lengths();
  detail::visit_argument(lengths, visitor);
  if (lengths != layout.lengths()) layout = RecurrentLayout::packed(lengths, layout.device());
}

kernels::RecurrentSteps RecurrentLayout::steps(bool reverse) const {
  kernels::RecurrentSteps steps;
  steps.counts = data().counts.data();
  steps.steps = static_cast<int64_t>(data().counts.size());
  steps.stride = reverse ? -data().stride : data().stride;
  steps.first = (reverse ? data().last_rows : data().first_rows).view();
  steps.order = data().order.view();
  return steps;
}

Tensor RecurrentLayout::rows_of_step(int64_t step, bool reverse) const {
  const std::vector<int64_t>& first = reverse ? data().last : data().first;
  std::vector<int64_t> rows(first.begin(), first.begin() + data().counts.at(step));
  for (int64_t& row : rows) row += step * (reverse ? -data().stride : data().stride);
  return from_vector(rows, {static_cast<int64_t>(rows.size())}).to(device());
}

RecurrentLayout::RowsKind RecurrentLayout::rows_kind(bool reverse) const {
  const std::vector<int64_t>& sorted = data().sorted;
  if (sorted.empty() || sorted.front() != sorted.back()) return {};
  // Sequences of one length, whose order is not changed.
  if (reverse) return {kernels::SequenceRows::kStepsFirst, true, false};
  return {data().batch_first ? kernels::SequenceRows::kBatchFirst : kernels::SequenceRows::kStepsFirst, false, false};
}

RecurrentLayout::ByStep RecurrentLayout::make_by_step(bool reverse) const {
  const Data& d = data();
  if (d.sorted.empty()) return {d.order, d.order};
  const int64_t stride = reverse ? -d.stride : d.stride;
  ByStep made;
  if (d.sorted.front() == d.sorted.back()) {  // nothing is copied from the host
    const Tensor& first = reverse ? d.last_rows : d.first_rows;
    const Tensor shifts = arange(0, static_cast<double>(d.sorted[0]), 1, first.options());
    made.rows = add(mul(shifts, stride).unsqueeze(1), first.unsqueeze(0)).flatten();
    made.places = inverse_of(made.rows);
    return made;
  }
  const std::vector<int64_t>& first = reverse ? d.last : d.first;
  std::vector<int64_t> rows, places(static_cast<size_t>(d.rows));
  rows.reserve(places.size());
  for (size_t t = 0; t < d.counts.size(); ++t)
    for (int64_t i = 0; i < d.counts[t]; ++i) {
      const int64_t row = first[static_cast<size_t>(i)] + static_cast<int64_t>(t) * stride;
      places[static_cast<size_t>(row)] = static_cast<int64_t>(rows.size());
      rows.push_back(row);
    }
  made.rows = from_vector(rows, {d.rows}).to(device());
  made.places = from_vector(places, {d.rows}).to(device());
  return made;
}

RecurrentLayout::ByStep RecurrentLayout::by_step(bool reverse) const {
  const std::lock_guard lock(data().mutex);
  ByStep& kept = data().by_step[reverse ? 1 : 0];
  if (kept.rows.defined()) return kept;
  // What a captured step makes has its values when the step is run.
  if (detail::is_recording()) return make_by_step(reverse);
  return kept = make_by_step(reverse);
}

Tensor RecurrentLayout::places() const {
  const std::lock_guard lock(data().mutex);
  if (data().places.defined()) return data().places;
  const Tensor made = inverse_of(data().order);
  if (!detail::is_recording()) data().places = made;
  return made;
}

}  // namespace tern
