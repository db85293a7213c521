// safetensors files: round trips, and an Error for every kind of damage.

#include <sys/resource.h>

#include <csignal>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/input_file.h"
#include "tern/core/io/safetensors.h"
#include "tern/tests/core/files.h"
#include "tern/tests/places.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::test {
namespace {

class Safetensors : public FolderTest {
 protected:
  std::string path(const std::string& name = "a.safetensors") const { return FolderTest::path(name); }
  std::string write(const std::string& bytes) const { return FolderTest::write("raw", bytes); }
  /// A file with this header and `data_bytes` bytes of data.
  std::string file_of(const std::string& header, size_t data_bytes = 0) const {
    const uint64_t length = header.size();
    return write(std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data_bytes, '\1'));
  }
  void expect_rejected(const std::string& header, size_t data_bytes, std::vector<std::string> parts) const {
    SCOPED_TRACE(header.substr(0, 200));
    const std::string file = file_of(header, data_bytes);
    parts.push_back(file);
    expect_error([&] { load_safetensors(file); }, parts);
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
};

using DamagedSafetensors = MemoryFileTest;

TEST_F(Safetensors, RoundTripsEveryDtypeAndShape) {
  Generator g = fresh_generator();
  StateView state;
  for (DType d : {float64, float32, bfloat16, float16, int64, int32, uint8, boolean})
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{0}, Shape{2, 0, 3}, Shape{7}})
      state.push_back({std::string(name_of(d)) + shape.str(), (randn(shape, g) * 3.0).to(d)});
  state.push_back({"a view", randn({4, 6}, g).t().slice(0, 1, 6, 2)});
  state.push_back({"a leaf \xc3\xa9 \" \\ \n", ones({2}, {.requires_grad = true})});
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"", "empty key"}, {"k", "\"\xe2\x82\xac\""}};
  save_safetensors(state, path(), metadata);
  const SafetensorsFile file = load_safetensors(path());
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), state.size());
  for (const NamedTensor& entry : state) {
    const Tensor loaded = find(file.tensors, entry.name);
    ASSERT_TRUE(loaded.defined()) << entry.name;
    EXPECT_EQ(loaded.dtype(), entry.tensor.dtype());
    EXPECT_FALSE(loaded.requires_grad());
    expect_equal(loaded, entry.tensor);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(loaded.raw_data()) % static_cast<uintptr_t>(size_of(loaded.dtype())), 0u);
  }
  save_safetensors({}, path("none"));
  EXPECT_TRUE(load_safetensors(path("none")).tensors.empty());
  EXPECT_EQ(files(), 2u);
}

TEST_F(Safetensors, ReadsWhatTheReferenceWrites) {
  const std::string file = source_dir() + "/tests/golden/ops.safetensors";
  EXPECT_GT(load_safetensors(file).tensors.size(), 40u);
}

TEST_F(Safetensors, MappingsOutliveTheFileAndArePrivate) {
  save_safetensors({{"x", arange(0, 5000)}}, path());
  const std::string before = read_whole_file(path());
  Tensor x = load_safetensors(path()).tensors[0].tensor;
  x.add_(1);
  EXPECT_EQ(read_whole_file(path()), before);
  save_safetensors({{"x", zeros({3})}}, path());  // replaces the file under the mapping
  fs::remove(path());
  expect_equal(x, arange(1, 5001));
}

TEST_F(Safetensors, UnalignedDataIsCopied) {
  // A header of odd length puts the floats at an odd address.
  const std::string header = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]} })";
  const Tensor x = load_safetensors(file_of(header + std::string(header.size() % 2 ? 0 : 1, ' '), 8)).tensors[0].tensor;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.raw_data()) % 4, 0u);
  EXPECT_EQ(x[0].item<float>(), x[1].item<float>());
}

/// UBSan reports a copy from or to a null pointer, also of no bytes.
TEST_F(Safetensors, UnalignedEmptyTensors) {
  for (const char* padding : {"", " ", "  ", "   "}) {
    const std::string header = R"({"x":{"dtype":"I64","shape":[0,5],"data_offsets":[0,0]} })";
    const Tensor x = load_safetensors(file_of(header + padding)).tensors[0].tensor;
    EXPECT_EQ(x.shape(), (Shape{0, 5}));
    EXPECT_EQ(x.dtype(), int64);
  }
}

