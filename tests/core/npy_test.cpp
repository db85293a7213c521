// NumPy's files: what NumPy wrote is read exactly, what is written is what NumPy writes, and damage is an Error.

#include "tern/core/io/npy.h"

#include <sys/resource.h>

#include <csignal>

#include "tern/core/io/input_file.h"
#include "tern/core/io/zip_directory.h"
#include "tern/tests/core/files.h"
#include "tern/tests/places.h"

namespace tern::test {
namespace {

using namespace std::string_literals;

const std::string kNumpy = source_dir() + "/tests/golden/numpy/";

/// A .npy whose header is this text.
std::string npy(const std::string& header, const std::string& data, const std::string& version = "\1\0"s) {
  std::string bytes = "\x93NUMPY" + version;
  for (size_t i = 0; i < (version[0] == 1 ? 2u : 4u); ++i) bytes += static_cast<char>(header.size() >> 8 * i & 0xff);
  return bytes + header + data;
}
std::string header_of(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

class NumpyFiles : public MemoryFileTest {
 protected:
  /// The bytes of arrays.npz's array.
  static std::string golden(const std::string& name) {
    static const std::string bytes = read_whole_file(kNumpy + "arrays.npz");
    const ZipDirectory zip("arrays.npz", bytes.data(), bytes.size());
    const ZipEntry* const entry = zip.find(name + ".npy");
    return entry ? std::string(zip.contents(*entry)) : "";
  }
  Tensor load(const std::string& bytes) const { return load_npy(file(bytes)); }
  void expect_refused(const std::string& bytes, const std::vector<std::string>& parts) const {
    MemoryFileTest::expect_refused([&] { load(bytes); }, parts);
  }
};

const struct {
  const char* name;
  DType dtype;
} kReadTypes[] = {{"f8", float64}, {"f4", float32}, {"f2", float16}, {"i8", int64}, {"i4", int32}, {"u1", uint8},
                  {"b1", boolean}, {"i2", int32},   {"i1", int32},   {"u2", int32}, {"u4", int64}};

TEST_F(NumpyFiles, EveryTypeInBothByteOrders) {
  for (const auto& [name, dtype] : kReadTypes)
    for (const char* order : {"", "big_"}) {
      SCOPED_TRACE(std::string(order) + name);
      const Tensor x = load(golden(std::string(order) + name));
      EXPECT_EQ(x.dtype(), dtype);
      EXPECT_EQ(x.shape(), Shape({2, 3}));
      const std::vector<double> values = name[0] == 'b'   ? std::vector<double>{1, 0, 1, 1, 0, 0}
                                         : name[0] == 'u' ? std::vector<double>{0, 1, 2, 3, 100, 200}
                                                          : std::vector<double>{-2, -1, 0, 1, 2, 100};
      EXPECT_EQ(x.to_vector<double>(), values);
    }
}

TEST_F(NumpyFiles, Bfloat16AsMlDtypesWritesIt) {
  const Tensor x = load(golden("bfloat16"));
  EXPECT_EQ(x.dtype(), bfloat16);
  std::vector<uint16_t> bits;
  for (int64_t i = 0; i < x.numel(); ++i) bits.push_back(x.data<BFloat16>()[i].bits);
  EXPECT_EQ(bits, (std::vector<uint16_t>{0x3fc0, 0xc000, 0x4049, 0x7f80, 0x7fc0, 0x8000}));
  for (const char* descr : {"|V2", "bfloat16"})
    EXPECT_EQ(load(npy(header_of(descr, "(1,)"), "\xc0\x3f")).item<float>(), 1.5) << descr;
  EXPECT_EQ(load(npy(header_of(">V2", "(1,)"), "\x3f\xc0")).item<float>(), 1.5);
}

TEST_F(NumpyFiles, ShapesOrdersAndVersions) {
  EXPECT_EQ(load(golden("scalar")).shape(), Shape());
  EXPECT_EQ(load(golden("scalar")).item<double>(), 2.5);
  EXPECT_EQ(load(golden("empty")).shape(), Shape({0, 3}));
  EXPECT_EQ(load(golden("vector")).to_vector<double>(), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(load(golden("eight")).shape(), Shape({1, 2, 1, 1, 2, 1, 1, 1}));
  for (const char* name : {"version2", "version3"})
    EXPECT_EQ(load(golden(name)).to_vector<double>(), (std::vector<double>{0, 1, 2, 3, 4, 5})) << name;
  const Tensor x = load(golden("fortran"));
  EXPECT_EQ(x.shape(), Shape({2, 3, 4}));
  EXPECT_EQ(x.strides()[0], 1);
  EXPECT_EQ(x.strides()[2], 6);
  expect_equal(x, arange(0, 24).reshape({2, 3, 4}));
}

TEST_F(NumpyFiles, AreMappedAndWritesStayInTheProcess) {
  const std::string path = file(golden("f4"));
  const std::string before = read_whole_file(path);
  Tensor x = load_npy(path);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.raw_data()) % 4096, 128u);  // in the mapping, behind the header
  x.add_(1);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{-1, 0, 1, 2, 3, 101}));
  EXPECT_EQ(read_whole_file(path), before);
  const Tensor odd = load(npy(header_of("<f4", "(2,)") + std::string(5, ' '), std::string(8, '\0')));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(odd.raw_data()) % 4, 0u);  // not aligned in the file
  const Tensor flags = load(npy(header_of("|b1", "(3,)"), "\0\2\1"s));
  EXPECT_EQ(flags.to_vector<double>(), (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(static_cast<char*>(flags.raw_data())[1], 1);
}

TEST_F(NumpyFiles, WhatIsWrittenIsWhatNumpyWrites) {
  const TemporaryFolder folder;
  const std::string path = folder / "written.npy";
  for (const char* name :
       {"f8", "f4", "f2", "i8", "i4", "u1", "b1", "bfloat16", "scalar", "empty", "vector", "eight"}) {
    const std::string expected = golden(name);
    save_npy(load(expected), path);
    EXPECT_EQ(read_whole_file(path), expected) << name;
  }
  Tensor x = arange(0, 6).reshape({2, 3}).to(float64).t();
  save_npy(x.set_requires_grad(true), path);
  expect_equal(load_npy(path), x.detach());
  expect_error([&] { save_npy(Tensor(), path); }, {"undefined"});
}

TEST_F(NumpyFiles, TypesThatTernHasNotAreNamed) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"odd_uint64", {"uint64 [2]", "Tern has no uint64", "astype('int64')"}},
      {"odd_complex64", {"complex64 [2, 1]", "a.real"}},
      {"odd_longdouble", {"'<f16'", "astype('float32')"}},
      {"odd_float8", {"'<V1'"}},
      {"odd_text", {"'<U2'"}},
      {"odd_bytes", {"'|S2'"}},
      {"odd_date", {"'<M8[D]'"}},
      {"odd_object", {"Python objects", "pickle", "not read"}},
      {"odd_record", {"records", "save each field"}},
      {"odd_unicode_record", {"records"}},
      {"odd_nine", {"9 dimensions", "at most 8"}}};
  for (const auto& [name, parts] : cases) {
    SCOPED_TRACE(name);
    ASSERT_NE(golden(name), "");
    expect_refused(golden(name), parts);
  }
}

