#include "tern/core/graph/symbolic_size.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "tern/kernels/base/check.h"

namespace tern {
namespace {

using Wide = __int128;

/// A fraction in lowest terms with a positive denominator.
struct Fraction {
  Wide over = 0, under = 1;
};

Wide common_divisor(Wide a, Wide b) {
  a = a < 0 ? -a : a;
  b = b < 0 ? -b : b;
  while (b != 0) a = std::exchange(b, a % b);
  return a;
}

Fraction reduced(Wide over, Wide under) {
  const Wide divisor = std::max<Wide>(common_divisor(over, under), 1) * (under < 0 ? -1 : 1);
  return {over / divisor, under / divisor};
}
Fraction sum(const Fraction& a, const Fraction& b) {
  return reduced(a.over * b.under + b.over * a.under, a.under * b.under);
}
Fraction product(const Fraction& a, const Fraction& b) { return reduced(a.over * b.over, a.under * b.under); }

/// The coefficients of the polynomial that is 1 at xs[one] and 0 at the other xs (Lagrange).
std::vector<Fraction> basis_polynomial(const std::vector<int64_t>& xs, size_t one) {
  std::vector<Fraction> coefficients = {{1, 1}};
  for (size_t i = 0; i < xs.size(); ++i) {
    if (i == one) continue;
    const Fraction scale = reduced(1, static_cast<Wide>(xs[one]) - xs[i]);
    std::vector<Fraction> next(coefficients.size() + 1);
    for (size_t p = 0; p < coefficients.size(); ++p) {
      next[p + 1] = sum(next[p + 1], product(coefficients[p], scale));
      next[p] = sum(next[p], product(coefficients[p], product(scale, {-xs[i], 1})));
    }
    coefficients = next;
  }
  return coefficients;
}

}  // namespace

SymbolicSize::SymbolicSize(int64_t value) {
  if (value != 0) terms_.push_back({value, {}});
}

SymbolicSize SymbolicSize::symbol(int index, int count) {
  SymbolicSize size;
  Term term{1, std::vector<int>(static_cast<size_t>(count), 0)};
  term.powers[static_cast<size_t>(index)] = 1;
  size.terms_.push_back(term);
  return size;
}

SymbolicSize SymbolicSize::sum(const SymbolicSize& a, const SymbolicSize& b) {
  std::map<std::vector<int>, int64_t, std::greater<>> factors;
  const auto add = [&](const SymbolicSize& from, int64_t scale) {
    for (const Term& term : from.terms_) {
      std::vector<int> powers = term.powers;
      while (!powers.empty() && powers.back() == 0) powers.pop_back();
      factors[powers] += term.factor * scale;
    }
  };
  add(a, b.divisor_);
  add(b, a.divisor_);
  SymbolicSize result;
  result.divisor_ = a.divisor_ * b.divisor_;
  int64_t divisor = result.divisor_;
  for (const auto& [powers, factor] : factors) divisor = std::gcd(divisor, factor);
  result.divisor_ /= divisor;
  for (const auto& [powers, factor] : factors)
    if (factor != 0) result.terms_.push_back({factor / divisor, powers});
  return result;
}

SymbolicSize SymbolicSize::difference(const SymbolicSize& a, const SymbolicSize& b) {
  SymbolicSize negative = b;
  for (Term& term : negative.terms_) term.factor = -term.factor;
  return sum(a, negative);
}

bool SymbolicSize::is_constant() const {
  return std::all_of(terms_.begin(), terms_.end(), [](const Term& term) {
    return std::all_of(term.powers.begin(), term.powers.end(), [](int p) { return p == 0; });
  });
}

int64_t SymbolicSize::constant() const {
  TERN_CHECK(is_constant(), "graph: a size depends on a symbol, expected a number");
  return at({});
}

int SymbolicSize::symbol_index() const {
  if (terms_.size() != 1 || terms_[0].factor != 1 || divisor_ != 1) return -1;
  int found = -1;
  for (size_t s = 0; s < terms_[0].powers.size(); ++s) {
    if (terms_[0].powers[s] == 0) continue;
    if (found >= 0 || terms_[0].powers[s] != 1) return -1;
    found = static_cast<int>(s);
  }
  return found;
}

int64_t SymbolicSize::at(const std::vector<int64_t>& symbols) const {
  Wide value = 0;
  for (const Term& term : terms_) {
    Wide part = term.factor;
    for (size_t s = 0; s < term.powers.size(); ++s)
      for (int p = 0; p < term.powers[s]; ++p) {
        part *= symbols.at(s);
        TERN_CHECK(part < (Wide{1} << 100) && part > -(Wide{1} << 100), "graph: a size does not fit 64 bits");
      }
    value += part;
  }
  TERN_CHECK(value % divisor_ == 0,
             "graph: with these sizes of the inputs, a size inside the graph is no whole number");
  value /= divisor_;
  TERN_CHECK(value <= INT64_MAX && value >= INT64_MIN, "graph: a size does not fit 64 bits");
  return static_cast<int64_t>(value);
}

std::string SymbolicSize::str(const std::vector<std::string>& names) const {
  if (terms_.empty()) return "0";
  std::string text;
  for (const Term& term : terms_) {
    std::string part;
    for (size_t s = 0; s < term.powers.size(); ++s)
      for (int p = 0; p < term.powers[s]; ++p) part += (part.empty() ? "" : " * ") + names.at(s);
    const int64_t size = term.factor < 0 ? -term.factor : term.factor;
    if (part.empty())
      part = std::to_string(size);
    else if (size != 1)
      part = std::to_string(size) + " * " + part;
    text += text.empty() ? (term.factor < 0 ? "-" : "") : (term.factor < 0 ? " - " : " + ");
    text += part;
  }
  if (divisor_ == 1) return text;
  return (terms_.size() > 1 ? "(" + text + ")" : text) + " / " + std::to_string(divisor_);
}

bool operator==(const SymbolicSize& a, const SymbolicSize& b) {
  if (a.divisor_ != b.divisor_ || a.terms_.size() != b.terms_.size()) return false;
  const auto trimmed = [](std::vector<int> powers) {
    while (!powers.empty() && powers.back() == 0) powers.pop_back();
    return powers;
  };
  for (size_t i = 0; i < a.terms_.size(); ++i)
    if (a.terms_[i].factor != b.terms_[i].factor || trimmed(a.terms_[i].powers) != trimmed(b.terms_[i].powers))
      return false;
  return true;
}

SymbolicFit::SymbolicFit(std::vector<std::vector<int64_t>> samples) : samples_(std::move(samples)) {
  points_.emplace_back();
  for (const std::vector<int64_t>& sizes : samples_) {
    std::vector<std::vector<int64_t>> longer;
    for (const std::vector<int64_t>& point : points_)
      for (const int64_t size : sizes) {
        longer.push_back(point);
        longer.back().push_back(size);
      }
    points_ = longer;
  }
}

SymbolicSize SymbolicFit::fit(const std::vector<int64_t>& values) const {
  if (std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; })) return {values[0]};
  std::map<std::vector<int>, Fraction, std::greater<>> sums;  // higher powers first
  for (size_t i = 0; i < points_.size(); ++i) {
    // The product over the symbols of the polynomials that are 1 at this point.
    std::map<std::vector<int>, Fraction> products = {{{}, {values[i], 1}}};
    size_t index = i;
    std::vector<size_t> which(samples_.size());
    for (size_t s = samples_.size(); s-- > 0; index /= samples_[s].size()) which[s] = index % samples_[s].size();
    for (size_t s = 0; s < samples_.size(); ++s) {
      const std::vector<Fraction> basis = basis_polynomial(samples_[s], which[s]);
      std::map<std::vector<int>, Fraction> longer;
      for (const auto& [powers, factor] : products)
        for (size_t p = 0; p < basis.size(); ++p) {
          std::vector<int> more = powers;
          more.push_back(static_cast<int>(p));
          longer[more] = product(factor, basis[p]);
        }
      products = longer;
    }
    for (const auto& [powers, factor] : products) sums[powers] = sum(sums[powers], factor);
  }
  Wide divisor = 1;
  for (const auto& [powers, factor] : sums) divisor = divisor / common_divisor(divisor, factor.under) * factor.under;
  SymbolicSize size;
  size.divisor_ = static_cast<int64_t>(divisor);
  for (const auto& [powers, factor] : sums)
    if (factor.over != 0) size.terms_.push_back({static_cast<int64_t>(factor.over * (divisor / factor.under)), powers});
  return size;
}

SymbolicNumber SymbolicFit::fit_numbers(const std::string& op, const std::vector<double>& values,
                                        const std::vector<std::string>& names) const {
  SymbolicNumber number{.value = values[0]};
  const auto is_first = [&](double v) { return v == values[0] || (std::isnan(v) && std::isnan(values[0])); };
  if (std::all_of(values.begin(), values.end(), is_first)) return number;
  for (const bool reciprocal : {false, true}) {
    std::vector<int64_t> whole;
    for (const double v : values) {
      const double size = reciprocal ? 1 / v : v, nearest = std::round(size);
      if (std::abs(nearest) > 0 && std::abs(nearest) < 0x1p53 && (reciprocal ? 1 / nearest : nearest) == v)
        whole.push_back(static_cast<int64_t>(nearest));
    }
    if (whole.size() != values.size()) continue;
    number.size = fit(whole);
    number.is_size = true;
    number.is_reciprocal = reciprocal;
    number.text = reciprocal ? "1 / (" + number.size.str(names) + ")" : number.size.str(names);
    return number;
  }
  fail("trace: a number among the arguments of ", op, " is ", values[0], ", and ", values.back(),
       " for another size of a dynamic dimension, which is neither a size nor 1 / a size");
}

}  // namespace tern
