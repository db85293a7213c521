#include "tern/dist/store/addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>

namespace tern::dist {
namespace {

std::string digits(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  return getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

/// The numeric addresses of a host name or address, without duplicates; empty if it cannot be resolved.
std::vector<std::string> resolve(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  std::vector<std::string> addresses;
  if (host.empty() || getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return addresses;
  for (const addrinfo* i = found; i; i = i->ai_next) {
    const std::string address = digits(i->ai_addr, i->ai_addrlen);
    if (!address.empty() && std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

std::vector<std::string> local_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string address = digits(i->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (!address.empty() && address.find('%') == std::string::npos) addresses.push_back(address);
  }
  freeifaddrs(list);
  return addresses;
}

std::vector<std::string> listening_addresses(const std::string& master, bool one_host) {
  if (one_host) return {"127.0.0.1"};
  std::vector<std::string> local = local_addresses(), meant = resolve(master);
  std::erase_if(meant,
                [&](const std::string& a) { return !is_loopback(a) && std::ranges::find(local, a) == local.end(); });
  const bool says_loopback = master == "localhost" || is_loopback(master);
  if (!meant.empty() && (says_loopback || !are_loopback(meant))) return meant;
  // Ranks on this machine may resolve the master's name to the loopback.
  if (meant.empty()) meant = {"127.0.0.1"};
  local.insert(local.end(), meant.begin(), meant.end());
  return local;
}

bool are_loopback(const std::vector<std::string>& addresses) { return std::ranges::all_of(addresses, is_loopback); }

}  // namespace tern::dist
