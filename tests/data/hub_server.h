#pragma once
// A server on 127.0.0.1 that answers as Hugging Face's hub does, for as many of its addresses as are fetched from.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tern/data/files/sha256.h"

namespace tern::test {

struct HubRequest {
  std::string method, path;                    // the path as it was sent, with %XX and what follows "?"
  std::map<std::string, std::string> headers;  // names in lower case
};

struct HubReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  int64_t cut_after = -1;  // closes the connection after so many bytes of the body
  int64_t length = -1;     // what Content-Length says; -1: the body's
  bool without_length = false;
};

/// A model of the hub. Files of `large` are kept on another host, under their SHA-256.
struct HubRepo {
  std::string commit = {};
  std::map<std::string, std::string> small = {}, large = {};
  std::vector<std::string> also_listed = {};
  std::string token = {};                                    // that it needs
  std::map<std::string, std::string> refs = {{"main", ""}};  // branch or tag to commit; "": the commit
};

inline std::string git_sha1_of(const std::string& bytes) {
  data::Sha1 digest;
  digest.update("blob " + std::to_string(bytes.size()) + std::string(1, '\0') + bytes);
  return digest.hex();
}

class HubServer {
 public:
  HubServer() {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 64) != 0) std::abort();
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~HubServer() {
    stop_ = true;
    acceptor_.join();
    for (std::thread& thread : connections_) thread.join();
    close(listener_);
  }
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // Set these before a request comes.
  std::map<std::string, HubRepo> repos;
  std::map<std::string, std::string> renamed;  // from and to
  std::string large_files_at;                  // the url() of the server with them; empty: this one
  /// Is asked first; true: the reply is sent as it is. Called by several threads, one at a time.
  std::function<bool(const HubRequest&, HubReply&)> before;

  std::vector<HubRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  size_t count(const std::string& method, const std::string& part) const {
    size_t number = 0;
    for (const HubRequest& request : requests())
      number += request.method == method && request.path.find(part) != std::string::npos ? 1 : 0;
    return number;
  }
  void forget_requests() {
    const std::lock_guard lock(mutex_);
    requests_.clear();
  }
  void add_large(const std::string& bytes) { blobs_[data::sha256(bytes)] = bytes; }

  /// What the hub answers when nothing goes wrong.
  HubReply answer(const HubRequest& request) const {
    const std::string path = unquoted(request.path.substr(0, request.path.find('?')));
    if (path.starts_with("/large/")) {
      const auto found = blobs_.find(path.substr(7));
      return found == blobs_.end() ? HubReply{.status = 404} : ranged(request, {.body = found->second});
    }
    for (const auto& [from, to] : renamed)
      if (const size_t at = path.find("/" + from + "/"); at != path.npos) {
        std::string moved = path;
        return {.status = 307, .headers = {{"Location", moved.replace(at + 1, from.size(), to)}}};
      }
    for (const auto& [id, repo] : repos) {
      if (path.starts_with("/api/models/" + id + "/")) {
        const HubReply denied = access(request, repo);
        return denied.status != 200 ? denied : described(id, repo, path.substr(13 + id.size()));
      }
      if (path.starts_with("/" + id + "/resolve/")) {
        const HubReply denied = access(request, repo);
        return denied.status != 200 ? denied : resolved(request, repo, path.substr(10 + id.size()));
      }
    }
    return {.status = 401, .headers = {{"X-Error-Code", "RepoNotFound"}, {"X-Error-Message", "Repository not found"}}};
  }

 private:
  static HubReply access(const HubRequest& request, const HubRepo& repo) {
    const auto given = request.headers.find("authorization");
    if (repo.token.empty() || (given != request.headers.end() && given->second == "Bearer " + repo.token)) return {};
    return {.status = given == request.headers.end() ? 401 : 403,
            .headers = {{"X-Error-Code", "GatedRepo"}, {"X-Error-Message", "Access is restricted"}}};
  }

  /// The commit of "REV" at the start of the path, and what is left of it; "" for one that there is not.
  static std::pair<std::string, std::string> commit_in(const HubRepo& repo, const std::string& path) {
    for (const auto& [name, commit] : repo.refs)
      if (path == name || path.starts_with(name + "/"))
        return {commit.empty() ? repo.commit : commit, path.size() > name.size() ? path.substr(name.size() + 1) : ""};
    const std::string first = path.substr(0, path.find('/'));
    bool known = first == repo.commit;
    for (const auto& [name, commit] : repo.refs) known = known || first == commit;
    return {known ? first : "", path.size() > first.size() ? path.substr(first.size() + 1) : ""};
  }

  static HubReply described(const std::string& id, const HubRepo& repo, const std::string& path) {
    const bool tree = path.starts_with("tree/");
    const auto [commit, rest] = commit_in(repo, path.substr(path.find('/') + 1));
    if (commit.empty()) return {.status = 404, .headers = {{"X-Error-Code", "RevisionNotFound"}}};
    nlohmann::json files = nlohmann::json::array();
    const auto add = [&](const std::string& name, const std::string& bytes, bool large) {
      nlohmann::json entry = {{"type", "file"}, {"path", name}, {"size", bytes.size()}, {"oid", git_sha1_of(bytes)}};
      if (large) entry["lfs"] = {{"oid", data::sha256(bytes)}, {"size", bytes.size()}, {"pointerSize", 134}};
      files.push_back(tree ? entry : nlohmann::json{{"rfilename", name}});
    };
    for (const auto& [name, bytes] : repo.small) add(name, bytes, false);
    for (const auto& [name, bytes] : repo.large) add(name, bytes, true);
    for (const std::string& name : repo.also_listed) add(name, "", false);
    const nlohmann::json whole = {
        {"id", id},       {"sha", commit}, {"siblings", files}, {"private", false}, {"tags", nlohmann::json::array()},
        {"downloads", 0}, {"likes", 0}};
    return {.headers = {{"Content-Type", "application/json"}}, .body = (tree ? files : whole).dump()};
  }

  HubReply resolved(const HubRequest& request, const HubRepo& repo, const std::string& path) const {
    const auto [commit, name] = commit_in(repo, path);
    if (commit.empty()) return {.status = 404, .headers = {{"X-Error-Code", "RevisionNotFound"}}};
    if (const auto found = repo.small.find(name); found != repo.small.end())
      return ranged(request,
                    {.headers = {{"X-Repo-Commit", commit}, {"ETag", "\"" + git_sha1_of(found->second) + "\""}},
                     .body = found->second});
    if (const auto found = repo.large.find(name); found != repo.large.end()) {
      const std::string sum = data::sha256(found->second);
      return {.status = 302,
              .headers = {{"X-Repo-Commit", commit},
                          {"ETag", "\"" + git_sha1_of("pointer to " + sum) + "\""},
                          {"X-Linked-Etag", "\"" + sum + "\""},
                          {"X-Linked-Size", std::to_string(found->second.size())},
                          {"Location", (large_files_at.empty() ? url() : large_files_at) + "/large/" + sum}}};
    }
    return {.status = 404, .headers = {{"X-Error-Code", "EntryNotFound"}, {"X-Repo-Commit", commit}}};
  }

  static HubReply ranged(const HubRequest& request, HubReply reply) {
    const auto range = request.headers.find("range");
    reply.headers.emplace_back("Accept-Ranges", "bytes");
    if (range == request.headers.end()) return reply;
    const size_t from = std::stoull(range->second.substr(6)), size = reply.body.size();
    if (from >= size) return {.status = 416};
    reply.status = 206;
    reply.headers.emplace_back(
        "Content-Range", "bytes " + std::to_string(from) + "-" + std::to_string(size - 1) + "/" + std::to_string(size));
    reply.body.erase(0, from);
    return reply;
  }

  static std::string unquoted(const std::string& text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); ++i) {
      plain += text[i] == '%' ? static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16)) : text[i];
      if (text[i] == '%') i += 2;
    }
    return plain;
  }

  void accept_all() {
    while (!stop_) {
      pollfd ready{listener_, POLLIN, 0};
      if (poll(&ready, 1, 10) <= 0) continue;
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      connections_.emplace_back([this, connection] { serve(connection); });
    }
  }

  void serve(int connection) {
    std::string head;
    char buffer[4096];
    while (head.find("\r\n\r\n") == head.npos && head.size() < (1 << 16)) {
      pollfd ready{connection, POLLIN, 0};
      if (poll(&ready, 1, 5000) <= 0 || stop_) break;
      const ssize_t size = read(connection, buffer, sizeof buffer);
      if (size <= 0) break;
      head.append(buffer, static_cast<size_t>(size));
    }
    if (head.find("\r\n\r\n") != head.npos) reply(connection, parsed(head));
    shutdown(connection, SHUT_RDWR);
    close(connection);
  }

  static HubRequest parsed(const std::string& head) {
    HubRequest request;
    size_t at = head.find("\r\n");
    const size_t space = head.find(' '), second = head.find(' ', space + 1);
    request.method = head.substr(0, space);
    request.path = head.substr(space + 1, second - space - 1);
    while (at + 2 < head.size()) {
      const size_t end = head.find("\r\n", at + 2);
      const std::string line = head.substr(at + 2, end - at - 2);
      if (const size_t colon = line.find(": "); colon != line.npos) {
        std::string name = line.substr(0, colon);
        for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        request.headers[name] = line.substr(colon + 2);
      }
      at = end;
    }
    return request;
  }

  void reply(int connection, const HubRequest& request) {
    HubReply reply;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      if (!before || !before(request, reply)) reply = answer(request);
    }
    std::string text = "HTTP/1.1 " + std::to_string(reply.status) + " Said\r\nConnection: close\r\n";
    for (const auto& [name, value] : reply.headers) text += name + ": " + value + "\r\n";
    const int64_t length = reply.length >= 0 ? reply.length : static_cast<int64_t>(reply.body.size());
    if (!reply.without_length) text += "Content-Length: " + std::to_string(length) + "\r\n";
    text += "\r\n";
    if (request.method != "HEAD")
      text += reply.cut_after >= 0 ? reply.body.substr(0, static_cast<size_t>(reply.cut_after)) : reply.body;
    for (size_t at = 0; at < text.size();) {
      const ssize_t sent = send(connection, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return;
      at += static_cast<size_t>(sent);
    }
  }

  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;
  std::vector<HubRequest> requests_;
  std::map<std::string, std::string> blobs_;
  std::list<std::thread> connections_;
  std::thread acceptor_;
};

}  // namespace tern::test
