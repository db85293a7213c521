// Pickles as data: the supported values, the errors, and that no bytes have any other effect.

#include "tern/core/io/pickle.h"
#include "tern/tests/core/files.h"
#include "tern/tests/places.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::test {
namespace {

using namespace std::string_literals;

const std::string kFolder = source_dir() + "/tests/golden/torch/";

class Pickle : public MemoryFileTest {
 protected:
  PickleValue load(const std::string& bytes) const { return load_pickle(file(bytes)); }
  void expect_refused(const std::string& bytes, const std::vector<std::string>& parts) const {
    SCOPED_TRACE(detail::printable(bytes));
    MemoryFileTest::expect_refused([&] { load(bytes); }, parts);
  }
};

std::string u32(uint32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }

TEST_F(Pickle, PlainValues) {
  EXPECT_TRUE(load("N.").is(PickleKind::kNone));
  EXPECT_TRUE(load("\x88.").as_bool());
  EXPECT_FALSE(load("I00\n.").as_bool());
  EXPECT_EQ(load("J\xff\xff\xff\xff.").as_integer(), -1);
  EXPECT_EQ(load("M\xff\xff.").as_integer(), 65535);
  EXPECT_EQ(load("\x8a\x00."s).as_integer(), 0);
  EXPECT_EQ(load("\x8a\x02\x00\x80."s).as_integer(), -32768);
  EXPECT_EQ(load("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."s).describe(), "0x00ffffffffffffffff");
  EXPECT_EQ(load("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff."s).as_integer(), -1);
  EXPECT_EQ(load("L-12L\n.").as_integer(), -12);
  EXPECT_EQ(load("L123456789012345678901L\n.").describe(), "123456789012345678901");
  EXPECT_EQ(load("G\xbf\xf8\x00\x00\x00\x00\x00\x00."s).as_float(), -1.5);
  EXPECT_EQ(load("F2.5\n.").as_float(), 2.5);
  EXPECT_EQ(load("F1e3\r\n.").as_float(), 1000);
  EXPECT_EQ(load("K\x07.").as_float(), 7);
  EXPECT_EQ(load("S'a\\x00\\n\\'\\101'\n.").as_text(), "a\0\n'A"s);
  EXPECT_EQ(load("V\\u20ac\xe9\\U0001f600\n.").as_text(), "\u20ac\u00e9\U0001f600");
  EXPECT_EQ(load("X\x02\x00\x00\x00\xc3\xa9."s).as_text(), "\u00e9");
  EXPECT_TRUE(load("C\x02\xff\x00."s).is(PickleKind::kBytes));
  EXPECT_EQ(load("\x80\x04\x95\x04\x00\x00\x00\x00\x00\x00\x00\x8c\x01z."s).as_text(), "z");
}

TEST_F(Pickle, Containers) {
  const PickleValue list = load("](K\x01K\x02\x65K\x03\x61.");
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[2].as_integer(), 3);
  expect_error([&] { list[3]; }, {"item 3 of list of 3"});
  expect_error([&] { list.as_text(); }, {"expected text", "list of 3"});
  expect_error([&] { list.find("a"); }, {"expected dict"});
  const PickleValue dict = load("}(U\x01\x61K\x01K\x05K\x02U\x01\x61K\x03u.");
  EXPECT_EQ(dict.size(), 3u);
  EXPECT_EQ(dict.key(1).as_integer(), 5);
  EXPECT_EQ(dict.find("a").as_integer(), 3);  // the last of equal keys, as in Python
  EXPECT_FALSE(dict.find("b").defined());
  EXPECT_EQ(load("(dI1\nI2\ns.").key(0).as_integer(), 1);
  EXPECT_EQ(load("(lI1\na.")[0].as_integer(), 1);
  EXPECT_EQ(load("K\x01K\x02\x86.").describe(), "tuple of 2");
  EXPECT_EQ(load("\x8f(K\x01\x90.").describe(), "set of 1");
  EXPECT_EQ(load("(K\x01K\x02\x91.").describe(), "set of 2");
  const PickleValue self = load("]q\x00h\x00\x61."s);  // a list that contains itself
  EXPECT_EQ(self[0][0][0].id(), self.id());
  EXPECT_EQ(load("K\x01(K\x02K\x03\x31\x30K\x04."s).as_integer(), 4);  // popped items are gone
  EXPECT_EQ(load("ccollections\nOrderedDict\n)R}U\x09_metadata}sb.").size(), 0u);
  EXPECT_EQ(load("cargparse\nNamespace\n)\x81}U\x02lrK\x03sb.").find("lr").as_integer(), 3);
  EXPECT_EQ(load("ccollections\ndefaultdict\nc__builtin__\nint\n\x85R.").size(), 0u);
  EXPECT_EQ(load("cpathlib\nPosixPath\n(U\x01/U\x01\x61U\x01\x62tR.").as_text(), "/a/b");
}

