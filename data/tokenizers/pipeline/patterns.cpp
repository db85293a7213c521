#include "tern/data/tokenizers/pipeline/patterns.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "tern/data/tokenizers/characters.h"

namespace tern::data {
namespace {

using unicode::Category;
using unicode::Character;
using unicode::character;

// ---- what the expressions ask of a code point ----

enum PatternClass : std::uint8_t {
  kPatternLetter = 1,   // \p{L}
  kPatternNumber = 2,   // \p{N}
  kPatternSpace = 4,    // \s
  kPatternNewline = 8,  // [\r\n]
  kPatternUpper = 16,   // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kPatternLower = 32,   // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kPatternSlash = 64,   // the character /
};

std::uint8_t compute_class(char32_t c) {
  const Character& entry = character(c);
  const auto category = static_cast<Category>(entry.category);
  const bool both = category == Category::kLm || category == Category::kLo || entry.is_mark();
  int found = entry.is_letter() ? kPatternLetter : entry.is_number() ? kPatternNumber : 0;
  if (entry.has(unicode::kWhiteSpace)) found |= kPatternSpace;
  if (c == '\r' || c == '\n') found |= kPatternNewline;
  if (both || category == Category::kLu || category == Category::kLt) found |= kPatternUpper;
  if (both || category == Category::kLl) found |= kPatternLower;
  if (c == '/') found |= kPatternSlash;
  return static_cast<std::uint8_t>(found);
}

/// Reads a text from left to right.
struct PatternCursor {
  const char* p;
  const char* end;

