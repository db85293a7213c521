#include "tern/core/profiler/report.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tern/core/io/atomic_file.h"
#include "tern/kernels/base/check.h"

namespace tern {
namespace {

bool closed(const detail::ProfileRecord& record) { return record.end_ns >= record.begin_ns; }

std::string full_name(const detail::ProfileRecord& record) {
  return record.kind == RangeKind::kBackward ? std::string(record.name) + " backward" : record.name;
}

double seconds_of(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

double min_seconds(const detail::Roofline& roofline, double bytes, double flops, DType dtype) {
  double lower_bound = roofline.bytes_per_second > 0 ? bytes / roofline.bytes_per_second : 0;
  const auto rate = roofline.flops_per_second.find(dtype);
  if (rate != roofline.flops_per_second.end() && rate->second > 0)
    lower_bound = std::max(lower_bound, flops / rate->second);
  return lower_bound;
}

/// The part of a table row that one record adds.
struct Share {
  double self = 0, bytes = 0, device = 0, device_self = 0;
};

/// One share per record of a thread.
std::vector<Share> shares_of(const std::vector<detail::ProfileRecord>& records) {
  std::vector<Share> shares(records.size());
  std::vector<double> inner(records.size());   // bytes of the ranges inside
  for (size_t i = records.size(); i-- > 0;) {  // inner ranges come after outer ones
    const detail::ProfileRecord& record = records[i];
    if (!closed(record)) continue;
    shares[i].self += seconds_of(record.end_ns - record.begin_ns);
    shares[i].bytes = std::max(0.0, record.bytes - inner[i]);
    if (record.parent < 0) continue;
    const size_t parent = static_cast<size_t>(record.parent);
    shares[parent].self -= seconds_of(record.end_ns - record.begin_ns);
    inner[parent] += std::max(record.bytes, inner[i]);
  }
  return shares;
}

/// Adds the device's times, from spans that include inner ones or from kernels of the innermost range.
void add_device(const std::vector<detail::ProfileRecord>& records, size_t thread,
                const std::unordered_map<uint64_t, double>& spans, bool inclusive, std::vector<Share>& shares) {
  for (size_t i = records.size(); i-- > 0;) {
    const auto found = spans.find(detail::profile_range_id(thread, static_cast<int64_t>(i)));
    const double seconds = found == spans.end() ? 0 : found->second;
    Share& share = shares[i];
    share.device = inclusive ? seconds : share.device + seconds;
    share.device_self += seconds;
    if (records[i].parent < 0) continue;
    Share& parent = shares[static_cast<size_t>(records[i].parent)];
    if (inclusive)
      parent.device_self -= seconds;
    else
      parent.device += share.device;
  }
  for (Share& share : shares) share.device_self = std::max(0.0, share.device_self);
}

bool inside_same(const std::vector<detail::ProfileRecord>& records, const detail::ProfileRecord& record) {
  for (int64_t at = record.parent; at >= 0; at = records[static_cast<size_t>(at)].parent) {
    const detail::ProfileRecord& outer = records[static_cast<size_t>(at)];
    if (outer.kind == record.kind && std::string_view(outer.name) == record.name) return true;
  }
  return false;
}

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char buffer[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

/// Formats the value with `decimals`, or "-" for NaN.
std::string cell(double value, int width, int decimals) {
  return value > 0 && std::isfinite(value) ? text(" %*.*f", width, decimals, value) : text(" %*s", width, "-");
}

/// Long names keep their end: "...layer.10.attention_norm".
std::string name_cell(const std::string& name, size_t width) {
  const std::string shown = name.size() <= width ? name : "..." + name.substr(name.size() - width + 3);
  return shown + std::string(width - shown.size(), ' ');
}

constexpr size_t kNameWidth = 34;

bool is_op(const ProfileRow& row) { return row.kind == RangeKind::kOp || row.kind == RangeKind::kBackward; }

/// Buffers text and writes it in large pieces.
class Writer {
 public:
  using Append = std::function<void(const void* data, size_t bytes)>;
  explicit Writer(const Append& append) : append_(append) {}
  void add(const std::string& piece) {
    buffer_ += piece;
    if (buffer_.size() >= size_t{1} << 20) flush();
  }
  /// Adds an element to the list of events.
  void event(const std::string& fields) {
    add(first_ ? "\n{" : ",\n{");
    add(fields + "}");
    first_ = false;
  }
  void flush() {
    append_(buffer_.data(), buffer_.size());
    buffer_.clear();
  }

 private:
  const Append& append_;
  std::string buffer_;
  bool first_ = true;
};

std::string quoted(const std::string& name) {
  return nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// Exact to the nanosecond: rounding would break the nesting.
std::string microseconds(int64_t nanoseconds) {
  return text("%lld.%03lld", static_cast<long long>(nanoseconds / 1000), static_cast<long long>(nanoseconds % 1000));
}

const char* category(RangeKind kind) {
  constexpr const char* kNames[] = {"op", "backward", "module", "phase"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace

double ProfileRow::roofline_share() const {
  return min_seconds > 0 && device_self_seconds > 0 ? min_seconds / device_self_seconds : std::nan("");
}

ProfileReport::ProfileReport(std::vector<detail::ProfileThread> threads, detail::DeviceTimeline device, bool has_device,
                             const detail::Roofline& roofline, int64_t begin_ns, int64_t end_ns, int64_t dropped)
    : threads_(std::move(threads)),
      device_(std::move(device)),
      has_device_(has_device),
      roofline_(roofline),
      begin_ns_(begin_ns),
      seconds_(seconds_of(end_ns - begin_ns)),
      dropped_(dropped) {
  aggregate();
}

void ProfileReport::aggregate() {
  std::unordered_map<uint64_t, double> spans;
  for (const detail::DeviceSpan& span : device_.spans) spans[span.range] += seconds_of(span.end_ns - span.begin_ns);
  std::map<std::pair<std::string, RangeKind>, ProfileRow> rows;
  for (size_t t = 0; t < threads_.size(); ++t) {
    const std::vector<detail::ProfileRecord>& records = threads_[t].records;
    std::vector<Share> shares = shares_of(records);
    if (has_device_) add_device(records, t, spans, device_.inclusive, shares);
    for (size_t i = 0; i < records.size(); ++i) {
      const detail::ProfileRecord& record = records[i];
      if (!closed(record)) continue;
      ProfileRow& row = rows[{full_name(record), record.kind}];
      const Share& share = shares[i];
      const double total = seconds_of(record.end_ns - record.begin_ns);
      const bool outermost = !inside_same(records, record);
      ++row.calls;
      row.self_seconds += share.self;
      row.device_self_seconds += has_device_ ? share.device_self : share.self;
      if (outermost) row.total_seconds += total;
      if (outermost) row.device_seconds += has_device_ ? share.device : total;
      row.bytes += share.bytes;
      row.flops += record.flops;
      row.min_seconds += min_seconds(roofline_, share.bytes, record.flops, record.dtype);
    }
  }
  for (auto& [key, row] : rows) {
    row.name = key.first;
    row.kind = key.second;
    rows_.push_back(std::move(row));
  }
  std::stable_sort(rows_.begin(), rows_.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return a.device_self_seconds > b.device_self_seconds;
  });
}

double ProfileReport::flops_within(const std::string& module) const {
  double flops = 0;
  for (const detail::ProfileThread& thread : threads_) {
    std::vector<bool> inside(thread.records.size());
    for (size_t i = 0; i < inside.size(); ++i) {  // outer ranges come before inner ones
      const detail::ProfileRecord& record = thread.records[i];
      inside[i] = (record.kind == RangeKind::kModule && record.name == module) ||
                  (record.parent >= 0 && inside[static_cast<size_t>(record.parent)]);
      if (inside[i]) flops += record.flops;
    }
  }
  return flops;
}

ProfileRow ProfileReport::row(const std::string& name) const {
  for (const ProfileRow& row : rows_)
    if (row.name == name) return row;
  return {};
}

std::string ProfileReport::table(size_t max_rows) const {
  const std::string ops = summary() + op_table(max_rows);
  return max_rows > 0 ? ops : ops + '\n' + outer_table();
}

std::string ProfileReport::summary() const {
  double all = 0;
  for (const ProfileRow& row : rows_) all += row.self_seconds;
  std::string out = text("profile: %.3f s, of which %.3f s in ranges of %zu thread%s", seconds_, all, threads_.size(),
                         threads_.size() == 1 ? "" : "s");
  out += has_device_ ? "; device times from " + device_.source + "\n" : "; on the CPU the device's time is the CPU's\n";
  if (dropped_ > 0)
    out += text("%lld further ranges were not recorded: the limit was reached\n", static_cast<long long>(dropped_));
  out += "roofline:";
  if (roofline_.bytes_per_second > 0) out += text(" %.1f GB/s;", roofline_.bytes_per_second * 1e-9);
  for (const auto& [dtype, rate] : roofline_.flops_per_second)
    out += text(" %.1f GFLOP/s %s;", rate * 1e-9, name_of(dtype));
  if (out.back() == ';')
    out.pop_back();
  else
    out += " not known";
  return out + "\n\n";
}

std::string ProfileReport::head(const char* what) const {
  return name_cell(what, kNameWidth) + text(" %8s %10s %10s", "calls", "total ms", "self ms") +
         (has_device_ ? text(" %10s %10s", "device ms", "self") : "");
}

std::string ProfileReport::times(const ProfileRow& row) const {
  const std::string out =
      name_cell(row.name, kNameWidth) +
      text(" %8lld %10.3f %10.3f", static_cast<long long>(row.calls), row.total_seconds * 1e3, row.self_seconds * 1e3);
  if (!has_device_) return out;
  return out + text(" %10.3f %10.3f", row.device_seconds * 1e3, row.device_self_seconds * 1e3);
}

std::string ProfileReport::op_table(size_t max_rows) const {
  double all = 0, outside = 0, device_outside = 0;
  for (const ProfileRow& row : rows_) {
    all += row.device_self_seconds;
    if (is_op(row)) continue;
    outside += row.self_seconds;
    device_outside += row.device_self_seconds;
  }
  const double percent = 100 / std::max(all, 1e-30);
  std::string out = head("op") + text(" %6s %9s %8s %9s %8s\n", "%", "mean us", "GB/s", "GFLOP/s", "roofline");
  size_t shown = 0;
  for (const ProfileRow& row : rows_) {
    if (!is_op(row) || (max_rows > 0 && shown == max_rows)) continue;
    ++shown;
    const double time = row.device_self_seconds, share = row.roofline_share();
    out += times(row);
    out += text(" %6.2f %9.1f", time * percent, row.self_seconds / static_cast<double>(row.calls) * 1e6);
    out += cell(row.bytes * 1e-9 / time, 8, 2) + cell(row.flops * 1e-9 / time, 9, 2);
    out += std::isfinite(share) ? text(" %6.1f %%\n", 100 * share) : text(" %8s\n", "-");
  }
  out += name_cell("outside ops", kNameWidth) + text(" %8s %10s %10.3f", "", "", outside * 1e3);
  if (has_device_) out += text(" %10s %10.3f", "", device_outside * 1e3);
  return out + text(" %6.2f\n", device_outside * percent);
}

std::string ProfileReport::outer_table() const {
  std::vector<ProfileRow> others;
  std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(others), [](const ProfileRow& r) { return !is_op(r); });
  std::stable_sort(others.begin(), others.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return a.kind != b.kind ? a.kind > b.kind : a.total_seconds > b.total_seconds;
  });
  std::string out = head("phase or module (forward)") + text(" %12s\n", "mean total us");
  for (const ProfileRow& row : others)
    out += times(row) + text(" %12.1f\n", row.total_seconds / static_cast<double>(row.calls) * 1e6);
  return out;
}

void ProfileReport::write_trace(const std::string& path) const {
  write_atomically(path, [&](const auto& append) {
    const Writer::Append sink = append;
    Writer out(sink);
    const long long pid = getpid();
    // Many events share a few hundred names.
    std::unordered_map<std::string, std::string> known;
    const auto json_name = [&](const std::string& name) -> const std::string& {
      std::string& result = known[name];
      if (result.empty()) result = quoted(name);
      return result;
    };
    const auto metadata = [&](const char* what, long long tid, const std::string& name) {
      out.event(text("\"ph\":\"M\",\"name\":\"%s\",\"pid\":%lld,\"tid\":%lld,\"args\":{\"name\":", what, pid, tid) +
                quoted(name) + "}");
    };
    const auto span = [&](const std::string& name, const char* kind, long long tid, int64_t begin, int64_t end) {
      return "\"ph\":\"X\",\"name\":" + json_name(name) + ",\"cat\":\"" + kind + "\",\"ts\":" + microseconds(begin) +
             ",\"dur\":" + microseconds(end - begin) + text(",\"pid\":%lld,\"tid\":%lld", pid, tid);
    };
    out.add("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_ranges\":" + std::to_string(dropped_) +
            "},\"traceEvents\":[");
    metadata("process_name", pid, "tern");
    std::vector<std::pair<int64_t, int64_t>> memory;  // time, live bytes
    for (const detail::ProfileThread& thread : threads_) {
      metadata("thread_name", thread.id, thread.name);
      for (const detail::ProfileRecord& record : thread.records) {
        if (!closed(record)) continue;
        std::string fields = span(full_name(record), category(record.kind), thread.id, record.begin_ns - begin_ns_,
                                  record.end_ns - begin_ns_);
        if (record.bytes > 0 || record.flops > 0)
          fields += text(",\"args\":{\"bytes\":%.0f,\"flops\":%.0f}", record.bytes, record.flops);
        out.event(fields);
        memory.emplace_back(record.end_ns - begin_ns_, record.live_bytes);
      }
    }
    std::sort(memory.begin(), memory.end());
    int64_t last = -1;
    for (const auto& [time, bytes] : memory) {
      if (bytes == last) continue;
      last = bytes;
      out.event("\"ph\":\"C\",\"name\":\"live memory\",\"ts\":" + microseconds(time) +
                text(",\"pid\":%lld,\"args\":{\"bytes\":%lld}", pid, static_cast<long long>(bytes)));
    }
    constexpr long long kDeviceTracks = 1LL << 31;  // above every thread id
    for (size_t t = 0; t < device_.tracks.size(); ++t)
      metadata("thread_name", kDeviceTracks + static_cast<long long>(t), device_.tracks[t]);
    for (const detail::DeviceSpan& s : device_.spans) {
      const std::string name = s.name.empty() ? name_of_range(s.range) : s.name;
      out.event(span(name, "device", kDeviceTracks + s.track, s.begin_ns - begin_ns_, s.end_ns - begin_ns_));
    }
    out.add("\n]}\n");
    out.flush();
  });
}

std::string ProfileReport::name_of_range(uint64_t range) const {
  const uint64_t thread = (range >> 40) - 1, index = range & ((uint64_t{1} << 40) - 1);
  if (thread >= threads_.size() || index >= threads_[thread].records.size()) return "unknown";
  return full_name(threads_[thread].records[index]);
}

}  // namespace tern
