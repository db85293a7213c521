#include "tern/models/cli/run/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "tern/core/io/pickle.h"

namespace tern::cli {

std::string clock_text(double seconds) {
  const int64_t total = std::isfinite(seconds) && seconds > 0 ? static_cast<int64_t>(std::llround(seconds)) : 0;
  char text[40];
  if (total >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", static_cast<long long>(total / 3600),
                  static_cast<long long>(total / 60 % 60), static_cast<long long>(total % 60));
  else
    std::snprintf(text, sizeof text, "%lld:%02lld", static_cast<long long>(total / 60),
                  static_cast<long long>(total % 60));
  return text;
}

Progress::Progress(bool quiet, std::string unit)
    : unit_(std::move(unit)), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::clear_bar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Progress::log(const std::string& line) {
  if (quiet_) return;
  clear_bar();
  std::fprintf(stderr, "%s\n",
               tern::detail::printable(line, line.size()).c_str());  // file names may contain arbitrary bytes
}

void Progress::on_step(const models::StepMetrics& m) {
  // Averages over about the last twenty steps, to smooth the display.
  const double weight = std::max(0.05, 1.0 / static_cast<double>(m.step - first_step_ + 1));
  loss_ += weight * (m.loss - loss_);
  step_seconds_ += weight * (m.seconds - step_seconds_);
  rate_ += weight * (static_cast<double>(m.items) / std::max(m.seconds, 1e-9) - rate_);
  if (quiet_) return;

  const auto now = std::chrono::steady_clock::now();
  const int64_t tenth = m.step * 10 / m.total_steps;
  const bool last = m.step == m.total_steps;
  if (terminal_ ? now - last_drawn_ < std::chrono::milliseconds(100) && !last : tenth == last_tenth_) return;
  last_drawn_ = now;
  last_tenth_ = tenth;

  char text[160];
  const double left = step_seconds_ * static_cast<double>(m.total_steps - m.step);
  std::snprintf(text, sizeof text, "epoch %lld  step %lld/%lld  loss %.4f  %.0f %s/s  ETA %s",
                static_cast<long long>(m.epoch), static_cast<long long>(m.step), static_cast<long long>(m.total_steps),
                loss_, rate_, unit_.c_str(), clock_text(left).c_str());
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", text);
    return;
  }
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(m.step * kWidth / m.total_steps);
  std::fprintf(stderr, "\r\033[K[%s%s] %s", std::string(static_cast<size_t>(filled), '=').c_str(),
               std::string(static_cast<size_t>(kWidth - filled), ' ').c_str(), text);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::on_validation_begin(int64_t) {
  if (quiet_ || !terminal_) return;
  clear_bar();
  std::fputs("validating...", stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::on_epoch(const models::EpochMetrics& m, const std::string& metric) {
  char text[160];
  std::snprintf(text, sizeof text, "epoch %lld: validation loss %.4f, %s%s", static_cast<long long>(m.epoch),
                m.validation.loss, metric.c_str(), m.best ? "  (best so far)" : "");
  log(text);
}

}  // namespace tern::cli