  bool at_end() const { return p == end; }
  /// The class of the next code point, which `size` bytes hold. Requires that there is one.
  std::uint8_t next(std::size_t& size) const {
    static const std::array<std::uint8_t, 128> ascii = [] {
      std::array<std::uint8_t, 128> table{};
      for (char32_t c = 0; c < 128; ++c) table[c] = compute_class(c);
      return table;
    }();
    const auto byte = static_cast<unsigned char>(*p);
    size = 1;
    if (byte < 0x80) return ascii[byte];
    const char* q = p;
    const char32_t c = unicode::decode_utf8(q, end);
    size = static_cast<std::size_t>(q - p);
    return compute_class(c);
  }
  /// Skips at most `most` code points that have a class of `any` and none of `none`; returns how many.
  std::size_t skip(std::uint8_t any, std::size_t most = SIZE_MAX) {
    std::size_t count = 0, size = 0;
    while (count < most && p < end && (next(size) & any) != 0) {
      p += size;
      ++count;
    }
    return count;
  }
  std::size_t skip_without(std::uint8_t none) {
    std::size_t count = 0, size = 0;
    while (p < end && (next(size) & none) == 0) {
      p += size;
      ++count;
    }
    return count;
  }
};

/// Matches 's, 't, 'm, 'd, 're, 've or 'll; if `fold`, in any case, and also U+017F for s (Unicode's case folding).
std::size_t contraction_at(const char* p, const char* end, bool fold) {
  if (end - p < 2 || *p != '\'') return 0;
  const auto letter = [&](std::size_t i) -> char {
    if (static_cast<std::size_t>(end - p) <= i) return 0;
    const char c = p[i];
    return fold && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  if (fold && end - p >= 3 && p[1] == '\xC5' && p[2] == '\xBF') return 3;
  return 0;
}

/// \s+(?!\S)|\s+ at white space: a run without its last character, which the next word may take, unless the run ends
/// the text or is one character.
void skip_space(PatternCursor& at) {
  const char* const begin = at.p;
  const char* last = begin;
  std::size_t size = 0;
  while (!at.at_end() && (at.next(size) & kPatternSpace) != 0) {
    last = at.p;
    at.p += size;
  }
  if (!at.at_end() && last != begin) at.p = last;
}

/// \s*[\r\n]+ at white space: up to the last line break of the run. Returns whether there is one.
bool skip_to_newline(PatternCursor& at) {
  PatternCursor ahead = at;
  const char* found = nullptr;
  std::size_t size = 0;
  while (!ahead.at_end()) {
    const std::uint8_t classes = ahead.next(size);
    if ((classes & kPatternSpace) == 0) break;
    ahead.p += size;
    if (classes & kPatternNewline) found = ahead.p;
  }
  if (found != nullptr) at.p = found;
  return found != nullptr;
}

/// Patterns that match every part of a text, one word after another.
class WordPattern : public Pattern {
 public:
  void find(std::string_view text, std::vector<Span>& spans) const final {
    PatternCursor at{text.data(), text.data() + text.size()};
    while (!at.at_end()) {
      const char* const begin = at.p;
      skip_word(at);
      spans.push_back(
          {static_cast<std::size_t>(begin - text.data()), static_cast<std::size_t>(at.p - text.data()), true});
    }
  }

 protected:
  virtual void skip_word(PatternCursor& at) const = 0;
};

constexpr std::uint8_t kNotSymbol = kPatternSpace | kPatternLetter | kPatternNumber;

class Gpt2Pattern final : public WordPattern {
  void skip_word(PatternCursor& at) const override {
    if (const std::size_t size = contraction_at(at.p, at.end, false)) {
      at.p += size;
      return;
    }
    const char* const begin = at.p;
    if (*at.p == ' ') ++at.p;
    if (!at.at_end() && (at.skip(kPatternLetter) || at.skip(kPatternNumber) || at.skip_without(kNotSymbol))) return;
    at.p = begin;
    skip_space(at);
  }
};

/// cl100k (GPT-4), Llama 3 and Qwen 2, which differ in the length of numbers.
class Cl100kPattern : public WordPattern {
 public:
  explicit Cl100kPattern(std::size_t digits, std::uint8_t trailing = kPatternNewline)
      : digits_(digits), trailing_(trailing) {}

 protected:
  void skip_word(PatternCursor& at) const override {
    if (const std::size_t size = contraction_at(at.p, at.end, true)) {
      at.p += size;
      return;
    }
    if (!skip_letters(at)) skip_rest(at);
  }

  /// [^\r\n\p{L}\p{N}]?\p{L}+
  static bool skip_letters(PatternCursor& at) {
    const char* const begin = at.p;
    std::size_t size = 0;
    if ((at.next(size) & (kPatternNewline | kPatternLetter | kPatternNumber)) == 0) at.p += size;
    if (at.skip(kPatternLetter)) return true;
    at.p = begin;
    return false;
  }

  void skip_rest(PatternCursor& at) const {
    if (at.skip(kPatternNumber, digits_)) return;
    const char* const begin = at.p;
    if (*at.p == ' ') ++at.p;
    if (at.skip_without(kNotSymbol)) {
      at.skip(trailing_);
      return;
    }
    at.p = begin;
    if (!skip_to_newline(at)) skip_space(at);
  }

 private:
  std::size_t digits_;
  std::uint8_t trailing_;
};

/// o200k (GPT-4o): words are also cut before an upper-case letter.
class O200kPattern final : public Cl100kPattern {
 public:
  O200kPattern() : Cl100kPattern(3, kPatternNewline | kPatternSlash) {}

 private:
  void skip_word(PatternCursor& at) const override {
    for (const bool lower_needed : {true, false}) {
      std::size_t size = 0;
      PatternCursor behind = at;
      if ((at.next(size) & (kPatternNewline | kPatternLetter | kPatternNumber)) == 0) {
        behind.p += size;
        if (skip_cased(behind, lower_needed)) return finish(at, behind);
        behind = at;
      }
      if (skip_cased(behind, lower_needed)) return finish(at, behind);
    }
    skip_rest(at);
  }

  /// Upper* Lower+, or Upper+ Lower*, with the backtracking of a greedy expression: marks and letters without case are
  /// in both classes.
  static bool skip_cased(PatternCursor& at, bool lower_needed) {
    const char* last_lower = nullptr;  // the end of the last code point of the run that is in both classes
    std::size_t count = 0, size = 0;
    for (; !at.at_end(); ++count) {
      const std::uint8_t classes = at.next(size);
      if ((classes & kPatternUpper) == 0) break;
      at.p += size;
      if (classes & kPatternLower) last_lower = at.p;
    }
    if (at.skip(kPatternLower)) return lower_needed || count > 0;
    if (!lower_needed) return count > 0;
    if (last_lower != nullptr) at.p = last_lower;
    return last_lower != nullptr;
  }

  static void finish(PatternCursor& at, const PatternCursor& behind) {
    at.p = behind.p;
    at.p += contraction_at(at.p, at.end, true);
  }
};

class TextPattern final : public Pattern {
 public:
  explicit TextPattern(std::string text) : text_(std::move(text)) {}
  void find(std::string_view text, std::vector<Span>& spans) const override {
    std::size_t done = 0;
    for (std::size_t at = text.find(text_); at != std::string_view::npos; at = text.find(text_, done)) {
      if (at > done) spans.push_back({done, at, false});
      done = at + text_.size();
      spans.push_back({at, done, true});
    }
    if (done < text.size()) spans.push_back({done, text.size(), false});
  }

 private:
  std::string text_;
};

// ---- expressions that are a few characters or classes, each with a count ----

struct PatternRange {
  char32_t first, last;
};

/// A character, \s, \d, \p{..} or a class in brackets.
struct PatternAtom {
  bool negated = false;
  std::uint32_t categories = 0;  // bits of Category
  bool space = false;
  std::vector<PatternRange> ranges;
  std::size_t least = 1, most = 1;

  bool matches(char32_t c) const {
    const Character& entry = character(c);
    bool found = (categories >> entry.category & 1) != 0 || (space && entry.has(unicode::kWhiteSpace));
    for (const PatternRange& range : ranges) found = found || (c >= range.first && c <= range.last);
    return found != negated;
  }
};

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : p_(text.data()), end_(text.data() + text.size()) {}

  /// The atoms of an expression; nothing if it has another form. All but the last have a fixed count, so that a match
  /// needs no backtracking.
  std::optional<std::vector<PatternAtom>> parse() {
    std::vector<PatternAtom> atoms;
    while (p_ < end_) {
      PatternAtom atom;
      if (!parse_atom(atom) || !parse_count(atom)) return std::nullopt;
      if (!atoms.empty() && atoms.back().least != atoms.back().most) return std::nullopt;
      atoms.push_back(std::move(atom));
      if (atoms.size() > 64) return std::nullopt;
    }
    if (atoms.empty()) return std::nullopt;
    return atoms;
  }

 private:
  bool take(char c) {
    if (p_ == end_ || *p_ != c) return false;
    ++p_;
    return true;
  }

  bool parse_atom(PatternAtom& atom) {
    if (take('[')) return parse_class(atom);
    if (take('\\')) return parse_escape(atom);
    if (std::string_view("|()[]{}*+?.^$").find(*p_) != std::string_view::npos) return false;
    const char32_t c = unicode::next_code_point(p_, end_);
    atom.ranges.push_back({c, c});
    return true;
  }

  bool parse_class(PatternAtom& atom) {
    atom.negated = take('^');
    bool empty = true;
    while (p_ < end_ && *p_ != ']') {
      empty = false;
      if (take('\\')) {
        if (!parse_escape(atom)) return false;
        if (p_ < end_ && *p_ == '-') return false;
        continue;
      }
      if (*p_ == '[' || *p_ == '&' || *p_ == '-') return false;
      const char32_t first = unicode::next_code_point(p_, end_);
      char32_t last = first;
      if (take('-')) {
        if (p_ == end_ || std::string_view("]\\[&-").find(*p_) != std::string_view::npos) return false;
        last = unicode::next_code_point(p_, end_);
      }
      if (last < first) return false;
      atom.ranges.push_back({first, last});
    }
    return !empty && take(']');
  }

  bool parse_escape(PatternAtom& atom) {
    if (p_ == end_) return false;
    const char c = *p_++;
    if (c == 's') {
      atom.space = true;
    } else if (c == 'd') {
      atom.categories |= 1u << static_cast<int>(Category::kNd);
    } else if (c == 'n' || c == 'r' || c == 't') {
      const char32_t plain = c == 'n' ? U'\n' : c == 'r' ? U'\r' : U'\t';
      atom.ranges.push_back({plain, plain});
    } else if (c == 'p') {
      return parse_property(atom);
    } else {
      if (c < '!' || c > '~' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))
        return false;
      atom.ranges.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
    }
    return true;
  }

