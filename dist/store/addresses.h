#pragma once
// Selects the addresses of this machine at which the ranks of a job connect.

#include <string>
#include <vector>

namespace tern::dist {

/// Numeric addresses at which other machines can reach this one; link-local ones (fe80::) are excluded.
std::vector<std::string> local_addresses();

/// The numeric addresses at which rank 0's store listens, so that the other ranks reach it and nothing else does:
///   * one_host (all ranks are on this machine): 127.0.0.1
///   * `master`, the name or address given to the ranks, is the loopback ("localhost", 127.x, ::1): that address
///   * otherwise the addresses of this machine that `master` resolves to
///   * all addresses of this machine if that gives none: no master; a name that only this machine resolves to the
///   loopback (Debian's 127.0.1.1); an address that a network translates to this machine
std::vector<std::string> listening_addresses(const std::string& master, bool one_host);

/// Whether all are loopback addresses, which other machines cannot reach.
bool are_loopback(const std::vector<std::string>& addresses);

}  // namespace tern::dist