TEST_F(Pickle, NestingOfAnyDepth) {
  const size_t depth = 1'000'000;
  PickleValue value = load(std::string(depth, ']') + std::string(depth - 1, 'a') + ".");
  for (int i = 0; i < 1000; ++i) value = value[0];
  EXPECT_EQ(load(std::string(depth, '(') + std::string(depth, 't') + ".").describe(), "tuple of 1");
}

TEST_F(Pickle, OnlyWhatIsListedIsNamed) {
  const auto expect_named = [&](const std::string& bytes, const std::string& name) {
    expect_refused(bytes, {"it names " + name, "never runs code"});
  };
  expect_named("cos\nsystem\n(S'true'\ntR.", "os.system");
  expect_named("cos\nsystem\n.", "os.system");  // named, not called
  expect_named("(S'true'\nios\nsystem\n.", "os.system");
  expect_named("(cposix\nsystem\nS'true'\no.", "posix.system");
  expect_named("\x8c\10builtins\x8c\4eval\x93\x8c\1\61\x85R.", "builtins.eval");
  expect_named("c__builtin__\nexec\n.", "builtins.exec");
  expect_named("cbuiltins\ngetattr\n.", "builtins.getattr");
  expect_named("ctorch\nload\n.", "torch.load");
  expect_named("ctorch.hub\nload\n.", "torch.hub.load");
  expect_named("ctorch\nEvilStorage\n.", "torch.EvilStorage");
  expect_named("ctorch.storage\n_load_from_bytes\n.", "torch.storage._load_from_bytes");
  expect_named("cnumpy.core.multiarray\nfromfile\n.", "numpy.core.multiarray.fromfile");
  expect_named("ctorch.nn.modules.linear\nLinear\n)\x81.", "torch.nn.modules.linear.Linear");
  expect_named("c\x1b[2J\nx\n.", "\\x1b[2J.x");  // control characters must not reach a terminal
  expect_refused("ctorch\nfloat32\n)R.", {"a call of torch.float32"});
  expect_refused("K\x01)R.", {"a call of integer"});
  expect_refused("cc\n"s + std::string(5000, 'x') + "\n.", {"a class's name of 5001 bytes"});
}

TEST_F(Pickle, DamageIsNamedWithItsPlace) {
  expect_refused("", {"empty"});
  expect_refused("\x80\x04N", {"at byte 3", "truncated"});
  expect_refused("K\x01", {"at byte 2", "truncated"});
  expect_refused("X\xff\xff\xff\177ab.", {"truncated: 2147483647 more bytes are needed, there are 3"});
  expect_refused("\x8e"s + std::string(8, '\xff') + "a.", {"truncated: 18446744073709551615"});
  expect_refused("\x95"s + std::string(8, '\xff') + ".", {"truncated"});
  expect_refused("\x8b"s + u32(0xffffffff) + ".", {"negative number of bytes"});
  expect_refused("S'abc", {"a line has no end"});
  expect_refused("\x80\x06N.", {"protocol 6"});
  expect_refused("!N.", {"at byte 0", "no instruction"});
  expect_refused("\x97.", {"no instruction", "151"});  // out-of-band buffers
  expect_refused("\x82\x01.", {"no instruction"});     // the extension registry
  expect_refused(".", {"the stack is empty"});
  expect_refused("(.", {"the stack is empty"});
  expect_refused("K\x01t.", {"no mark"});
  expect_refused("K\x01(0\x30\x30.", {"the stack is empty"});
  expect_refused("h\x05.", {"value 5"});
  expect_refused("j\xff\xff\xff\xff.", {"value 4294967295"});
  expect_refused("g-1\n.", {"memo"});
  expect_refused("K\x01K\x02\x61.", {"items are added to integer"});
  expect_refused("](K\x01K\x02u.", {"entries are set in list"});
  expect_refused("}(K\x01u.", {"a key without a value"});
  expect_refused("K\x01K\x02\x62.", {"a state is given to integer"});
  expect_refused("I1x\n.", {"not an integer: 1x"});
  expect_refused("F\n.", {"not a number"});
  expect_refused("S'abc\n.", {"not a text literal"});
  expect_refused("V\\ud\n.", {"not a text literal"});
  expect_refused("X\x01\x00\x00\x00\xff."s, {"not UTF-8"});
  expect_refused("U\x01xQ.", {"persistent id"});
  expect_refused("Px\n.", {"persistent id"});
}