  bool parse_property(PatternAtom& atom) {
    constexpr std::string_view kNames = "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCoCn";
    if (!take('{')) return false;
    const char* const begin = p_;
    while (p_ < end_ && *p_ != '}') ++p_;
    const std::string_view name(begin, static_cast<std::size_t>(p_ - begin));
    if (!take('}') || name.empty() || name.size() > 2 || name[0] == 'C') return false;
    std::uint32_t found = 0;
    for (std::size_t i = 0; i < kNames.size() / 2; ++i)
      if (kNames.substr(i * 2, name.size()) == name) found |= 1u << i;
    atom.categories |= found;
    return found != 0;
  }

  bool parse_count(PatternAtom& atom) {
    if (take('+')) {
      atom.most = SIZE_MAX;
    } else if (take('{')) {
      if (!parse_number(atom.least)) return false;
      atom.most = atom.least;
      if (take(',') && !parse_number(atom.most)) atom.most = SIZE_MAX;
      if (!take('}') || atom.least == 0 || atom.most < atom.least) return false;
    }
    return p_ == end_ || (*p_ != '+' && *p_ != '?' && *p_ != '*' && *p_ != '{');
  }

  bool parse_number(std::size_t& number) {
    const char* const begin = p_;
    number = 0;
    while (p_ < end_ && *p_ >= '0' && *p_ <= '9' && p_ - begin < 6)
      number = number * 10 + static_cast<std::size_t>(*p_++ - '0');
    return p_ != begin;
  }

