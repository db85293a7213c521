#pragma once
// At which of this machine's addresses the ranks of a job can meet.

#include <string>
#include <vector>

namespace tern::dist {

/// Addresses by which other machines may reach this one, in digits; those of one link only (fe80::) are left out.
std::vector<std::string> own_addresses();

/// Where rank 0's store listens, in digits, so that the other ranks reach it and nobody else does:
///   * one_host (all ranks are on this machine): 127.0.0.1
///   * `master`, the name or address that the ranks are told, is the loopback ("localhost", 127.x, ::1): that
///   * otherwise the addresses of this machine that `master` stands for
///   * all of this machine where that does not say which: no master; a name that only this machine takes for the
///     loopback (Debian's 127.0.1.1); an address that a network translates to this machine
std::vector<std::string> listening_addresses(const std::string& master, bool one_host);

/// Whether all are the loopback's, which other machines cannot reach.
bool are_loopback(const std::vector<std::string>& addresses);

}  // namespace tern::dist