TEST_F(Pickle, NumpyArrays) {
  const std::string type = "cnumpy\ndtype\nU\2f4\x85R", array = "cnumpy.core.multiarray\n_reconstruct\n(tR";
  const auto state = [&](const std::string& shape, const std::string& dtype, const std::string& bytes) {
    return array + "(K\x01" + shape + dtype + "\x89U" + static_cast<char>(bytes.size()) + bytes + "tb.";
  };
  expect_equal(load(state("K\x02\x85", type, "\0\0\x80\x3f\0\0\0\x40"s)).as_tensor(), tensor({1, 2}));
  expect_equal(load(state("K\x02K\x00\x86"s, type, "")).as_tensor(), zeros({2, 0}));
  EXPECT_EQ(load(array + ".").tensor_problem(), "a numpy array without contents");
  EXPECT_EQ(load(state("K\x01\x85", "cnumpy\ndtype\nU\x02O8\x85R", "")).tensor_problem(), "a numpy array of dtype O8");
  expect_refused(state("K\x03\x85", type, "\0\0\0\0"s), {"a numpy array of 3 float32 has 4 bytes"});
  expect_refused(state("J\xff\xff\xff\xff\x85", type, ""), {"negative size"});
  const std::string huge = "\x8a\x08\0\0\0\0\0\0\0\x40"s;
  expect_refused(state(huge + huge + "\x86", type, ""), {"more elements than 64 bits count"});
  expect_refused(state("K\x00"s + huge + huge + "\x87", type, ""), {"64 bits"});
  const PickleValue nine = load(state("("s + "K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01"s + "t", type, "abcd"));
  EXPECT_EQ(nine.tensor_problem(), "9 dimensions; Tern has at most 8");
  expect_error([&] { nine.as_tensor(); }, {"9 dimensions"});
}

TEST_F(Pickle, ScalarsOfNumpy) {
  for (int protocol = 0; protocol < 6; ++protocol) {
    const PickleValue values = load_pickle(kFolder + "numpy" + std::to_string(protocol) + ".pkl").find("values");
    EXPECT_EQ(values.find("mean").as_float(), 0.5);
    EXPECT_EQ(values.find("count").as_integer(), -9);
    EXPECT_TRUE(values.find("flag").as_bool());
  }
}

TEST_F(Pickle, ABatchOfCifarAsPython2WroteIt) {
  const PickleValue batch = load_pickle(kFolder + "cifar_batch");
  EXPECT_EQ(batch.find("data").as_tensor().shape(), Shape({4, 3072}));
  EXPECT_EQ(batch.find("data").as_tensor().dtype(), uint8);
  ASSERT_EQ(batch.find("labels").size(), 4u);
  EXPECT_EQ(batch.find("labels")[1].as_integer(), 8);
  EXPECT_TRUE(batch.key(0).is(PickleKind::kBytes));
  EXPECT_EQ(batch.find("filenames")[3].as_text(), "image_3.png");
}

/// A few bytes must not cause large memory use, however often calls are repeated.
TEST_F(Pickle, MemoryIsBoundedByTheFile) {
  std::string copies = "}(";
  for (int i = 0; i < 20'000; ++i) copies += "K\x01N";
  copies += "uq\x00"s;
  for (int i = 0; i < 20'000; ++i) copies += "ccollections\nOrderedDict\nh\x00\x85R"s;
  expect_refused(copies + ".", {"more memory than a pickle of"});
  std::string paths = "cpathlib\nPath\nq\x00X"s + u32(9000) + std::string(9000, 'a') + "\x85q\x01";
  for (int i = 0; i < 20'000; ++i) paths += "h\x00h\x01R"s;
  expect_refused(paths + ".", {"more memory than a pickle of"});
  std::string names = "(X"s + u32(12) + "torch._utilsq\x00X"s + u32(18) + "_rebuild_tensor_v2q\x01"s;
  for (int i = 0; i < 100'000; ++i) names += "h\x00h\x01\x93"s;
  expect_refused(names + "t.", {"more memory than a pickle of"});
}

TEST_F(Pickle, RandomInstructionsNeverCrash) {
  std::mt19937_64 random = fresh_random();
  const std::string names[] = {"collections\nOrderedDict",
                               "torch._utils\n_rebuild_tensor_v2",
                               "torch\nFloatStorage",
                               "numpy\ndtype",
                               "numpy.core.multiarray\n_reconstruct",
                               "numpy.core.multiarray\nscalar",
                               "_codecs\nencode",
                               "argparse\nNamespace",
                               "pathlib\nPath",
                               "torch\ndevice",
                               "torch._tensor\n_rebuild_from_type_v2",
                               "torch\nSize"};
  std::vector<std::string> parts = {
      "K\1", "K\0"s, "M\7\1", "J\xff\xff\xff\xff", "U\2f4",    "X\1\0\0\0z"s, "C\4\1\2\3\4", "h\0"s, "h\1",
      "h\2", "q\0"s, "q\1",   "U\7storage",        "U\6latin1"};
  parts.push_back("\x8a\10\xff\xff\xff\xff\xff\xff\xff\177");
  for (const std::string& name : names) parts.push_back("c" + name + "\n");
  for (const char code : "(N]})tldaesub012RRRQo.\x81\x85\x86\x87\x88\x8f\x90\x91\x92\x93\x94\x94"s)
    parts.emplace_back(1, code);
  int loaded = 0;
  for (int i = 0; i < trials(30'000); ++i) {
    std::string bytes = "\x80\x02";
    for (size_t n = 2 + random() % 40; n > 0; --n) bytes += parts[random() % parts.size()];
    try {
      loaded += load(bytes + ".").describe().empty() ? 0 : 1;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(loaded, trials(300));
}

}  // namespace
}  // namespace tern::test
