#pragma once
// SHA-256 and SHA-1 (FIPS 180-4), by OpenSSL.

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace tern::data {

/// A running digest: update any number of times, then hex() once.
class Sha256 {
 public:
  Sha256() : Sha256("SHA256") {}
  void update(std::string_view bytes);
  /// Adds a 64-bit number as eight little-endian bytes. Hashing lengths this way keeps adjacent fields distinct.
  void update(uint64_t number);
  /// 64 lower-case hexadecimal digits.
  std::string hex();

 protected:
  explicit Sha256(const char* algorithm);

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

/// SHA-1, by which git names its objects; hex() has 40 digits.
class Sha1 : public Sha256 {
 public:
  Sha1() : Sha256("SHA1") {}
};

std::string sha256(std::string_view bytes);

}  // namespace tern::data
