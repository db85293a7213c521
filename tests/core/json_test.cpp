// The JSON parser: its limits and its error messages.

#include "tern/core/io/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

using nlohmann::json;

std::string nested(int levels, const std::string& open, const std::string& close, const std::string& inside = "") {
  std::string text;
  for (int i = 0; i < levels; ++i) text += open;
  text += inside;
  for (int i = 0; i < levels; ++i) text += close;
  return text;
}

TEST(Json, IsWhatTheLibraryReads) {
  for (const std::string text :
       {R"({"a": [1, -2, 18446744073709551615, 2.5, 1e300, true, false, null, "x\né\ud83d\ude00"], "b": {}, "": []})",
        "7", "\"\"", "[]", "[[], [[]], {\"a\": {\"b\": []}}, 3]", "\xef\xbb\xbf{\"bom\": 1}", " {\n} \n",
        "{\"a\": {\"x\": 1}, \"b\": {\"x\": 2}, \"c\": [{\"x\": 3}, {\"x\": 4}]}"})
    EXPECT_EQ(parse_json(text, "x"), json::parse(text)) << text;
  // Lists grow after values inside them were stored.
  std::string list = "[";
  for (int i = 0; i < 1000; ++i) list += "{\"k\": [" + std::to_string(i) + ", [" + std::to_string(i) + "]]},";
  list.back() = ']';
  EXPECT_EQ(parse_json(list, "x"), json::parse(list));
}

TEST(Json, Depth) {
  for (const auto& [open, close, inside] : {std::tuple("[", "]", ""), std::tuple("{\"a\":", "}", "1")}) {
    EXPECT_NO_THROW(parse_json(nested(kMaxJsonDepth, open, close, inside), "x"));
    EXPECT_EQ(error_of([&] { parse_json(nested(kMaxJsonDepth + 1, open, close, inside), "x"); }),
              "x: nested more than 128 levels deep");
    for (const int levels : {200'000}) {
      expect_error([&] { parse_json(nested(levels, open, close, inside), "x"); }, {"x: nested more than 128"});
      expect_error([&] { parse_json(nested(levels, open, ""), "x"); }, {"x: nested more than 128"});
      expect_error([&] { parse_json("{\"dim\": 3, \"a\": [1, " + nested(levels, open, close, inside) + "]}", "x"); },
                   {"x: nested more than 128"});
    }
  }
  // Many values at one level are not nesting.
  EXPECT_EQ(parse_json("[" + nested(0, "", "") + "[],[],[]," + nested(100, "[", "]") + "]", "x").size(), 4u);
  std::string wide = "[";
  for (int i = 0; i < 100'000; ++i) wide += "[{}],";
  wide.back() = ']';
  EXPECT_EQ(parse_json(wide, "x").size(), 100'000u);
}

TEST(Json, Errors) {
  EXPECT_EQ(error_of([] { parse_json("{\"a\": 1e999}", "f"); }),
            "f: the number 1e999 is too large for 64 bits of floating point (at byte 11)");
  expect_error([] { parse_json("[-1e999]", "f"); }, {"f: ", "-1e999"});
  expect_error([] { parse_json("[" + std::string(100'000, '9') + "]", "f"); }, {"f: the number 999", "..."});
  EXPECT_EQ(parse_json("[99999999999999999999]", "f")[0].get<double>(), 1e20);
  EXPECT_EQ(error_of([] { parse_json("{\"a\": 1, \"b\": {\"a\": 2, \"c\": 3, \"a\": 4}}", "f"); }),
            "f: the name 'a' occurs twice in an object");
  expect_error([] { parse_json("{\"a\": 1, \"a\": 1}", "f"); }, {"'a' occurs twice"});
  for (const std::string text :
       {"", " ", "{", "[1,", "[1 2]", "{\"a\"}", "{'a': 1}", "nul", "\"\\ud800\"", "{}x", "01", "[NaN]", "[Infinity]",
        "\"\xff\"", "{\"\xc3\": 1}", "\xff\xfe{\0}\0", "// a\n{}", "\"a"})
    expect_error([&] { parse_json(text, "f"); }, {"f: not valid JSON ("});
  EXPECT_EQ(error_of([] { parse_json("{\n  \"a\": 1,\n  oops\n}", "f"); }), "f: not valid JSON (line 3, byte 3)");
  EXPECT_EQ(error_of([] { parse_json("{\"a\": 1, oops}", "f"); }), "f: not valid JSON (at byte 10)");
  for (const std::string text : {"[]", "3", "null", "\"x\""})
    EXPECT_EQ(error_of([&] { parse_json_object(text, "f"); }), "f: not a JSON object");
}

TEST(Json, Files) {
  const std::string path = testing::TempDir() + "tern-json-test.json";
  std::ofstream(path) << "{\"a\": [1]}";
  EXPECT_EQ(read_json_object(path), json::parse("{\"a\": [1]}"));
  std::ofstream(path) << "";
  EXPECT_EQ(error_of([&] { read_json_object(path); }), path + ": the file is empty");
  std::ofstream(path) << "{\n1";
  EXPECT_EQ(error_of([&] { read_json_object(path); }), path + ": not valid JSON (line 2, byte 1)");
  std::remove(path.c_str());
  expect_error([&] { read_json_object(path); }, {"cannot open ", path, "No such file"});
  expect_error([&] { read_json_object("/dev/null"); }, {"/dev/null", "not a regular file"});
}

TEST(Json, IntegersAreExact) {
  const auto integer = [](const std::string& text) { return integer_in(parse_json(text, "x")); };
  EXPECT_EQ(integer("0"), 0);
  EXPECT_EQ(integer("-5"), -5);
  EXPECT_EQ(integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(integer("-9223372036854775808"), INT64_MIN);
  for (const char* text : {"9223372036854775808", "18446744073709551615", "1e3", "2.0", "true", "null", "\"1\"", "[1]"})
    EXPECT_FALSE(integer(text)) << text;
}

}  // namespace
}  // namespace tern::test
