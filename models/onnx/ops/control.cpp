// Control flow, sequences and optional values.

#include <algorithm>

#include "tern/core/tensor/size_checks.h"
#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

using Values = std::vector<Value>;

Value sequence_of(Values values) { return {.sequence = std::make_shared<const Values>(std::move(values))}; }

void branch(Call& c) {
  Values results = c.run_body(c.whole(0) != 0 ? "then_branch" : "else_branch", {});
  TERN_CHECK(results.size() >= c.outputs(), "the branch has ", results.size(), " outputs of ", c.outputs());
  for (size_t i = 0; i < c.outputs(); ++i) c.set_value(i, std::move(results[i]));
}

Value host_number(int64_t value) { return {from_vector(Numbers{value}, {}), kInt64}; }
Value host_flag(bool value) { return {full({}, value ? 1 : 0, {.dtype = boolean}), kBool}; }

/// The results of all rounds along a new dimension.
Value stacked(const Values& values, int dim) {
  Tensors tensors;
  for (const Value& value : values) tensors.push_back(value.tensor);
  return {stack(tensors, dim), values[0].element};
}

void loop_graph(Call& c) {
  const int64_t most = c.has(0) ? c.whole(0) : INT64_MAX;
  bool going = !c.has(1) || c.whole(1) != 0;
  Values carried;
  for (size_t i = 2; i < c.inputs(); ++i) carried.push_back(c.has(i) ? c.value(i) : Value());
  const size_t states = carried.size();
  TERN_CHECK(c.outputs() >= states || c.outputs() == 0, "it has ", c.outputs(), " outputs for ", states, " states");
  std::vector<Values> scans(c.outputs() - std::min(c.outputs(), states));
  int64_t round = 0;
  constexpr int64_t kMostRounds = int64_t{1} << 24;
  for (; round < most && going; ++round) {
    TERN_CHECK(round < kMostRounds, "it does not end within ", kMostRounds, " rounds");
    Values given = {host_number(round), host_flag(true)};
    given.insert(given.end(), carried.begin(), carried.end());
    Values results = c.run_body("body", std::move(given));
    TERN_CHECK(results.size() == 1 + states + scans.size(), "its body has ", results.size(), " outputs");
    TERN_CHECK(results[0].tensor.defined(), "its body gives no condition");
    going = results[0].tensor.item<bool>();
    for (size_t i = 0; i < states; ++i) carried[i] = std::move(results[1 + i]);
    for (size_t i = 0; i < scans.size(); ++i) scans[i].push_back(std::move(results[1 + states + i]));
  }
  for (size_t i = 0; i < states; ++i) c.set_value(i, carried[i]);
  for (size_t i = 0; i < scans.size(); ++i) {
    if (round > 0)
      c.set_value(states + i, stacked(scans[i], 0));
    else if (c.wants(states + i))
      fail("a loop without a round has no shape for output ", states + i);
  }
}

int64_t entry(const Numbers& list, size_t i) { return i < list.size() ? list[i] : 0; }

