#include "tern/data/tokenizers/pipeline/pre_tokenizers.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "tern/data/tokenizers/characters.h"
#include "tern/data/tokenizers/pipeline/normalizers.h"
#include "tern/data/tokenizers/pipeline/patterns.h"

namespace tern::data {
namespace {

using unicode::character;

/// What becomes of the matches of a splitter.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior read_behavior(const JsonField& field) {
  const std::string& name = field.text();
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  field.reject("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

/// Adds the parts of a word that a behaviour makes of matches and the parts between them.
void append_parts(std::vector<Word>& out, const Word& word, const std::vector<Span>& spans, Behavior behavior) {
  const auto add = [&](std::size_t begin, std::size_t end) { Words::append_part(out, word, begin, end); };
  for (std::size_t i = 0; i < spans.size();) {
    std::size_t next = i + 1;
    switch (behavior) {
      case Behavior::kRemoved:
        if (!spans[i].match) add(spans[i].begin, spans[i].end);
        break;
      case Behavior::kIsolated:
        add(spans[i].begin, spans[i].end);
        break;
      case Behavior::kContiguous:
        while (next < spans.size() && spans[next].match == spans[i].match) ++next;
        add(spans[i].begin, spans[next - 1].end);
        break;
      case Behavior::kMergedWithPrevious:
        if (!spans[i].match && next < spans.size() && spans[next].match) ++next;
        add(spans[i].begin, spans[next - 1].end);
        break;
      case Behavior::kMergedWithNext:
        if (spans[i].match && next < spans.size() && !spans[next].match) ++next;
        add(spans[i].begin, spans[next - 1].end);
        break;
    }
    i = next;
  }
}

/// Cuts every word at the spans that `find(text, spans)` gives.
template <class Find>
void split_words(Words& words, Behavior behavior, bool invert, const Find& find) {
  std::vector<Word> out;
  out.reserve(words.text.size() / 4 + words.list.size());
  std::vector<Span> spans;
  for (const Word& word : words.list) {
    spans.clear();
    find(words.view(word), spans);
    if (invert)
      for (Span& span : spans) span.match = !span.match;
    append_parts(out, word, spans, behavior);
  }
  words.list = std::move(out);
}

/// Divides the text into spans: each code point for which is_match() is true is one, and so is the text between two.
template <class IsMatch>
void find_characters(std::string_view text, std::vector<Span>& spans, const IsMatch& is_match) {
  const char* const begin = text.data();
  std::size_t done = 0;
  for (const char *p = begin, *end = begin + text.size(); p < end;) {
    const auto at = static_cast<std::size_t>(p - begin);
    if (!is_match(unicode::next_code_point(p, end))) continue;
    if (at > done) spans.push_back({done, at, false});
    done = static_cast<std::size_t>(p - begin);
    spans.push_back({at, done, true});
  }
  if (done < text.size()) spans.push_back({done, text.size(), false});
}

/// Splits at the code points that have a flag.
struct FlagSplitter : PreTokenizer {
  std::uint16_t flag;
  Behavior behavior;
  FlagSplitter(std::uint16_t flag, Behavior behavior) : flag(flag), behavior(behavior) {}
  void apply(Words& words) const override {
    split_words(words, behavior, false, [this](std::string_view text, std::vector<Span>& spans) {
      find_characters(text, spans, [this](char32_t c) { return character(c).has(flag); });
    });
  }
};

struct BertSplitter : PreTokenizer {
  void apply(Words& words) const override {
    std::vector<Word> out;
    out.reserve(words.text.size() / 4 + words.list.size());
    for (const Word& word : words.list) {
      const std::string_view text = words.view(word);
      const char* const begin = text.data();
      std::size_t start = 0;
      for (const char *p = begin, *end = begin + text.size(); p < end;) {
        const auto at = static_cast<std::size_t>(p - begin);
        const unicode::Character& entry = character(unicode::next_code_point(p, end));
        if (!entry.has(unicode::kWhiteSpace | unicode::kBertPunctuation)) continue;
        Words::append_part(out, word, start, at);
        start = static_cast<std::size_t>(p - begin);
        if (!entry.has(unicode::kWhiteSpace)) Words::append_part(out, word, at, start);
      }
      Words::append_part(out, word, start, text.size());
    }
    words.list = std::move(out);
  }
};

constexpr int kDropped = 0, kAsBefore = -1;

/// Splits where the kind of the code points changes: kDropped, kAsBefore (that of the one before, kDropped at the
/// beginning), or any other number.
template <class KindOf>
void split_by_kind(Words& words, const KindOf& kind_of) {
  std::vector<Word> out;
  for (const Word& word : words.list) {
    const std::string_view text = words.view(word);
    const char* const begin = text.data();
    std::size_t start = 0;
    int kind = kDropped;  // of the code points from start on
    for (const char *p = begin, *end = begin + text.size(); p < end;) {
      const auto at = static_cast<std::size_t>(p - begin);
      const int now = kind_of(unicode::next_code_point(p, end));
      if (now == kAsBefore || now == kind) continue;
      if (kind != kDropped) Words::append_part(out, word, start, at);
      start = at;
      kind = now;
    }
    if (kind != kDropped) Words::append_part(out, word, start, text.size());
  }
  words.list = std::move(out);
}

/// \w+|[^\w\s]+
struct WhitespaceSplitter : PreTokenizer {
  void apply(Words& words) const override {
    split_by_kind(words, [](char32_t c) {
      const unicode::Character& entry = character(c);
      return entry.has(unicode::kWordCharacter) ? 1 : entry.has(unicode::kWhiteSpace) ? kDropped : 2;
    });
  }
};

struct ScriptRange {
  std::uint32_t first;  // of the code points up to the next range
  std::uint8_t script;
};
#include "tern/data/tokenizers/unicode/scripts.inc"

/// Hiragana, katakana and ideographs are of one script; 0 is that of what goes with any other.
std::uint8_t script_of(char32_t c) {
  const auto after = std::upper_bound(std::begin(kScriptRanges), std::end(kScriptRanges), c,
                                      [](char32_t value, const ScriptRange& range) { return value < range.first; });
  return (after - 1)->script;
}

/// Splits where the script changes. What goes with any script stays with the code point before it; before the first
/// code point of a script it is dropped, as by the library.
struct ScriptSplitter : PreTokenizer {
  void apply(Words& words) const override {
    split_by_kind(words, [](char32_t c) {
      const int script = script_of(c);
      return script == 0 ? kAsBefore : script;
    });
  }
};

struct DelimiterSplitter : PreTokenizer {
  std::string delimiter;
  explicit DelimiterSplitter(const JsonField& field) : delimiter(field.at("delimiter").one_character()) {}
  void apply(Words& words) const override {
    const char* p = delimiter.data();
    const char32_t wanted = unicode::next_code_point(p, p + delimiter.size());
    split_words(words, Behavior::kRemoved, false, [wanted](std::string_view text, std::vector<Span>& spans) {
      find_characters(text, spans, [wanted](char32_t c) { return c == wanted; });
    });
  }
};

struct PatternSplitter : PreTokenizer {
  std::unique_ptr<const Pattern> pattern;
  Behavior behavior;
  bool invert;
  explicit PatternSplitter(const JsonField& field)
      : pattern(read_pattern(field.at("pattern"))),
        behavior(read_behavior(field.at("behavior"))),
        invert(field.at("invert").boolean()) {}
  void apply(Words& words) const override {
    split_words(words, behavior, invert,
                [this](std::string_view text, std::vector<Span>& spans) { pattern->find(text, spans); });
  }
};

struct FixedLengthSplitter : PreTokenizer {
  std::size_t length = 5;
  explicit FixedLengthSplitter(const JsonField& field) {
    if (const auto given = field.find("length")) length = static_cast<std::size_t>(given->integer(1, INT32_MAX));
  }
  void apply(Words& words) const override {
    std::vector<Word> out;
    for (const Word& word : words.list) {
      const std::string_view text = words.view(word);
      std::size_t start = 0, count = 0;
      for (const char *p = text.data(), *end = p + text.size(); p < end;) {
        unicode::next_code_point(p, end);
        const auto at = static_cast<std::size_t>(p - text.data());
        if (++count % length != 0 && p < end) continue;
        Words::append_part(out, word, start, at);
        start = at;
      }
    }
    words.list = std::move(out);
  }
};

/// Puts a prefix in front of the words for which `wanted` holds, and rewrites the text of each by `replace`.
template <class Wanted, class Replace>
void rebuild(Words& words, std::string_view prefix, const Wanted& wanted, const Replace& replace) {
  Words out;
  out.text.reserve(words.text.size() + words.text.size() / 8 + words.list.size() * prefix.size() + 8);
  out.list.reserve(words.list.size());
  for (const Word& word : words.list) {
    const std::string_view text = words.view(word);
    const std::size_t begin = out.text.size();
    if (wanted(word, text)) out.text += prefix;
    const std::size_t origin = replace(out.text, text, word.origin);
    out.list.push_back({begin, out.text.size(), word.origin > 0 ? origin - begin : 0});
  }
  words = std::move(out);
}

struct MetaspaceSplitter : PreTokenizer {
  enum class Prepend { kAlways, kFirst, kNever };
  std::string replacement;
  Prepend prepend = Prepend::kAlways;
  bool split;

  explicit MetaspaceSplitter(const JsonField& field)
      : replacement(field.at("replacement").one_character()), split(field.boolean_or("split", true)) {
    if (const auto scheme = field.find("prepend_scheme")) {
      const std::string& name = scheme->text();
      prepend = name == "first" ? Prepend::kFirst : name == "never" ? Prepend::kNever : Prepend::kAlways;
      if (prepend == Prepend::kAlways && name != "always") scheme->reject("always, first or never");
    }
    if (!field.boolean_or("add_prefix_space", true)) {
      TERN_CHECK(prepend == Prepend::kNever, field.where(),
                 ": add_prefix_space false needs the prepend_scheme \"never\"");
    }
  }

  void apply(Words& words) const override {
    const auto wanted = [this](const Word& word, std::string_view text) {
      if (prepend == Prepend::kNever || (prepend == Prepend::kFirst && word.origin == 0)) return false;
      return !text.empty() && text[0] != ' ' && !text.starts_with(replacement);
    };
    rebuild(words, replacement, wanted, [this](std::string& out, std::string_view text, std::size_t origin) {
      std::size_t new_origin = out.size();
      for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == ' ') {
          out += replacement;
        } else {
          out += text[i];
        }
        if (i < origin) new_origin = out.size();
      }
      return new_origin;
    });
    if (!split) return;
    const char* p = replacement.data();
    const char32_t mark = unicode::next_code_point(p, p + replacement.size());
    split_words(words, Behavior::kMergedWithNext, false, [mark](std::string_view text, std::vector<Span>& spans) {
      find_characters(text, spans, [mark](char32_t c) { return c == mark; });
    });
  }
};

struct ByteLevelSplitter : PreTokenizer {
  bool add_prefix_space, use_regex, keep_bytes;
  ByteLevelSplitter(const JsonField& field, bool keep_bytes)
      : add_prefix_space(field.at("add_prefix_space").boolean()),
        use_regex(field.boolean_or("use_regex", true)),
        keep_bytes(keep_bytes) {}