TEST_F(Safetensors, BoolsThatAreNeitherZeroNorOne) {
  const std::string header = R"({"x":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  const std::string file = file_of(header);
  std::ofstream(file, std::ios::binary | std::ios::app) << std::string("\0\1\xff", 3);
  EXPECT_EQ(load_safetensors(file).tensors[0].tensor.to_vector<double>(), (std::vector<double>{0, 1, 1}));
}

/// Tensors of every type that the reference has are read where a type of Tern's holds it, else named.
TEST_F(Safetensors, OtherTypes) {
  const std::string bytes("\xff\x81\x80\x7f\x02\xff\xfe\xff", 8);
  std::string header = "{", data;
  const auto add = [&](const std::string& dtype, size_t elements, size_t size) {
    header += (header.size() > 1 ? ",\"" : "\"") + dtype + R"(":{"dtype":")" + dtype + R"(","shape":[)" +
              std::to_string(elements) + R"(],"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + size) + "]}";
    data += bytes.substr(0, size);
  };
  add("I8", 3, 3);  // what follows is not aligned
  add("I16", 2, 4);
  add("U16", 2, 4);
  add("U32", 2, 8);
  for (const char* float8 : {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}) add(float8, 3, 3);
  add("U64", 1, 8);
  add("C64", 1, 8);
  add("F6_E2M3", 4, 3);
  add("F6_E3M2", 4, 3);
  add("F4", 6, 3);
  add("U8", 2, 2);
  const std::string path = file_of(header + "}");
  std::ofstream(path, std::ios::binary | std::ios::app) << data;
  const SafetensorsFile file = load_safetensors(path);
  ASSERT_EQ(file.tensors.size(), 5u);
  const auto values = [&](const char* name) { return find(file.tensors, name).to_vector<double>(); };
  EXPECT_EQ(values("I8"), (std::vector<double>{-1, -127, -128}));
  EXPECT_EQ(values("I16"), (std::vector<double>{-32257, 0x7f80}));
  EXPECT_EQ(values("U16"), (std::vector<double>{0x81ff, 0x7f80}));
  EXPECT_EQ(values("U32"), (std::vector<double>{0x7f8081ff, 0xfffeff02}));
  EXPECT_EQ(values("U8"), (std::vector<double>{255, 0x81}));
  EXPECT_EQ(find(file.tensors, "I8").dtype(), int32);
  EXPECT_EQ(find(file.tensors, "U32").dtype(), int64);
  EXPECT_EQ(file.widened, (std::map<std::string, std::string>{
                              {"I16", "int16"}, {"I8", "int8"}, {"U16", "uint16"}, {"U32", "uint32"}}));
  ASSERT_EQ(file.unreadable.size(), 10u);
  EXPECT_EQ(file.unreadable[0].name, "F8_E4M3");
  EXPECT_EQ(file.unreadable[0].reason, "float8_e4m3fn [3]: Tern has no float8_e4m3fn");
  EXPECT_EQ(file.unreadable[9].reason, "float4_e2m1 [6]: Tern has no float4_e2m1");
}

/// Each name is looked up once, not compared with all others: that took minutes.
TEST_F(Safetensors, ManyTensors) {
  constexpr int64_t kMany = 100'000;
  StateView state;
  const Tensor numbers = arange(0, kMany);
  for (int64_t i = 0; i < kMany; ++i) state.push_back({"layers." + std::to_string(i), numbers.narrow(0, i, 1)});
  save_safetensors(state, path());
  const SafetensorsFile file = load_safetensors(path());
  ASSERT_EQ(file.tensors.size(), static_cast<size_t>(kMany));
  for (const NamedTensor& entry : file.tensors)
    ASSERT_EQ(entry.name, "layers." + std::to_string(entry.tensor.item<int64_t>()));
  // The types differ, so that they are not neighbours in the file.
  state.push_back({"layers.7", ones({1}, {.dtype = float16})});
  EXPECT_EQ(error_of([&] { save_safetensors(state, path("twice")); }),
            path("twice") + ": two tensors are named 'layers.7'");
}