void scan_graph(Call& c) {
  const int64_t count = c.integer("num_scan_inputs", 0);
  const size_t first = c.opset() < 9 ? 1 : 0;
  TERN_CHECK(count > 0 && static_cast<size_t>(count) <= c.inputs() - first, "it scans ", count, " inputs of ",
             c.inputs());
  const auto scanned = static_cast<size_t>(count);
  const size_t states = c.inputs() - first - scanned;
  TERN_CHECK(c.outputs() >= states, "it has ", c.outputs(), " outputs for ", states, " states");
  if (c.opset() < 9) {  // with a batch: the body runs for each entry
    TERN_CHECK(!c.has(0), "lengths of sequences are not supported");
    const int64_t batch = c.in(1).size(0);
    std::vector<Values> all(c.outputs());
    for (int64_t b = 0; b < batch; ++b) {
      Values carried;
      for (size_t i = 0; i < states; ++i) carried.push_back({c.in(first + i)[b], c.element(first + i)});
      std::vector<Values> scans(c.outputs() - states);
      const int64_t rounds = c.in(first + states).size(1);
      const Numbers directions = c.numbers("directions");
      for (int64_t t = 0; t < rounds; ++t) {
        Values given = carried;
        for (size_t i = 0; i < scanned; ++i) {
          const Tensor x = c.in(first + states + i)[b];
          given.push_back({x[entry(directions, i) != 0 ? rounds - 1 - t : t], c.element(first + states + i)});
        }
        Values results = c.run_body("body", std::move(given));
        TERN_CHECK(results.size() == c.outputs(), "its body has ", results.size(), " outputs");
        for (size_t i = 0; i < states; ++i) carried[i] = results[i];
        for (size_t i = 0; i < scans.size(); ++i) scans[i].push_back(results[states + i]);
      }
      for (size_t i = 0; i < states; ++i) all[i].push_back(carried[i]);
      for (size_t i = 0; i < scans.size(); ++i) all[states + i].push_back(stacked(scans[i], 0));
    }
    for (size_t i = 0; i < all.size(); ++i) c.set_value(i, stacked(all[i], 0));
    return;
  }
  const Numbers in_axes = c.numbers("scan_input_axes"), in_directions = c.numbers("scan_input_directions");
  const Numbers out_axes = c.numbers("scan_output_axes"), out_directions = c.numbers("scan_output_directions");
  Values carried;
  for (size_t i = 0; i < states; ++i) carried.push_back(c.value(i));
  int64_t rounds = -1;
  std::vector<Tensors> parts;
  for (size_t i = 0; i < scanned; ++i) {
    const Tensor x = c.in(states + i);
    const int axis = wrapped(entry(in_axes, i), x.dim());
    TERN_CHECK(rounds < 0 || rounds == x.size(axis), "it scans inputs of ", rounds, " and ", x.size(axis), " entries");
    rounds = x.size(axis);
    parts.push_back(x.unbind(axis));
    if (entry(in_directions, i) != 0) std::reverse(parts.back().begin(), parts.back().end());
  }
  std::vector<Values> scans(c.outputs() - states);
  for (int64_t t = 0; t < rounds; ++t) {
    Values given = carried;
    for (size_t i = 0; i < scanned; ++i) given.push_back({parts[i][static_cast<size_t>(t)], c.element(states + i)});
    Values results = c.run_body("body", std::move(given));
    TERN_CHECK(results.size() == c.outputs(), "its body has ", results.size(), " outputs");
    for (size_t i = 0; i < states; ++i) carried[i] = std::move(results[i]);
    for (size_t i = 0; i < scans.size(); ++i) scans[i].push_back(std::move(results[states + i]));
  }
  for (size_t i = 0; i < states; ++i) c.set_value(i, carried[i]);
  for (size_t i = 0; i < scans.size(); ++i) {
    TERN_CHECK(!scans[i].empty(), "it scans nothing");
    if (entry(out_directions, i) != 0) std::reverse(scans[i].begin(), scans[i].end());
    const int dims = scans[i][0].tensor.dim() + 1;
    c.set_value(states + i, stacked(scans[i], wrapped(entry(out_axes, i), dims)));
  }
}

void make_sequence(Call& c) {
  Values values;
  for (size_t i = 0; i < c.inputs(); ++i) values.push_back(c.value(i));
  c.set_value(0, sequence_of(std::move(values)));
}

void empty_sequence(Call& c) { c.set_value(0, sequence_of({})); }

/// A place in a list of so many entries; negative ones count from the end.
size_t sequence_place(const Call& c, size_t input, size_t count, bool insert) {
  const int64_t size = static_cast<int64_t>(count), limit = size + (insert ? 1 : 0);
  const int64_t otherwise = insert ? size : size - 1;
  const int64_t given = c.has(input) ? c.whole(input) : otherwise;
  const int64_t place = given < 0 ? given + size : given;
  TERN_CHECK(place >= 0 && place < limit, "there is no place ", given, " in a sequence of ", size);
  return static_cast<size_t>(place);
}

