#pragma once
// How this process ends: what signals ask of it, its exit status, and the one line about a failure.

#include <csignal>

namespace tern::cli {

/// To be called first: handles signals, and connects the output of one of several processes (rank_process.h).
void begin_process();

/// Reports the exception that is being handled, and returns the exit status. A command that is connected with other
/// ranks calls it before it closes the connection: the others end when the connection does, and this process may be
/// ended with them before it has reported.
int report_failure();

/// The number of the first SIGINT, SIGTERM or SIGUSR1 that came, or 0. Always 0 until end_in_order_on_signals().
int pending_signal();
/// From now on these signals only set pending_signal(), so that the command can save and end. Before, the process ends
/// at once with signal_status(). So it does at a SIGINT or SIGTERM that comes more than a second after the first one;
/// but one of several processes does not: their launcher kills them. However often SIGUSR1 comes, it does not.
void end_in_order_on_signals();
/// The exit status that says which signal came: 128 + its number, for SIGUSR1 75 (EX_TEMPFAIL: to be started again),
/// and 0 for none.
inline int signal_status(int number) { return number == SIGUSR1 ? 75 : number == 0 ? 0 : 128 + number; }
/// Ends the command where there is nothing to save; the exit status is signal_status().
struct Interrupted {};
/// Throws Interrupted when a signal is pending.
void check_interrupted();

/// Ends the command because nobody reads stdout any more (`| head`): without a word, the exit status is that of a
/// program that SIGPIPE ended.
struct ReaderGone {};
/// Throws ReaderGone, or Error where stdout is closed or full, if a write to it has failed.
void check_output();

}  // namespace tern::cli
