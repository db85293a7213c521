#include "tern/core/ops/matmul/einsum.h"

#include <algorithm>
#include <cctype>

#include "tern/core/ops/matmul/matmul.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"

namespace tern {
namespace {

/// An operand whose dimensions have labels: letters, and from kEllipsis on numbers, which count from the last dimension
/// of the ellipsis.
using Labels = std::vector<int>;
constexpr int kEllipsis = 256;
struct Term {
  Tensor x;
  Labels labels;
};

bool contains(const Labels& labels, int label) { return std::count(labels.begin(), labels.end(), label) > 0; }

/// The position of a label that is there.
int place_of_label(const Labels& labels, int label) {
  return static_cast<int>(std::find(labels.begin(), labels.end(), label) - labels.begin());
}

std::string name_of_label(int label) {
  return label < kEllipsis ? std::string(1, static_cast<char>(label)) : std::string("...");
}

/// The labels of one side of an equation; the ellipsis has `ellipsis` dimensions.
Labels labels_of(const std::string& text, int ellipsis) {
  Labels labels;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '.') {
      TERN_CHECK(std::isalpha(static_cast<unsigned char>(text[i])),
                 "einsum: expected letters, \"...\", \",\" and \"->\", got \"", text[i], "\" in \"", text, "\"");
      labels.push_back(text[i]);
      continue;
    }
    TERN_CHECK(text.compare(i, 3, "...") == 0 && text.find('.', i + 3) == std::string::npos, "einsum: \"", text,
               "\" may contain one ellipsis of three points");
    for (int d = ellipsis - 1; d >= 0; --d) labels.push_back(kEllipsis + d);
    i += 2;
  }
  return labels;
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

/// An operand with labels; a label that is repeated becomes a diagonal.
Term labelled(const Tensor& x, const std::string& text, size_t number) {
  const auto letters = static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return c != '.'; }));
  const bool open = text.find('.') != std::string::npos;
  TERN_CHECK(open ? letters <= x.dim() : letters == x.dim(), "einsum: \"", text, "\" has ", letters,
             " indices, operand ", number, " has shape ", x.shape());
  Term term{x, labels_of(text, x.dim() - letters)};
  for (size_t i = 0; i < term.labels.size(); ++i) {
    const int label = term.labels[i];
    const auto next = std::find(term.labels.begin() + static_cast<int64_t>(i) + 1, term.labels.end(), label);
    if (next == term.labels.end()) continue;
    const int first = static_cast<int>(i), second = static_cast<int>(next - term.labels.begin());
    TERN_CHECK(term.x.size(first) == term.x.size(second), "einsum: index ", name_of_label(label),
               " is repeated for operand ", number, " with sizes ", term.x.size(first), " and ", term.x.size(second));
    term.x = term.x.diagonal(0, first, second).movedim(-1, first);
    term.labels.erase(next);
    --i;  // a third one
  }
  return term;
}

/// "..." and then the letters that occur once, in alphabetical order.
Labels implied_output(const std::vector<std::string>& texts, int ellipsis) {
  std::string letters;
  for (const std::string& text : texts)
    std::copy_if(text.begin(), text.end(), std::back_inserter(letters), [](char c) { return c != '.'; });
  Labels output = labels_of("...", ellipsis);
  std::sort(letters.begin(), letters.end());
  for (const char c : letters)
    if (std::count(letters.begin(), letters.end(), c) == 1) output.push_back(c);
  return output;
}

/// Sums the dimensions whose label is not in `kept`.
Term without_others(const Term& term, const Labels& kept) {
  std::vector<int> summed;
  Labels labels;
  for (size_t d = 0; d < term.labels.size(); ++d)
    if (contains(kept, term.labels[d]))
      labels.push_back(term.labels[d]);
    else
      summed.push_back(static_cast<int>(d));
  return summed.empty() ? term : Term{sum(term.x, summed), labels};
}

/// Drops dimensions of size 1 of labels that `other` has with another size: they broadcast.
Term without_broadcast(const Term& term, const Term& other) {
  Term result{term.x, {}};
  std::vector<int> dropped;
  for (size_t d = 0; d < term.labels.size(); ++d) {
    const int label = term.labels[d];
    const bool broadcasts = contains(other.labels, label) && term.x.size(static_cast<int>(d)) == 1 &&
                            other.x.size(place_of_label(other.labels, label)) != 1;
    if (broadcasts)
      dropped.push_back(static_cast<int>(d));
    else
      result.labels.push_back(label);
  }
  if (!dropped.empty()) result.x = term.x.squeeze(dropped);
  return result;
}

/// The term as [batch, rows, cols], where each is the product of the dimensions of these labels.
Tensor as_matrices(const Term& term, const Labels& batch, const Labels& rows, const Labels& cols) {
  std::vector<int> order;
  std::vector<int64_t> sizes;
  for (const Labels& group : {batch, rows, cols}) {
    int64_t size = 1;
    for (const int label : group) {
      order.push_back(place_of_label(term.labels, label));
      size *= term.x.size(order.back());
    }
    sizes.push_back(size);
  }
  return term.x.permute(order).reshape(sizes);
}

