#pragma once
// Choices that --autotune measured, by kind of call, and their form as text.

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cuda/support/cudnn_info.h"

namespace tern::kernels::cuda {

/// Between cuDNN and Tern: a number for each kind of call, which kSize numbers describe. Several threads may use it.
template <size_t kSize>
class MeasuredChoices {
 public:
  using Kind = std::array<int64_t, kSize>;
  /// `subject`: "attention". Choices are `least` ... `most`.
  MeasuredChoices(const char* subject, int64_t least, int64_t most) : subject_(subject), least_(least), most_(most) {}

  std::optional<int64_t> find(const Kind& kind) const {
    const std::lock_guard lock(mutex_);
    const auto found = choices_.find(kind);
    if (found == choices_.end()) return std::nullopt;
    return found->second;
  }
  void set(const Kind& kind, int64_t choice) {
    const std::lock_guard lock(mutex_);
    choices_[kind] = choice;
  }

  /// A line with the version of cuDNN, then one for each choice: the kind of call and the choice. Empty without
  /// choices.
  std::string text() const {
    std::ostringstream out;
    const std::lock_guard lock(mutex_);
    if (!choices_.empty()) out << title() << "\n";
    for (const auto& [kind, choice] : choices_) {
      for (const int64_t number : kind) out << number << ' ';
      out << choice << "\n";
    }
    return out.str();
  }

  /// Takes in what text() wrote. Throws Error when it is malformed or cuDNN has another version, and then changes
  /// nothing.
  void restore(const std::string& text) {
    if (text.empty()) return;
    const LibraryInfo& library = cudnn_info();
    TERN_CHECK(library.found, "the recorded choices of ", subject_, " were made with cuDNN, which is not found (",
               library.reason, ")");
    std::istringstream in(text);
    std::string line;
    std::getline(in, line);
    TERN_CHECK(line == title(), "the recorded choices of ", subject_, " begin with \"", line, "\", expected \"",
               title(), "\": they serve the version of cuDNN that they were made with; run with --autotune again");
    std::map<Kind, int64_t> read;
    while (std::getline(in, line)) {
      std::istringstream words(line);
      Kind kind = {};
      int64_t choice = least_ - 1;
      for (int64_t& number : kind) words >> number;
      words >> choice;
      TERN_CHECK(words && (words >> std::ws).eof() && choice >= least_ && choice <= most_, "the recorded choices of ",
                 subject_, " hold the line \"", line, "\", expected ", kSize, " numbers and one from ", least_, " to ",
                 most_);
      read[kind] = choice;
    }
    const std::lock_guard lock(mutex_);
    read.merge(choices_);
    choices_ = std::move(read);
  }

 private:
  std::string title() const { return std::string(subject_) + " choices, cuDNN " + cudnn_info().version; }

  const char* subject_;
  int64_t least_, most_;
  mutable std::mutex mutex_;
  std::map<Kind, int64_t> choices_;
};

}  // namespace tern::kernels::cuda