void insert_value(Call& c) {
  Values values = c.sequence(0);
  const size_t place = sequence_place(c, 2, values.size(), true);
  values.insert(values.begin() + static_cast<int64_t>(place), c.value(1));
  c.set_value(0, sequence_of(std::move(values)));
}

void erase_value(Call& c) {
  Values values = c.sequence(0);
  const size_t place = sequence_place(c, 1, values.size(), false);
  values.erase(values.begin() + static_cast<int64_t>(place));
  c.set_value(0, sequence_of(std::move(values)));
}

void value_at(Call& c) {
  const Values& values = c.sequence(0);
  c.set_value(0, values[sequence_place(c, 1, values.size(), false)]);
}

void length_of(Call& c) { c.set_value(0, host_number(static_cast<int64_t>(c.sequence(0).size()))); }

void join_sequence(Call& c) {
  Tensors tensors;
  for (const Value& value : c.sequence(0)) tensors.push_back(value.tensor.to(c.context().device));
  TERN_CHECK(!tensors.empty(), "the sequence is empty");
  const bool is_new = c.flag("new_axis");
  const int axis = wrapped(c.integer("axis", 0), tensors[0].dim() + (is_new ? 1 : 0));
  c.set(0, is_new ? stack(tensors, axis) : cat(tensors, axis), c.sequence(0)[0].element);
}

void split_to_sequence(Call& c) {
  const Tensor x = c.in(0);
  const int axis = wrapped(c.integer("axis", 0), x.dim());
  Tensors parts;
  if (!c.has(1)) {
    parts = c.flag("keepdims", true) ? x.split(1, axis) : x.unbind(axis);
  } else if (c.value(1).tensor.dim() == 0) {
    TERN_CHECK(c.whole(1) > 0, "the size of a part is ", c.whole(1));
    parts = x.split(c.whole(1), axis);
  } else {
    parts = x.split(c.list(1), axis);
  }
  Values values;
  for (const Tensor& part : parts) values.push_back({part, c.element(0)});
  c.set_value(0, sequence_of(std::move(values)));
}

void map_sequence(Call& c) {
  const size_t count = c.sequence(0).size();
  std::vector<Values> results(c.outputs());
  for (size_t t = 0; t < count; ++t) {
    Values given;
    for (size_t i = 0; i < c.inputs(); ++i) {
      const Value& value = c.value(i);
      TERN_CHECK(!value.sequence || value.sequence->size() == count, "its sequences have ", count, " and ",
                 value.sequence->size(), " entries");
      given.push_back(value.sequence ? (*value.sequence)[t] : value);
    }
    Values outputs = c.run_body("body", std::move(given));
    TERN_CHECK(outputs.size() == results.size(), "its body has ", outputs.size(), " outputs");
    for (size_t i = 0; i < outputs.size(); ++i) results[i].push_back(std::move(outputs[i]));
  }
  for (size_t i = 0; i < results.size(); ++i) c.set_value(i, sequence_of(std::move(results[i])));
}

void optional_of(Call& c) { c.set_value(0, c.has(0) ? c.value(0) : Value()); }

void get_element(Call& c) {
  TERN_CHECK(c.has(0), "the optional value is absent");
  c.set_value(0, c.value(0));
}

void has_element(Call& c) { c.set_value(0, host_flag(c.has(0))); }

}  // namespace

void add_control_ops(Rows& rows) {
  const Rows own = {
      {"If", 1, branch},
      {"Loop", 1, loop_graph},
      {"Scan", 8, scan_graph},
      {"SequenceConstruct", 11, make_sequence},
      {"SequenceEmpty", 11, empty_sequence},
      {"SequenceInsert", 11, insert_value},
      {"SequenceErase", 11, erase_value},
      {"SequenceAt", 11, value_at},
      {"SequenceLength", 11, length_of},
      {"ConcatFromSequence", 11, join_sequence},
      {"SplitToSequence", 11, split_to_sequence},
      {"SequenceMap", 17, map_sequence},
      {"Optional", 15, optional_of},
      {"OptionalGetElement", 15, get_element},
      {"OptionalHasElement", 15, has_element},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx
