#include "tern/models/cli/launch/process_end.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <system_error>

#include "tern/core/io/pickle.h"
#include "tern/dist/store/store.h"
#include "tern/kernels/base/check.h"
#include "tern/models/cli/launch/end_requests.h"
#include "tern/models/cli/launch/rank_process.h"
#include "tern/models/cli/options/options.h"

namespace tern::cli {
namespace {

volatile std::sig_atomic_t in_order = 0;
volatile std::sig_atomic_t one_of_several = 0;  // the launcher kills the ranks when they must not save
EndRequests requests;

void on_signal(int number) {
  requests.note(number);
  if (!in_order || (!one_of_several && requests.again() != 0)) _exit(signal_status(number));
}

/// One line in which a long argument (100,000 digits) does not hide the other words, and that is not endless itself.
std::string one_line(const std::string& message) {
  constexpr size_t kMaxWord = 1000, kMaxBegin = 6000, kMaxEnd = 2000;
  std::string line;
  size_t word = 0;
  for (const char c : message) {
    word = c == ' ' || c == '\n' ? 0 : word + 1;
    if (word <= kMaxWord) line += c == '\n' ? ' ' : c;
    if (word == kMaxWord + 1) line += "...";
  }
  if (line.size() > kMaxBegin + kMaxEnd)  // the end says what to do
    line = line.substr(0, kMaxBegin) + " ... " + line.substr(line.size() - kMaxEnd);
  return line;
}

int report(const std::string& message, int status, bool of_peer = false) {
  std::string line = one_line(message);
  line = tern::detail::printable(line, line.size());  // names of files may hold any bytes
  report_error(line);
  end_rank(status, line, of_peer);
  return status;
}

}  // namespace

void begin_process() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigset_t taken;  // the parent process may have blocked them
  sigemptyset(&taken);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    sigaction(number, &action, nullptr);
    sigaddset(&taken, number);
  }
  sigprocmask(SIG_UNBLOCK, &taken, nullptr);
  // A closed pipe or a file size limit makes the write fail and does not end the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  one_of_several = begin_rank();
}

int report_failure() {
  try {
    throw;
  } catch (const Interrupted&) {
    const int status = signal_status(pending_signal());
    end_rank(status, "", false);
    return status;
  } catch (const ReaderGone&) {
    const int status = signal_status(SIGPIPE);
    end_rank(status, "", false);
    return status;
  } catch (const UsageError& error) {
    return report(error.what(), 2);
  } catch (const dist::PeerError& error) {
    return report(error.what(), 1, true);
  } catch (const OutOfMemoryError& error) {
    return report(std::string(error.what()) + "; tern train does that with --recompute block", 1);
  } catch (const std::bad_alloc&) {
    return report("out of memory; try a smaller batch or sequence length", 1);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again)
      return report(
          "the system refuses another thread: raise its limits (ulimit -u, ulimit -v), or give fewer --threads "
          "and --workers",
          1);
    return report(error.what(), 1);
  } catch (const std::exception& error) {
    return report(error.what(), 1);
  }
}

void check_output() {
  if (std::cout) return;
  pollfd out{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  if (poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0) throw ReaderGone();
  fail("stdout: cannot be written (closed or full)");
}

int pending_signal() { return requests.first(); }
void end_in_order_on_signals() { in_order = 1; }
void check_interrupted() {
  if (pending_signal() != 0) throw Interrupted();
}

}  // namespace tern::cli
