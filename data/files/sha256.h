#pragma once
// SHA-256 (FIPS 180-4), by OpenSSL.

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace tern::data {

/// A running digest: update any number of times, then hex() once.
class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  /// Adds a 64-bit number as eight little-endian bytes. Hashing lengths this way keeps adjacent fields distinct.
  void update(uint64_t number);
  /// 64 lower-case hexadecimal digits.
  std::string hex();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

std::string sha256(std::string_view bytes);

}  // namespace tern::data
