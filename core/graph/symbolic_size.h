#pragma once
// Sizes as polynomials of symbols, and their fit to sizes that were seen.

#include <cstdint>
#include <string>
#include <vector>

namespace tern {

/// A whole number that may depend on symbols: a sum of products of symbols with whole factors, over one divisor:
/// "batch * length + 1". Each symbol has a power of at most 2.
class SymbolicSize {
 public:
  struct Term {
    int64_t factor = 0;
    std::vector<int> powers;  // of each symbol
  };

  SymbolicSize() = default;
  SymbolicSize(int64_t value);  // NOLINT(google-explicit-constructor): a size is a symbolic one
  /// One symbol of `count`.
  static SymbolicSize symbol(int index, int count);

  static SymbolicSize sum(const SymbolicSize& a, const SymbolicSize& b);
  static SymbolicSize difference(const SymbolicSize& a, const SymbolicSize& b);

  bool is_constant() const;
  /// Throws Error unless is_constant().
  int64_t constant() const;
  /// The index of the symbol that it is, or -1.
  int symbol_index() const;
  /// Its value for these sizes of the symbols. Throws Error when that is not whole, or does not fit 64 bits.
  int64_t at(const std::vector<int64_t>& symbols) const;
  std::string str(const std::vector<std::string>& names) const;
  /// The number is the sum of the terms, divided by divisor().
  const std::vector<Term>& terms() const { return terms_; }
  int64_t divisor() const { return divisor_; }

  friend bool operator==(const SymbolicSize& a, const SymbolicSize& b);

 private:
  friend class SymbolicFit;
  std::vector<Term> terms_;  // of different powers, without zeros
  int64_t divisor_ = 1;
};

/// A number of an op, which may be a size, or 1 / a size, that depends on symbols.
struct SymbolicNumber {
  double value = 0;  // where nothing depends on them
  SymbolicSize size = {};
  bool is_size = false, is_reciprocal = false;
  std::string text = {};
  double at(const std::vector<int64_t>& symbols) const {
    if (!is_size) return value;
    const auto whole = static_cast<double>(size.at(symbols));
    return is_reciprocal ? 1 / whole : whole;
  }
};

/// Finds the polynomial behind values at given points.
class SymbolicFit {
 public:
  /// samples[s]: the sizes of symbol s at which values are known, at least 2; the points are all combinations of them,
  /// the last symbol's the fastest. At most 3 sizes of each.
  explicit SymbolicFit(std::vector<std::vector<int64_t>> samples);
  const std::vector<std::vector<int64_t>>& points() const { return points_; }
  /// The polynomial, with powers below the number of a symbol's samples, that has these values at the points.
  SymbolicSize fit(const std::vector<int64_t>& values) const;
  /// The same for numbers that are whole, or whose reciprocals are, at every point. Throws Error naming `op` otherwise.
  SymbolicNumber fit_numbers(const std::string& op, const std::vector<double>& values,
                             const std::vector<std::string>& names) const;

 private:
  std::vector<std::vector<int64_t>> samples_, points_;
};

}  // namespace tern