TEST_F(NumpyFiles, HeadersAreRead) {
  const auto same_numbers = [&](const std::string& header) {
    EXPECT_EQ(load(npy(header, "\1\2")).to_vector<double>(), (std::vector<double>{1, 2})) << header;
  };
  same_numbers("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }");
  same_numbers("{\"shape\":(2L,),\"descr\":\"u1\",\"fortran_order\":True}\n");
  same_numbers("  { 'fortran_order' :False ,\n'descr' : 'uint8' , 'shape' : ( 2 , ) }  \n");
}

TEST_F(NumpyFiles, DamagedHeadersAreRefused) {
  const std::string d = "'descr': '|u1', ", o = "'fortran_order': False, ", s = "'shape': (2,)";
  const std::pair<std::string, const char*> headers[] = {
      {"", "expected '{'"},
      {"{", "expected a string"},
      {"{" + d + o + "}", "no 'shape'"},
      {"{" + d + s + "}", "no 'fortran_order'"},
      {"{" + o + s + "}", "no 'descr'"},
      {"{}", "no 'descr'"},
      {"{" + d + d + o + s + "}", "twice"},
      {"{" + d + o + "'shape': (2,), 'shape': (2,)}", "twice"},
      {"{" + d + o + s + ", 'more': 1}", "'more'"},
      {"{" + d + o + s, "comma or '}'"},
      {"{" + d + o + s + "} x", "text after"},
      {"{" + d + o + s + "}{}", "text after"},
      {"{" + d + "'fortran_order': 0, " + s + "}", "True or False"},
      {"{" + d + "'fortran_order': 'True', " + s + "}", "True or False"},
      {"{" + d + o + "'shape': [2]}", "expected '('"},
      {"{" + d + o + "'shape': (2)}", "no tuple"},
      {"{" + d + o + "'shape': 2}", "expected '('"},
      {"{" + d + o + "'shape': (-2,)}", "size >= 0"},
      {"{" + d + o + "'shape': (2.0,)}", "comma"},
      {"{" + d + o + "'shape': (1+1,)}", "comma"},
      {"{" + d + o + "'shape': (,)}", "size >= 0"},
      {"{" + d + o + "'shape': (2,", "size >= 0"},
      {"{" + d + o + "'shape': (99999999999999999999,)}", "64 bits"},
      {"{" + d + o + "'shape': (9223372036854775807, 4)}", "64 bits"},
      {"{" + d + o + "'shape': (0, 9223372036854775807, 9223372036854775807)}", "64 bits"},
      {"{'descr': '|u1, " + o + s + "}", "comma or '}'"},
      {"{'descr': '|u1", "no end"},
      {"{'descr': '|u\\x31', " + o + s + "}", "escape"},
      {"{'descr': [('x', '<f4'), " + o + s + "}", "no end"},
      {"{'descr': [('x', '<f4']), " + o + s + "}", "brackets"},
      {"{'descr': __import__('os').system('true'), " + o + s + "}", "expected a type"},
      {"{'descr': 4, " + o + s + "}", "expected a type"},
      {"{'descr': ", "expected a type"}};
  for (const auto& [header, part] : headers) {
    SCOPED_TRACE(header);
    expect_refused(npy(header, "\1\2"), {part});
  }
  expect_refused(npy("{'descr': " + std::string(100000, '['), "\1\2", "\2\0"s), {"no end"});  // no recursion
  std::string many = "(";
  for (int i = 0; i < 10000; ++i) many += "1, ";
  expect_refused(npy("{" + d + o + "'shape': " + many + ")}", "\1", "\2\0"s), {"10000 dimensions"});
}