  void apply(Words& words) const override {
    if (add_prefix_space) {
      const auto wanted = [](const Word&, std::string_view text) { return !text.empty() && text[0] != ' '; };
      rebuild(words, " ", wanted, [](std::string& out, std::string_view text, std::size_t origin) {
        const std::size_t begin = out.size();
        out += text;
        return begin + origin;
      });
    }
    if (use_regex)
      split_words(words, Behavior::kIsolated, false,
                  [](std::string_view text, std::vector<Span>& spans) { gpt2_pattern().find(text, spans); });
    if (keep_bytes) return;
    const auto never = [](const Word&, std::string_view) { return false; };
    rebuild(words, "", never, [](std::string& out, std::string_view text, std::size_t origin) {
      std::size_t new_origin = out.size();
      for (std::size_t i = 0; i < text.size(); ++i) {
        out += byte_character(static_cast<unsigned char>(text[i]));
        if (i < origin) new_origin = out.size();
      }
      return new_origin;
    });
  }
};

std::unique_ptr<const PreTokenizer> read_one(const JsonField& field, bool last,
                                             const std::function<bool()>& take_bytes) {
  const std::string& type = field.at("type").text();
  if (type == "BertPreTokenizer") return std::make_unique<BertSplitter>();
  if (type == "Whitespace") return std::make_unique<WhitespaceSplitter>();
  if (type == "WhitespaceSplit") return std::make_unique<FlagSplitter>(unicode::kWhiteSpace, Behavior::kRemoved);
  if (type == "ByteLevel") return std::make_unique<ByteLevelSplitter>(field, last && take_bytes());
  if (type == "Metaspace") return std::make_unique<MetaspaceSplitter>(field);
  if (type == "Punctuation") {
    const auto behavior = field.find("behavior");
    return std::make_unique<FlagSplitter>(unicode::kBertPunctuation,
                                          behavior ? read_behavior(*behavior) : Behavior::kIsolated);
  }
  if (type == "Digits")
    return std::make_unique<FlagSplitter>(
        unicode::kNumeric, field.at("individual_digits").boolean() ? Behavior::kIsolated : Behavior::kContiguous);
  if (type == "Split") return std::make_unique<PatternSplitter>(field);
  if (type == "CharDelimiterSplit") return std::make_unique<DelimiterSplitter>(field);
  if (type == "UnicodeScripts") return std::make_unique<ScriptSplitter>();
  if (type == "FixedLength") return std::make_unique<FixedLengthSplitter>(field);
  fail(field.where(), ": Tern does not have the pre-tokenizer ", shortened(field.at("type").value()));
}

void read_all(const JsonField& field, bool last, const std::function<bool()>& take_bytes,
              std::vector<std::unique_ptr<const PreTokenizer>>& out) {
  if (field.at("type").value() != "Sequence") {
    out.push_back(read_one(field, last, take_bytes));
    return;
  }
  const JsonField parts = field.at("pretokenizers");
  for (std::size_t i = 0; i < parts.size(); ++i) read_all(parts[i], last && i + 1 == parts.size(), take_bytes, out);
}

}  // namespace

std::vector<std::unique_ptr<const PreTokenizer>> read_pre_tokenizers(const JsonField& field,
                                                                     const std::function<bool()>& take_bytes) {
  std::vector<std::unique_ptr<const PreTokenizer>> parts;
  read_all(field, true, take_bytes, parts);
  return parts;
}

}  // namespace tern::data