  const char* p_;
  const char* end_;
};

class AtomsPattern final : public Pattern {
 public:
  explicit AtomsPattern(std::vector<PatternAtom> atoms) : atoms_(std::move(atoms)) {}
  void find(std::string_view text, std::vector<Span>& spans) const override {
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    std::size_t done = 0;
    for (const char* p = begin; p < end;) {
      const char* const stop = match(p, end);
      if (stop == nullptr) {
        unicode::next_code_point(p, end);
        continue;
      }
      const auto at = static_cast<std::size_t>(p - begin);
      if (at > done) spans.push_back({done, at, false});
      done = static_cast<std::size_t>(stop - begin);
      spans.push_back({at, done, true});
      p = stop;
    }
    if (done < text.size()) spans.push_back({done, text.size(), false});
  }

 private:
  const char* match(const char* p, const char* end) const {
    for (const PatternAtom& atom : atoms_) {
      std::size_t count = 0;
      for (const char* q = p; count < atom.most && q < end && atom.matches(unicode::next_code_point(q, end)); ++count)
        p = q;
      if (count < atom.least) return nullptr;
    }
    return p;
  }
  std::vector<PatternAtom> atoms_;
};

constexpr const char* kGpt2Expression =
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re";
constexpr const char* kCl100kExpressions[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})re"
    R"re(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3})re"
    R"re(| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)re",
    R"re('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*)re"
    R"re(|\s*[\r\n]|\s+(?!\S)|\s+)re",
};
constexpr const char* kQwen2Expression =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kO200kExpression =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re)re"
    R"re(|'ve|'m|'ll|'d)?)re"
    R"re(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t)re"
    R"re(|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

}  // namespace

const Pattern& gpt2_pattern() {
  static const Gpt2Pattern pattern;
  return pattern;
}

std::unique_ptr<const Pattern> read_pattern(const JsonField& field) {
  if (const auto text = field.find("String")) {
    TERN_CHECK(!text->text().empty(), text->where(), ": the pattern is empty, it would match everywhere");
    return std::make_unique<TextPattern>(text->text());
  }
  const JsonField regex = field.at("Regex");
  const std::string& expression = regex.text();
  if (expression == kGpt2Expression) return std::make_unique<Gpt2Pattern>();
  for (const char* known : kCl100kExpressions)
    if (expression == known) return std::make_unique<Cl100kPattern>(3);
  if (expression == kQwen2Expression) return std::make_unique<Cl100kPattern>(1);
  if (expression == kO200kExpression) return std::make_unique<O200kPattern>();
  if (auto atoms = PatternParser(expression).parse()) return std::make_unique<AtomsPattern>(std::move(*atoms));
  fail(regex.where(), ": Tern does not have the regular expression ", shortened(regex.value()),
       "; it has those of GPT-2, GPT-4, GPT-4o, Llama 3 and Qwen 2, and characters or classes with counts");
}

}  // namespace tern::data
