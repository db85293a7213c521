#include "tern/data/hub/receive.h"

#include <chrono>
#include <cmath>
#include <sstream>
#include <thread>

#include "tern/core/io/pickle.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr int64_t kProgressBytes = int64_t{1} << 20;  // files below that are named alone

std::optional<int64_t> count_in(std::string_view text) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
  return std::stoll(std::string(text));
}

bool brings_file(int64_t status) { return status == 0 || status == 200 || status == 206; }

std::string of_bytes(const std::optional<int64_t>& total) {
  return total ? " of " + std::to_string(*total) + " bytes" : " bytes";
}

class Reception {
 public:
  Reception(PartialFile& file, const FileSource& source, const HubSettings& settings)
      : file_(file), source_(source), settings_(settings), total_(source.bytes) {}

  HttpResponse run() {
    // How much is missing is not known.
    if (!total_ && file_.bytes() > 0) file_.restart();
    HttpResponse response;
    for (int failures = 0; !total_ || file_.bytes() != *total_;) {
      if (total_ && file_.bytes() > *total_) file_.restart();
      const int64_t before = file_.bytes();
      const std::string reason = request(response);
      if (reason.empty()) return response;
      if (file_.bytes() - before >= kProgressBytes) failures = 0;
      TERN_CHECK(++failures < settings_.attempts, source_.what, ": the transfer ended early: ", reason, "; ",
                 file_.bytes(), of_bytes(total_), " are kept, and the next fetch continues behind them");
      const double seconds = settings_.wait_seconds * std::pow(2, failures - 1);
      settings_.say(source_.what + ": " + reason + "; continuing at byte " + std::to_string(file_.bytes()));
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    }
    return response;
  }

 private:
  /// One request. Empty when the file is whole, otherwise why it is to be repeated.
  std::string request(HttpResponse& response) {
    from_ = file_.bytes();
    begun_ = false;
    try {
      response = source_.get(from_, [&](const HttpResponse& answer, std::string_view piece) {
        if (brings_file(answer.status)) take(answer, piece);
      });
    } catch (const NoAnswerError& error) {
      return error.what();
    }
    if (response.status == 416 && from_ > 0) {
      file_.restart();
      return "the server does not have the range";
    }
    if (response.status == 408 || response.status == 429 || response.status >= 500)
      return "HTTP " + std::to_string(response.status);
    if (!brings_file(response.status)) source_.refuse(response);
    take(response, "");
    if (!total_ || file_.bytes() == *total_) return "";
    return "got " + std::to_string(file_.bytes()) + of_bytes(total_);
  }

  void take(const HttpResponse& answer, std::string_view piece) {
    if (!begun_) begin(answer);
    begun_ = true;
    const int64_t after = file_.bytes() + static_cast<int64_t>(piece.size());
    TERN_CHECK(!total_ || after <= *total_, source_.what, ": more than the declared ", *total_, " bytes came");
    if (piece.empty()) return;
    file_.append(piece);
    if (!total_ || *total_ < kProgressBytes) return;
    const int64_t tenths = static_cast<int64_t>(10 * static_cast<double>(after) / static_cast<double>(*total_));
    if (tenths > tenths_)
      settings_.say(source_.what + ": " + std::to_string(10 * tenths) + " % of " + std::to_string(*total_ / 1000000) +
                    " MB");
    tenths_ = tenths;
  }

  /// What the headers say of the bytes that follow.
  void begin(const HttpResponse& answer) {
    const std::string& encoding = answer.header("content-encoding");
    TERN_CHECK(encoding.empty() || encoding == "identity", source_.what, ": came in the encoding '",
               tern::detail::printable(encoding, 40), "', which was not asked for");
    if (from_ > 0 && answer.status != 206) {  // the server sends no ranges
      file_.restart();
      from_ = 0;
    }
    if (answer.status == 206) check_range(answer.header("content-range"));
    const auto length = count_in(answer.header("content-length"));
    if (!length) return;
    TERN_CHECK(!total_ || from_ + *length == *total_, source_.what, ": ", *total_, " bytes were declared, and the ",
               "server sends ", from_ + *length);
    total_ = from_ + *length;
  }

  /// "bytes 100-199/200".
  void check_range(const std::string& range) {
    const size_t space = range.find(' '), dash = range.find('-'), slash = range.find('/');
    const bool whole = space < dash && dash < slash && slash != range.npos;
    const auto first = whole ? count_in(range.substr(space + 1, dash - space - 1)) : std::nullopt;
    const auto total = whole ? count_in(range.substr(slash + 1)) : std::nullopt;
    TERN_CHECK(first == from_ && (!total || !total_ || *total == *total_), source_.what, ": asked for the bytes from ",
               from_, of_bytes(total_), " on, and the server sends the range '", tern::detail::printable(range, 100),
               "'");
  }

  PartialFile& file_;
  const FileSource& source_;
  const HubSettings& settings_;
  std::optional<int64_t> total_;
  int64_t from_ = 0, tenths_ = 0;
  bool begun_ = false;
};

}  // namespace

HttpResponse receive(PartialFile& file, const FileSource& source, const HubSettings& settings) {
  return Reception(file, source, settings).run();
}

}  // namespace tern::data
