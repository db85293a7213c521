#include "tern/dist/loop/session.h"

#include <chrono>
#include <cstdlib>
#include <sstream>

namespace tern::dist {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(500);

std::string place_key(int rank) { return "at/" + std::to_string(rank); }

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(r);
  return ranks;
}

/// Message about the ranks that are gone; "" if there are none.
std::string describe_failures(const std::vector<int>& lost) {
  if (lost.empty()) return "";
  return rank_list(lost) + (lost.size() == 1 ? " has" : " have") +
         " ended before the job was done; see its output for the reason";
}

}  // namespace

GroupOptions with_environment(GroupOptions options) {
  if (const char* text = std::getenv("TERN_DIST_TIMEOUT"); text && *text) {
    char* end = nullptr;
    const double seconds = std::strtod(text, &end);
    TERN_CHECK(*end == 0 && seconds > 0 && seconds <= 1e7, "TERN_DIST_TIMEOUT: expected seconds in (0, 1e7], got '",
               text, "'");
    options.timeout_seconds = seconds;
  }
  if (const char* text = std::getenv("TERN_DIST_CHECK"); text && *text) {
    const std::string value = text;
    TERN_CHECK(value == "0" || value == "1", "TERN_DIST_CHECK: expected 0 or 1, got '", value, "'");
    options.check = value == "1";
  }
  return options;
}

Session::Session(std::unique_ptr<Store> store, const Member& member, const GroupOptions& options,
                 const std::string& facts, double start_seconds)
    : store_(std::move(store)), member_(member), options_(options) {
  store_->compare("start", all_ranks(member.size), member.rank, facts, start_seconds,
                  [this] { return describe_failures(store_->failed_ranks()); });
  watch_store_ = store_->another();
  thread_ = std::thread([this] { watch(); });
}

Session::~Session() {
  watch_store_->interrupt();  // rank 0 may be gone or hang
  stop_watching();
}

void Session::stop_watching() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Session::finish() {
  exchange("end", all_ranks(member_.size), "");
  stop_watching();
  watch_store_->finish();
}

std::vector<std::string> Session::exchange(const std::string& key, const std::vector<int>& ranks,
                                           const std::string& value) {
  return store_->exchange(key, ranks, member_.rank, value, options_.timeout_seconds, [this] { return failure(); });
}

void Session::note(const std::string& group, int64_t number, const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  Place& place = places_[group];
  place.number = number;
  place.text = text;
}

void Session::compare(const std::string& group, const std::vector<int>& ranks, const Call& call, int other) {
  const std::string text = call.text();
  const auto failed = [this] { return failure(); };
  std::string between;
  std::vector<int> members = ranks;
  if (call.is_pairwise()) {
    const int from = call.operation == Operation::kSend ? member_.rank : other;
    const int to = call.operation == Operation::kSend ? other : member_.rank;
    between = detail::concatenate(" from rank ", from, " to rank ", to);
    members = {from, to};
  }
  const auto key = [&](int64_t number) {
    return detail::concatenate("group ", group, call.is_pairwise() ? ", message " : ", call ", number, between);
  };
  store_->compare(key(call.number), members, member_.rank, text, options_.timeout_seconds, failed);
  // All ranks have started this call, so all have read the values of the previous one.
  store_->erase(key(call.number - 1) + "/" + std::to_string(member_.rank));
}

std::string Session::describe_missing(const std::string& group, const std::vector<int>& ranks, int64_t number,
                                      const std::string& text) {
  std::ostringstream out;
  out << "group " << group << ", call " << number << ", " << text << ": ";
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(place_key(rank));
  std::vector<std::optional<std::string>> places(ranks.size());
  try {
    std::unique_ptr<Store> second_store = store_->another(3);  // store_ may be blocked in a wait
    std::this_thread::sleep_for(kInterval);                    // time for others to publish their latest calls
    places = second_store->wait(keys, 0);
  } catch (const Error&) {
    return out.str() + "it is not complete within " + detail::concatenate(options_.timeout_seconds) +
           " s, and rank 0, which keeps the store, does not answer";
  }
  std::vector<int> missing;
  std::string last;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == member_.rank) continue;
    int64_t theirs = 0;
    std::string their_text, line, name;
    std::istringstream lines(places[i].value_or(""));
    while (std::getline(lines, line)) {
      std::istringstream fields(line);
      int64_t n = 0;
      if (std::getline(fields, name, '\t') && fields >> n && name == group) {
        theirs = n;
        std::getline(fields >> std::ws, their_text);
      }
    }
    if (theirs >= number && (theirs > number || their_text == text)) continue;
    missing.push_back(ranks[i]);
    last += detail::concatenate("; rank ", ranks[i], theirs == 0 ? " has made no call" : " made call ");
    if (theirs > 0) last += detail::concatenate(theirs, " last, ", their_text);
  }
  if (missing.empty()) {
    out << "all ranks have made it, but it is not complete within " << options_.timeout_seconds
        << " s: the network is slow or broken; TERN_DIST_TIMEOUT sets the seconds";
  } else {
    out << rank_list(missing) << (missing.size() == 1 ? " has" : " have") << " not arrived within "
        << options_.timeout_seconds << " s" << last;
  }
  return out.str();
}

std::string Session::failure() const {
  if (!has_failed()) return "";
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void Session::set_failure(const std::string& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.empty()) failure_ = reason;
  failed_ = true;
}

std::string Session::own_places() const {
  std::ostringstream out;
  for (const auto& [group, place] : places_) out << group << '\t' << place.number << '\t' << place.text << '\n';
  return out.str();
}

void Session::watch() {
  std::string reported;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const std::string places = own_places();
    lock.unlock();
    try {
      if (places != reported) watch_store_->set(place_key(member_.rank), places);
      reported = places;
      if (const std::string why = describe_failures(watch_store_->failed_ranks()); !why.empty()) set_failure(why);
    } catch (const Error& error) {
      set_failure(error.what());
    }
    lock.lock();
    if (!failure_.empty()) return;
    wake_.wait_for(lock, kInterval, [this] { return stopping_; });
  }
}

}  // namespace tern::dist