TEST_F(Safetensors, EveryTruncationIsAnError) {
  save_safetensors({{"weight", ones({3, 2})}, {"ids", arange(0, 2)}}, path(), {{"k", "v"}});
  const std::string whole = read_whole_file(path());
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string file = write(whole.substr(0, length));
    EXPECT_THROW(load_safetensors(file), Error) << length;
  }
  EXPECT_NO_THROW(load_safetensors(write(whole)));
  EXPECT_THROW(load_safetensors(write(whole + "x")), Error);
}

TEST_F(DamagedSafetensors, FlippedBytesNeverCrash) {
  save_safetensors({{"weight", ones({3, 2})}, {"ids", arange(0, 2)}, {"h", ones({4}, {.dtype = float16})}}, path_,
                   {{"k", "v"}});
  const std::string whole = read_whole_file(path_);
  std::mt19937_64 random = fresh_random();
  int loaded = 0;
  for (int i = 0; i < trials(20'000); ++i) {
    std::string damaged = whole;
    for (size_t k = 0; k <= random() % 3; ++k) {
      char& byte = damaged[random() % whole.size()];
      byte =
          random() % 2 ? static_cast<char>(byte ^ (1 << random() % 8)) : "0123456789[]{},:\"-eF \0\xff"[random() % 24];
    }
    try {
      for (const NamedTensor& entry : load_safetensors(file(damaged)).tensors) entry.tensor.to_vector<double>();
      ++loaded;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(loaded, 0);  // flips in the data or in a name are not detectable
  EXPECT_LT(loaded, trials(20'000));
}

TEST_F(Safetensors, HostileHeaders) {
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"x":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  for (const uint64_t length : {uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7, uint64_t{100'000'001}, uint64_t{1000}}) {
    const std::string file = write(std::string(reinterpret_cast<const char*>(&length), 8) + "{}");
    expect_error([&] { load_safetensors(file); }, {"header claims"});
  }
  expect_rejected("", 0, {"'{'"});
  expect_rejected(" {}", 0, {"'{'"});
  expect_rejected("{", 0, {"JSON"});
  expect_rejected("{}x", 0, {"JSON"});
  expect_rejected("{\"a\":1}", 0, {"'a'", "dtype"});
  expect_rejected(entry("F32", "[2]", "[0,4]"), 4, {"'x'", "[2]", "[0, 4]"});
  expect_rejected(entry("F32", "[2]", "[4,12]"), 12, {"hole"});
  expect_rejected(entry("F32", "[2]", "[0,8]"), 4, {"truncated"});
  expect_rejected(entry("F32", "[2]", "[0,8]"), 12, {"belong to none"});
  expect_rejected(entry("F32", "[2]", "[8,0]"), 8, {"'x'"});
  expect_rejected(entry("F32", "[2]", "[0]"), 8, {"two numbers"});
  expect_rejected(entry("F32", "[2]", "[-8,0]"), 8, {"'x'", "-8"});
  expect_rejected(entry("F32", "[2]", "[0,8.0]"), 8, {"8.0"});
  expect_rejected(entry("F32", "[-2]", "[0,8]"), 8, {"-2"});
  expect_rejected(entry("F32", "[18446744073709551615]", "[0,8]"), 8, {"too large"});
  expect_rejected(entry("F32", "[4611686018427387904,4]", "[0,0]"), 0, {"64 bits"});
  expect_rejected(entry("F32", "[4611686018427387904]", "[0,0]"), 0, {"'x'"});
  expect_rejected(entry("F32", "[1e400]", "[0,8]"), 8, {});
  expect_rejected(entry("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, {"at most 8"});
  expect_rejected(entry("F8_E4M3", "[2]", "[0,3]"), 3, {"'x'", "[2]", "float8_e4m3fn"});
  expect_rejected(entry("F4", "[3]", "[0,2]"), 2, {"'x'", "[3]", "float4_e2m1"});
  expect_rejected(entry("I16", "[2]", "[0,2]"), 2, {"'x'", "[2]", "int16"});
  expect_rejected(entry("U64", "[2305843009213693952]", "[0,0]"), 0, {"'x'", "uint64"});
  expect_rejected(entry("I4", "[2]", "[0,1]"), 1, {"I4", "BOOL"});
  expect_rejected(entry("f32", "[2]", "[0,8]"), 8, {"f32"});
  expect_rejected(R"({"x":{"dtype":1,"shape":[],"data_offsets":[0,4]}})", 4, {"dtype"});
  expect_rejected(R"({"x":{"shape":[],"data_offsets":[0,4]}})", 4, {"dtype"});
  expect_rejected(R"({"__metadata__":{"a":1}})", 0, {"__metadata__"});
  expect_rejected(R"({"__metadata__":[]})", 0, {"__metadata__"});
  const std::string x = R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})",
                    y = R"({"dtype":"U8","shape":[2],"data_offsets":[1,3]})";
  expect_rejected(R"({"x":)" + x + R"(,"y":)" + y + "}", 3, {"'y'", "overlaps"});
  expect_rejected(R"({"x":)" + x + R"(,"x":)" + x + "}", 2, {"'x'", "twice"});
  expect_rejected("{\"\xff\xfe\":" + x + "}", 2, {"JSON"});
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep = "{\"x\":";
    for (int i = 0; i < 100'000; ++i) deep += open;
    expect_rejected(deep, 0, {});
    expect_rejected(deep + std::string(100'000, *open == '[' ? ']' : '}') + "}", 0, {});
  }
}

TEST_F(Safetensors, FilesThatCannotBeRead) {
  expect_error([&] { load_safetensors(path("missing")); }, {"missing", "No such file"});
  expect_error([&] { load_safetensors(folder_.string()); }, {"not a regular file"});
  expect_error([&] { load_safetensors("/dev/null"); }, {"not a regular file"});
  expect_error([&] { load_safetensors(write("")); }, {"too few"});
}

TEST_F(Safetensors, StatesThatCannotBeSaved) {
  save_safetensors({{"x", ones({2})}}, path());
  const std::string before = read_whole_file(path());
  expect_error([&] { save_safetensors({{"x", ones({1})}, {"x", ones({1})}}, path()); }, {"two tensors", "'x'"});
  expect_error([&] { save_safetensors({{"x", Tensor()}}, path()); }, {"'x'", "undefined"});
  expect_error([&] { save_safetensors({{"__metadata__", ones({1})}}, path()); }, {"__metadata__"});
  expect_error([&] { save_safetensors({{"\xff", ones({1})}}, path()); }, {"UTF-8"});
  const StateView x = {{"x", ones({1})}};
  expect_error([&] { save_safetensors(x, path("no/such/folder")); }, {"cannot be written", "No such file"});
  expect_error([&] { save_safetensors(x, "/proc/a.safetensors"); }, {"cannot be written"});
  expect_error([&] { save_safetensors(x, folder_.string()); }, {"cannot be written", "a folder"});
  EXPECT_EQ(read_whole_file(path()), before);
  EXPECT_EQ(files(), 1u);
  EXPECT_FALSE(fs::exists(folder_.string() + ".tmp"));
}

TEST_F(Safetensors, AFullDiskLeavesTheOldFileWhole) {
  save_safetensors({{"x", ones({2})}}, path());
  const std::string before = read_whole_file(path());
  const Tensor large = ones({1 << 16});
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {100'000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error([&] { save_safetensors({{"x", large}}, path()); }, {"cannot be written: File too large"});
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_whole_file(path()), before);
  EXPECT_EQ(files(), 1u);
}

TEST_F(Safetensors, WriteAtomicallyKeepsNothingOfAFailedWriter) {
  write_atomically(path("t"), "old");
  const auto fails = [](const auto& append) {
    append("half", 4);
    fail("planted");
  };
  EXPECT_THROW(write_atomically(path("t"), fails), Error);
  EXPECT_EQ(read_whole_file(path("t")), "old");
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace tern::test
