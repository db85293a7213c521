#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <unistd.h>

#include <cerrno>

#include "tern/dist/store/store.h"
#include "tern/dist/store/tcp_protocol.h"
#include "tern/kernels/base/check.h"

namespace tern::dist {
namespace {

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  TERN_CHECK(getentropy(bytes.data(), bytes.size()) == 0, "store: no random numbers: ", std::strerror(errno));
  return bytes;
}

}  // namespace

std::string random_secret() {
  std::string text;
  for (const char c : random_bytes(16))
    for (const int shift : {4, 0}) text += "0123456789abcdef"[(static_cast<unsigned char>(c) >> shift) & 15];
  return text;
}

std::string tcp::nonce() { return random_bytes(kNonceBytes); }

std::string tcp::proof(const std::string& secret, Side side, const std::string& hello,
                       const std::string& server_nonce) {
  const std::string text = Writer().number(side).string(hello).string(server_nonce).text();
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  TERN_CHECK(HMAC(EVP_sha256(), secret.c_str(), static_cast<int>(secret.size()),
                  reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash, &size) != nullptr,
             "store: OpenSSL computes no SHA-256");
  return std::string(reinterpret_cast<const char*>(hash), size);
}

bool tcp::equal_proofs(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tern::dist
