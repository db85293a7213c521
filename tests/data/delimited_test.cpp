// RFC 4180: every rule, errors, and comparison with a simple reference parser on random bytes.

#include "tern/data/datasets/delimited.h"

#include <sstream>

#include "tern/tests/data/support.h"
#include "tern/tests/support/sanitizer.h"
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
  const std::string nul("a\0b", 3), byte_order_mark = "\xef\xbb\xbf";
  EXPECT_EQ(parse(nul + ",\"" + nul + "\"\n").records, (Records{{nul, nul}}));
  EXPECT_EQ(parse("a\rb,c\n").records, (Records{{"a\rb", "c"}}));
  EXPECT_EQ(parse(byte_order_mark + "a,b\n").records, (Records{{"a", "b"}}));
  EXPECT_EQ(parse(byte_order_mark + "\"a\",b\n").records, (Records{{"a", "b"}}));
  EXPECT_EQ(parse(byte_order_mark).records, Records{});
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

/// RFC 4180 as a state machine over the whole text; false for an error.
bool reference_parse(const std::string& text, Records& records) {
  enum { kStart, kPlain, kQuoted, kClosed, kReturn } state = kStart;
  std::vector<std::string> record(1);
  bool quoted = false;
  const auto end_record = [&] {
    if (record.size() > 1 || !record[0].empty() || quoted) records.push_back(record);
    record.assign(1, "");
    quoted = false;
    state = kStart;
  };
  const auto next_field = [&] {
    record.emplace_back();
    state = kStart;
    quoted = false;
  };
  const auto strip = [&] {
    if (!record.back().empty() && record.back().back() == '\r') record.back().pop_back();
  };
  for (const char c : text) {
    switch (state) {
      case kStart:
      case kPlain:
        if (c == '"' && state == kStart) {
          state = kQuoted;
          quoted = true;
        } else if (c == ',') {
          next_field();
        } else if (c == '\n') {
          strip();
          end_record();
        } else {
          record.back() += c;
          state = kPlain;
        }
        break;
      case kQuoted:
        if (c == '"')
          state = kClosed;
        else
          record.back() += c;
        break;
      case kClosed:
        if (c == '"')
          record.back() += c, state = kQuoted;
        else if (c == ',')
          next_field();
        else if (c == '\n')
          end_record();
        else if (c == '\r')
          state = kReturn;
        else
          return false;
        break;
      case kReturn:
        if (c != '\n') return false;
        end_record();
        break;
    }
  }
  if (state == kQuoted) return false;
  if (state == kPlain) strip();
  end_record();
  return true;
}

TEST(Delimited, AgreesWithReferenceOnRandomBytes) {
  std::mt19937_64 random = fresh_random();
  const std::string alphabet = "\"\"\",,\n\n\r\rab ";
  int good = 0, bad = 0;
  for (int trial = 0; trial < test::trials(20'000); ++trial) {
    std::string text(random() % 40, ' ');
    for (char& c : text)
      c = random() % 50 == 0 ? static_cast<char>(random() % 0x70) : alphabet[random() % alphabet.size()];
    Records expected;
    const bool valid = reference_parse(text, expected);
    Parsed parsed;
    const std::string error = error_of([&] { parsed = parse(text); });
    EXPECT_EQ(error == "no error", valid) << testing::PrintToString(text) << error;
    if (!valid) parsed.records = expected;
    EXPECT_EQ(parsed.records, expected) << testing::PrintToString(text);
    (valid ? good : bad) += 1;
  }
  EXPECT_GT(good, test::trials(1000));
  EXPECT_GT(bad, test::trials(1000));
}

TEST(Delimited, ArbitraryBytesNeverCrash) {
  std::mt19937_64 random = fresh_random();
  for (int trial = 0; trial < test::trials(2'000); ++trial)
    error_of([&] { parse(random_bytes(random() % 3000, random)); });
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
