// RFC 4180: every rule, errors, and comparison with a simple reference parser on random bytes.

#include "tern/data/datasets/delimited.h"

#include <regex>
#include <sstream>

#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using Records = std::vector<std::vector<std::string>>;

struct Parsed {
  Records records;
  std::vector<int64_t> lines;
};

Parsed parse(const std::string& text, char delimiter = ',') {
  std::istringstream in(text);
  DelimitedReader reader(in, delimiter, "t.csv");
  Parsed parsed;
  std::vector<std::string> fields;
  while (reader.next(fields)) {
    parsed.records.push_back(fields);
    parsed.lines.push_back(reader.line());
  }
  return parsed;
}

std::string parse_error(const std::string& text) {
  return error_of([&] { parse(text); });
}

TEST(Delimited, PlainRecords) {
  for (const std::string text : {"a,b\n1,2\n", "a,b\n1,2", "a,b\r\n1,2\r\n", "a,b\r\n1,2\r"})
    EXPECT_EQ(parse(text).records, (Records{{"a", "b"}, {"1", "2"}})) << testing::PrintToString(text);
  EXPECT_EQ(parse("a\tb,c\n", '\t').records, (Records{{"a", "b,c"}}));
}

TEST(Delimited, EmptyFieldsAndLines) {
  EXPECT_EQ(parse("").records, Records{});
  EXPECT_EQ(parse("\n\r\n\n").records, Records{});
  EXPECT_EQ(parse(",\n").records, (Records{{"", ""}}));
  EXPECT_EQ(parse("a,").records, (Records{{"a", ""}}));
  EXPECT_EQ(parse("\"\"\n").records, (Records{{""}}));
  const Parsed parsed = parse("a,b\n\n\nc,d\n\n");
  EXPECT_EQ(parsed.records, (Records{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(parsed.lines, (std::vector<int64_t>{1, 4}));
}

TEST(Delimited, Quotes) {
  EXPECT_EQ(parse("\"a,b\",\"c\"\"d\"\n").records, (Records{{"a,b", "c\"d"}}));
  EXPECT_EQ(parse("\"\"\"\"\n").records, (Records{{"\""}}));
  EXPECT_EQ(parse("\"a\"\r\n\"b\"\r").records, (Records{{"a"}, {"b"}}));
  EXPECT_EQ(parse("a\"b\",c\n").records, (Records{{"a\"b\"", "c"}}));
  const Parsed parsed = parse("x,\"two\r\nlines\nthree\"\ny,z\n");
  EXPECT_EQ(parsed.records, (Records{{"x", "two\r\nlines\nthree"}, {"y", "z"}}));
  EXPECT_EQ(parsed.lines, (std::vector<int64_t>{1, 4}));
}

TEST(Delimited, BytesPassThrough) {
  const std::string nul("a\0b", 3);
  EXPECT_EQ(parse(nul + ",\"" + nul + "\"\n").records, (Records{{nul, nul}}));
  EXPECT_EQ(parse("a\rb,c\n").records, (Records{{"a\rb", "c"}}));
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_EQ(parse(mark + "a,b\n").records, (Records{{"a", "b"}}));
  EXPECT_EQ(parse(mark + "\"a\",b\n").records, (Records{{"a", "b"}}));
  EXPECT_EQ(parse(mark).records, Records{});
}

TEST(Delimited, LongFields) {
  const std::string long_text(10'000'000, 'x');
  EXPECT_EQ(parse("1," + long_text + "\n2,b\n").records, (Records{{"1", long_text}, {"2", "b"}}));
  EXPECT_EQ(parse("1,\"" + long_text + "\"\n").records, (Records{{"1", long_text}}));
}

TEST(Delimited, Errors) {
  EXPECT_TRUE(contains(parse_error("a,b\nc,\"d\n\n\n"), {"t.csv:2:", "column 2", "never closed"}));
  EXPECT_TRUE(contains(parse_error("\"a\nb\" c,d\n"), {"t.csv:2:", "column 1", "after a closing quote"}));
  EXPECT_TRUE(contains(parse_error("\"a\"\rb\n"), {"t.csv:1:", "after a closing quote"}));
  EXPECT_TRUE(contains(parse_error(std::string("\xff\xfe\x61\0b\0", 6)), {"UTF-16"}));
}

/// RFC 4180 as a regular expression for a field with what ends it; false for an error.
bool reference_parse(const std::string& text, Records& records) {
  static const std::regex field(R"re((?:"((?:[^"]|"")*)"|(|[^",\n][^,\n]*?))(,|\r?\n|\r?$))re"), quotes("\"\"");
  std::vector<std::string> record;
  std::smatch match;
  auto at = text.begin();
  do {
    if (!std::regex_search(at, text.end(), match, field, std::regex_constants::match_continuous)) return false;
    at = match[0].second;
    const bool quoted = match[1].matched;
    record.push_back(quoted ? std::regex_replace(match.str(1), quotes, "\"") : match.str(2));
    if (match.str(3) == ",") continue;
    const bool blank = record.size() == 1 && record[0].empty() && !quoted;
    if (!blank) records.push_back(record);
    record.clear();
  } while (at != text.end() || !record.empty());
  return true;
}

TEST(Delimited, AgreesWithReferenceOnRandomBytes) {
  std::mt19937_64 random = fresh_random();
  const std::string alphabet = "\"\"\",,\n\n\r\rab ";
  int good = 0, bad = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string text(random() % 40, ' ');
    for (char& c : text)
      c = random() % 50 == 0 ? static_cast<char>(random() % 0x70) : alphabet[random() % alphabet.size()];
    Records expected;
    const bool valid = reference_parse(text, expected);
    SCOPED_TRACE(testing::PrintToString(text));
    if (valid)
      EXPECT_EQ(parse(text).records, expected);
    else
      EXPECT_THROW(parse(text), Error);
    (valid ? good : bad) += 1;
  }
  EXPECT_GT(good, 1000);
  EXPECT_GT(bad, 1000);
}

TEST(Delimited, ArbitraryBytesNeverCrash) {
  std::mt19937_64 random = fresh_random();
  for (int trial = 0; trial < 2'000; ++trial) error_of([&] { parse(random_bytes(random() % 3000, random)); });
}

TEST(Delimited, RoundTripOfRandomFields) {
  std::mt19937_64 random = fresh_random();
  for (int trial = 0; trial < 300; ++trial) {
    const size_t columns = 2 + random() % 4;
    Records records;
    std::string text;
    for (size_t row = 0, rows = random() % 30; row < rows; ++row) {
      std::vector<std::string> record;
      for (size_t column = 0; column < columns; ++column) {
        std::string field(random() % 50 == 0 ? 70'000 : random() % 12, ' ');
        for (char& c : field) c = random() % 3 == 0 ? "\",\n\r"[random() % 4] : static_cast<char>(random());
        text += column > 0 ? ",\"" : "\"";
        for (const char c : field) text += c == '"' ? std::string("\"\"") : std::string(1, c);
        text += '"';
        record.push_back(field);
      }
      text += random() % 2 ? "\n" : "\r\n";
      records.push_back(record);
    }
    EXPECT_EQ(parse(text).records, records);
  }
}

}  // namespace
}  // namespace tern::data