/// Multiplies two terms and sums over the labels that are not kept.
Term product(const Term& first, const Term& second, const Labels& kept) {
  Term a = without_broadcast(first, second), b = without_broadcast(second, first);
  // A label that is now in one of them only is summed there.
  const Labels labels_of_a = a.labels, labels_of_b = b.labels;
  const auto keep = [&](const Labels& other) {
    Labels all = kept;
    all.insert(all.end(), other.begin(), other.end());
    return all;
  };
  a = without_others(a, keep(labels_of_b));
  b = without_others(b, keep(labels_of_a));
  Labels batch, rows, cols, summed;
  for (const int label : a.labels)
    (!contains(b.labels, label) ? rows : contains(kept, label) ? batch : summed).push_back(label);
  for (const int label : b.labels)
    if (!contains(a.labels, label)) cols.push_back(label);

  const Tensor left = as_matrices(a, batch, rows, summed), right = as_matrices(b, batch, summed, cols);
  const DType dtype = promote(left.dtype(), right.dtype());  // a sum over integers is int64
  const bool integers = !is_floating(dtype) && left.dtype() != right.dtype();
  Term result{summed.empty() ? mul(left, right)
              : integers     ? matmul(left.to(dtype), right.to(dtype))
                             : matmul(left, right),
              batch};
  result.labels.insert(result.labels.end(), rows.begin(), rows.end());
  result.labels.insert(result.labels.end(), cols.begin(), cols.end());
  std::vector<int64_t> sizes;
  for (const int label : result.labels)
    sizes.push_back(contains(a.labels, label) ? a.x.size(place_of_label(a.labels, label))
                                              : b.x.size(place_of_label(b.labels, label)));
  result.x = result.x.reshape(sizes);
  return result;
}

/// Throws Error unless the sizes of each label are equal or 1.
void check_sizes(const std::vector<Term>& terms) {
  for (size_t i = 0; i < terms.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      for (size_t d = 0; d < terms[i].labels.size(); ++d) {
        const int label = terms[i].labels[d];
        if (!contains(terms[j].labels, label)) continue;
        const int64_t size = terms[i].x.size(static_cast<int>(d)),
                      seen = terms[j].x.size(place_of_label(terms[j].labels, label));
        TERN_CHECK(size == seen || size == 1 || seen == 1, "einsum: index ", name_of_label(label), " has size ", size,
                   " in operand ", i, " and ", seen, " in operand ", j, "; expected equal sizes or 1");
      }
}

Labels given_output(const std::string& text, const std::vector<Term>& terms, int ellipsis) {
  const Labels output = labels_of(text, ellipsis);
  for (const int label : output) {
    TERN_CHECK(std::count(output.begin(), output.end(), label) == 1, "einsum: index ", name_of_label(label),
               " is repeated in the result");
    TERN_CHECK(std::any_of(terms.begin(), terms.end(), [&](const Term& term) { return contains(term.labels, label); }),
               "einsum: index ", name_of_label(label), " of the result is in no operand");
  }
  return output;
}

}  // namespace

Tensor einsum(const std::string& equation, const std::vector<Tensor>& operands) {
  TERN_CHECK(!operands.empty(), "einsum: expected at least one operand");
  std::string text = equation;
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  const std::vector<std::string> texts = split_at_commas(text.substr(0, arrow));
  TERN_CHECK(texts.size() == operands.size(), "einsum: \"", equation, "\" has ", texts.size(), " operands, got ",
             operands.size());
  std::vector<Term> terms;
  int ellipsis = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    terms.push_back(labelled(operands[i], texts[i], i));
    for (const int label : terms[i].labels) ellipsis = std::max(ellipsis, label - kEllipsis + 1);
  }
  check_sizes(terms);
  const Labels output = arrow == std::string::npos ? implied_output(texts, ellipsis)
                                                   : given_output(text.substr(arrow + 2), terms, ellipsis);
  Term result = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    Labels kept = output;
    for (size_t j = i + 1; j < terms.size(); ++j)
      kept.insert(kept.end(), terms[j].labels.begin(), terms[j].labels.end());
    result = product(result, terms[i], kept);
  }
  result = without_others(result, output);
  std::vector<int> order;
  for (const int label : output) order.push_back(place_of_label(result.labels, label));
  return result.x.permute(order);
}

Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& dims_a, const std::vector<int>& dims_b) {
  TERN_CHECK(dims_a.size() == dims_b.size(), "tensordot: ", dims_a.size(), " dimensions of a and ", dims_b.size(),
             " of b");
  Term left{a, {}}, right{b, {}};
  Labels kept;
  for (int d = 0; d < a.dim() + b.dim(); ++d) {
    (d < a.dim() ? left : right).labels.push_back(d);
    kept.push_back(d);
  }
  for (size_t i = 0; i < dims_a.size(); ++i) {
    const int of_a = a.shape().wrap(dims_a[i]), of_b = b.shape().wrap(dims_b[i]);
    TERN_CHECK(a.size(of_a) == b.size(of_b), "tensordot: dimension ", dims_a[i], " of ", a.shape(), " and ", dims_b[i],
               " of ", b.shape(), " have different sizes");
    TERN_CHECK(contains(kept, of_a) && right.labels[static_cast<size_t>(of_b)] >= a.dim(),
               "tensordot: a dimension is repeated");
    std::erase(kept, of_a);
    right.labels[static_cast<size_t>(of_b)] = of_a;
  }
  return product(left, right, kept).x;
}

Tensor tensordot(const Tensor& a, const Tensor& b, int dims) {
  TERN_CHECK(dims >= 0 && dims <= a.dim() && dims <= b.dim(), "tensordot: ", dims, " dimensions of ", a.shape(),
             " and ", b.shape());
  std::vector<int> of_a, of_b;
  for (int d = 0; d < dims; ++d) {
    of_a.push_back(a.dim() - dims + d);
    of_b.push_back(d);
  }
  return tensordot(a, b, of_a, of_b);
}

}  // namespace tern