TEST_F(NumpyFiles, SizesThatDoNotFitTheFile) {
  expect_refused(npy(header_of("<f4", "(2, 3)"), std::string(23, '\0')),
                 {"[2, 3] of float32", "23 bytes", "truncated"});
  expect_refused(npy(header_of("<f4", "(2, 3)"), std::string(25, '\0')), {"1 bytes follow", "savez"});
  expect_refused(npy(header_of("<f8", "(2305843009213693952,)"), "1234"), {"4 bytes", "truncated"});
  expect_refused(npy(header_of("<f4", "(1099511627776, 1048576)"), "1234"), {"4 bytes"});
  expect_refused(npy(header_of("<i2", "(1000000000000,)"), "1234"), {"4 bytes"});
  expect_refused(npy(header_of("<f4", "(0,)"), "1234"), {"4 bytes follow"});
  expect_refused(npy(header_of("<f4", "()"), ""), {"0 bytes"});
}

TEST_F(NumpyFiles, BeginningsThatAreNone) {
  expect_refused("", {"empty"});
  expect_refused("\x93NUMP", {"not an array"});
  expect_refused("PK\3\4 and more bytes", {"not an array"});
  expect_refused("\x93NUMPY\1", {"7 bytes", "truncated"});
  expect_refused("\x93NUMPY\1\0\xff\xff{}"s, {"claims 65535 bytes", "2 follow"});
  expect_refused("\x93NUMPY\2\0\xff\xff\xff\xff{}"s, {"claims 4294967295 bytes"});
  for (const std::string& version : {"\4\0"s, "\1\1"s, "\0\0"s, "\xff\0"s})
    expect_refused(npy(header_of("<f4", "()"), "1234", version), {"version ", "2.0 and 3.0"});
  expect_error([] { load_npy("/nowhere/a.npy"); }, {"/nowhere/a.npy"});
  expect_error([] { load_npy(source_dir()); }, {"a folder"});
}

/// Every prefix and every changed byte of a file gives the array, another of as many bytes, or an Error.
TEST_F(NumpyFiles, DamageAnywhere) {
  const std::string bytes = golden("fortran");
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_THROW(load(bytes.substr(0, n)), Error) << n;
  for (size_t i = 0; i < 128; ++i)
    for (const char c : {'\0', '\xff', ' ', '(', '9', '\''}) {
      std::string damaged = bytes;
      damaged[i] = c;
      try {
        load(damaged).to_vector<double>();
      } catch (const Error&) {
      }
    }
}

class NumpyFolder : public FolderTest {};

TEST_F(NumpyFolder, ADiskThatIsFull) {
  const std::string target = path("full.npy");
  save_npy(ones({2}), target);
  const std::string before = read_whole_file(target);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{1 << 16, limit.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  expect_error([&] { save_npy(ones({1 << 18}), target); }, {"full.npy", "cannot be written"});
  expect_error([&] { save_npz({{"a", ones({1 << 18})}}, target); }, {"full.npy", "cannot be written"});
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(read_whole_file(target), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  expect_error([&] { save_npy(ones({2}), path("no/such/folder.npy")); }, {"folder.npy", "cannot be written"});
}

}  // namespace
}  // namespace tern::test
