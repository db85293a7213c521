// RFC 4180: every rule, errors, and comparison with a simple reference parser on random bytes.

#include "tern/data/files/delimited.h"

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

Parsed parse(const std::string& text, const Dialect& dialect = {}) {
  std::istringstream in(text);
  DelimitedReader reader(in, dialect, "t.csv");
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
  EXPECT_EQ(parse("a\tb,c\n", {.delimiter = '\t'}).records, (Records{{"a", "b,c"}}));
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

TEST(Delimited, Dialects) {
  EXPECT_EQ(parse("a;\"b\n", {.delimiter = ';', .quotes = false}).records, (Records{{"a", "\"b"}}));
  EXPECT_EQ(parse("a,\"b\rc,d\r", {.quotes = false, .carriage_returns = true}).records,
            (Records{{"a", "\"b"}, {"c", "d"}}));
  const Parsed parsed = parse("a,b\r\rc,\"d\re\"\r\nf,g", {.carriage_returns = true});
  EXPECT_EQ(parsed.records, (Records{{"a", "b"}, {"c", "d\ne"}, {"f", "g"}}));
  EXPECT_EQ(parsed.lines, (std::vector<int64_t>{1, 3, 5}));
  EXPECT_EQ(parse("sep=;\na;b\n", {.delimiter = ';', .separator_line = true}).records, (Records{{"a", "b"}}));
  // A buffer that ends between CR and LF.
  const std::string long_text((1 << 16) - 3, 'x');
  const Parsed cut = parse("a," + long_text + "\r\nb,c\r\n", {.carriage_returns = true});
  EXPECT_EQ(cut.records, (Records{{"a", long_text}, {"b", "c"}}));
  EXPECT_EQ(cut.lines, (std::vector<int64_t>{1, 2}));
}

/// Files whose rules are found by what they hold.
class DelimitedFileTest : public FolderTest {
 protected:
  /// The records; what was said is in said_, without the path.
  Records read(const std::string& name, const std::string& text) {
    write(name, text);
    const std::string path = (root() / name).string();
    said_.clear();
    DelimitedFile file(path, [&](const std::string& line) { said_ += line.substr(path.size() + 2) + "\n"; });
    Records records;
    for (std::vector<std::string> fields; file.next(fields);) records.push_back(fields);
    return records;
  }
  std::string said_;
};

constexpr const char* kText = "double quotes are part of the text";
constexpr const char* kQuoted = "fields in double quotes are read as quoted";

TEST_F(DelimitedFileTest, StrayQuotesBetweenTabsMergeNoRows) {
  // By RFC 4180 the third and fourth line are one record of two fields.
  EXPECT_EQ(read("a.tsv", "label\ttext\nneg\tslow\npos\t\"A gem, says one\nneg\tthe end is \"\npos\tbright\n"),
            (Records{{"label", "text"},
                     {"neg", "slow"},
                     {"pos", "\"A gem, says one"},
                     {"neg", "the end is \""},
                     {"pos", "bright"}}));
  EXPECT_TRUE(contains(said_, {kText, "line 3"})) << said_;
  // Whole quoted fields beside a stray one are text too: one rule for a file.
  EXPECT_EQ(read("b.TSV", "text\tlabel\n\"whole\"\t1\n\"so\" they say\t0\n"),
            (Records{{"text", "label"}, {"\"whole\"", "1"}, {"\"so\" they say", "0"}}));
  EXPECT_TRUE(contains(said_, {kText, "line 3"})) << said_;
  // A quote that is never closed, in the last line and in the middle; three columns; CR line ends.
  EXPECT_EQ(read("c.tsv", "a\tb\n1\t\"x\n2\ty\n"), (Records{{"a", "b"}, {"1", "\"x"}, {"2", "y"}}));
  EXPECT_EQ(read("d.tsv", "a\tb\tc\r1\t\"x\t3\r4\ty\"\t6\r"),
            (Records{{"a", "b", "c"}, {"1", "\"x", "3"}, {"4", "y\"", "6"}}));
  // Here one line does not fit either way; as text it stays alone, and the caller reports it.
  EXPECT_EQ(read("e.tsv", "a\tb\n1\t\"x\nbroken\n2\ty\"\n").size(), 4u);
  EXPECT_TRUE(contains(said_, {kText})) << said_;
  EXPECT_EQ(read("f.tsv", "a\tb\n\"x\ny\"\n1\t2\n").size(), 4u);
  EXPECT_TRUE(contains(said_, {kText})) << said_;
}

TEST_F(DelimitedFileTest, QuotedFieldsBetweenTabsAreRead) {
  // What Python's csv.writer(delimiter="\t") writes.
  EXPECT_EQ(read("a.tsv", "text\tlabel\r\n\"say \"\"hi\"\"\"\t1\r\nplain\t0\r\n"),
            (Records{{"text", "label"}, {"say \"hi\"", "1"}, {"plain", "0"}}));
  EXPECT_TRUE(contains(said_, {kQuoted})) << said_;
  EXPECT_EQ(read("b.tsv", "text\tlabel\n\"a\tb\"\t1\n\"two\nlines\"\t0\n"),
            (Records{{"text", "label"}, {"a\tb", "1"}, {"two\nlines", "0"}}));
  EXPECT_TRUE(contains(said_, {kQuoted})) << said_;
  EXPECT_EQ(read("c.tsv", "\"text\"\t\"label\"\n\"x\"\t\"1\"\n"), (Records{{"text", "label"}, {"x", "1"}}));
  EXPECT_EQ(read("d.tsv", "label\ttext\n1\t\"three\n\nlines\tand\ttabs \"\"\n\"\n"),
            (Records{{"label", "text"}, {"1", "three\n\nlines\tand\ttabs \"\n"}}));
  // Without quotes nothing is said, nor for a quote within a field.
  read("e.tsv", "a\tb\n5\" pipe\tx\n");
  EXPECT_EQ(said_, "");
}

TEST_F(DelimitedFileTest, Separators) {
  const Records expected = {{"text", "label"}, {"a, b", "1"}};
  EXPECT_EQ(read("a.csv", "text;label\r\na, b;1\r\n"), expected);
  EXPECT_TRUE(contains(said_, {"separated by semicolons"})) << said_;
  EXPECT_EQ(read("b.csv", "\xef\xbb\xbfsep=;\r\ntext;label\r\n\"a, b\";1\r\n"), expected);
  EXPECT_EQ(read("c.csv", "text\tlabel\na, b\t1\n"), expected);
  EXPECT_TRUE(contains(said_, {"separated by tabs"})) << said_;
  EXPECT_EQ(read("d.tsv", "text,label\n\"a, b\",1\n"), expected);
  EXPECT_EQ(read("e.csv", "text,label\n\"a, b\",1\n"), expected);
  EXPECT_EQ(said_, "");
  // The header decides, and a separator in quotes is none.
  EXPECT_EQ(read("g.csv", "\"text, or not\";label\na, b;1\n"), (Records{{"text, or not", "label"}, {"a, b", "1"}}));
  EXPECT_EQ(read("f.csv", "\"text;or not\",labels\na;b,c;d\n"), (Records{{"text;or not", "labels"}, {"a;b", "c;d"}}));
  EXPECT_EQ(said_, "");
}

TEST_F(DelimitedFileTest, CarriageReturns) {
  EXPECT_EQ(read("a.csv", "text,label\rone,1\r\"two, \"\"2\"\"\",2\r"),
            (Records{{"text", "label"}, {"one", "1"}, {"two, \"2\"", "2"}}));
  EXPECT_EQ(read("b.csv", "text,label\none\rmore,1\n"), (Records{{"text", "label"}, {"one\rmore", "1"}}));
  EXPECT_EQ(read("c.csv", "text,label\r\none\rmore,1\r\n"), (Records{{"text", "label"}, {"one\rmore", "1"}}));
}

TEST_F(DelimitedFileTest, AJoinedRowBetweenCommasIsSaid) {
  EXPECT_EQ(read("a.csv", "label,text\npos,\"A gem\nneg,cold \"\n").size(), 2u);
  EXPECT_TRUE(contains(said_, {"line 2", "joins lines"})) << said_;
  EXPECT_EQ(read("b.csv", "label,text\npos,\"A gem\nof a film\"\nneg,\"cold\"\n").size(), 3u);
  EXPECT_EQ(said_, "");
}

}  // namespace
}  // namespace tern::data
