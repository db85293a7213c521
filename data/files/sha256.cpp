#include "tern/data/files/sha256.h"

#include <openssl/evp.h>

#include "tern/kernels/base/check.h"

namespace tern::data {

Sha256::Sha256(const char* algorithm) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  TERN_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_get_digestbyname(algorithm), nullptr) == 1,
             "sha256: OpenSSL offers no ", algorithm);
}

void Sha256::update(std::string_view bytes) {
  TERN_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "sha256: OpenSSL failed");
}

void Sha256::update(uint64_t number) {
  char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (8 * i));
  update(std::string_view(bytes, 8));
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TERN_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &size) == 1, "sha256: OpenSSL failed");
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

std::string sha256(std::string_view bytes) {
  Sha256 digest;
  digest.update(bytes);
  return digest.hex();
}

}  // namespace tern::data
