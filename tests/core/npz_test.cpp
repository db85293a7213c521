// NumPy's archives of arrays: what NumPy wrote is read, damage is an Error, and sizes beyond 32 bits have zip64's
// fields.

#include <unistd.h>
#include <zlib.h>

#include "tern/core/io/input_file.h"
#include "tern/core/io/mapped_file.h"
#include "tern/core/io/npy.h"
#include "tern/core/io/state_file.h"
#include "tern/core/io/zip_directory.h"
#include "tern/core/io/zip_writer.h"
#include "tern/tests/core/files.h"
#include "tern/tests/places.h"

namespace tern::test {
namespace {

using namespace std::string_literals;

const std::string kArchives = source_dir() + "/tests/golden/numpy/";

std::vector<std::string> names_of(const StateView& state) {
  std::vector<std::string> names;
  for (const NamedTensor& entry : state) names.push_back(entry.name);
  return names;
}

/// An archive of stored members.
std::string archive_of(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string bytes;
  ZipWriter zip([&](const void* data, size_t n) { bytes.append(static_cast<const char*>(data), n); });
  for (const auto& [name, data] : members) {
    const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size());
    zip.begin_member(name, data.size(), static_cast<uint32_t>(crc));
    zip.append(data.data(), data.size());
  }
  zip.finish();
  return bytes;
}

class NumpyArchives : public MemoryFileTest {
 protected:
  NumpyFile load(const std::string& bytes) const { return load_npz(file(bytes)); }
  void expect_refused(const std::string& bytes, const std::vector<std::string>& parts) const {
    MemoryFileTest::expect_refused([&] { load(bytes); }, parts);
  }
  std::string saved(const StateView& tensors) const {
    const TemporaryFolder folder;
    save_npz(tensors, folder / "a.npz");
    return read_whole_file(folder / "a.npz");
  }
};

TEST_F(NumpyArchives, WhatNumpyWrote) {
  for (const char* name : {"savez.npz", "compressed.npz"}) {
    SCOPED_TRACE(name);
    const NumpyFile npz = load_npz(kArchives + name);
    std::vector<std::string> names = {"a", "folder/b", "gr\u00fc\u00df", "small", "empty"};
    if (name[0] == 'c') names.emplace_back("long");
    EXPECT_EQ(names_of(npz.tensors), names);
    expect_equal(find(npz.tensors, "a"), arange(0, 6, 1, {}).reshape({2, 3}));
    EXPECT_EQ(find(npz.tensors, "a").dtype(), float32);
    EXPECT_EQ(find(npz.tensors, "folder/b").to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
    EXPECT_EQ(find(npz.tensors, "gr\u00fc\u00df").item<double>(), 4);
    EXPECT_EQ(find(npz.tensors, "small").to_vector<int32_t>(), (std::vector<int32_t>{-1, 7}));
    EXPECT_EQ(find(npz.tensors, "empty").shape(), Shape({0, 2}));
    EXPECT_EQ(npz.widened, (std::map<std::string, std::string>{{"small", "int8"}}));
    ASSERT_EQ(npz.unreadable.size(), 1u);
    EXPECT_EQ(npz.unreadable[0].name, "text");
    EXPECT_NE(npz.unreadable[0].reason.find("'<U2'"), std::string::npos);
  }
}

TEST_F(NumpyArchives, RoundTrip) {
  Generator generator(fresh_seed());
  const StateView state = {{"x", randn({3, 5}, generator)},
                           {"half", randn({7}, generator).to(bfloat16)},
                           {"turned", randn({2, 4}, generator, {.dtype = float64}).t()},
                           {"", full({}, 3)},
                           {"\u4e2d/x.npy", ones({2, 0})},
                           {"flags", ones({3}, {.dtype = boolean})}};
  const std::string bytes = saved(state);
  const NumpyFile npz = load(bytes);
  EXPECT_EQ(names_of(npz.tensors), names_of(state));
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(npz.tensors[i].tensor.dtype(), state[i].tensor.dtype());
    expect_equal(npz.tensors[i].tensor, state[i].tensor);
  }
  for (const NamedTensor& entry : npz.tensors)
    if (entry.tensor.numel() > 0) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(entry.tensor.raw_data()) % 64, 0u) << entry.name;
    }
  Tensor x = npz.tensors[0].tensor;
  x.zero_();
  EXPECT_EQ(read_whole_file(path_), bytes);
  EXPECT_EQ(saved(state), bytes);
  EXPECT_TRUE(load(saved({})).tensors.empty());
}

TEST_F(NumpyArchives, NamesThatCannotBeWritten) {
  const std::string path = file("");
  expect_error([&] { save_npz({{"a", ones({1})}, {"a", ones({1})}}, path); }, {"two tensors are named 'a'"});
  expect_error([&] { save_npz({{"a", Tensor()}}, path); }, {"'a' is undefined"});
  for (const std::string& name : {"\xff"s, "a\0b"s, std::string(70000, 'a')})
    expect_error([&] { save_npz({{name, ones({1})}}, path); }, {"UTF-8"});
}

TEST_F(NumpyArchives, MembersThatAreNoArrays) {
  const std::string vector = saved({{"v", arange(0, 3)}});
  const ZipDirectory zip("v", vector.data(), vector.size());
  const std::string npy(zip.contents(*zip.find("v.npy")));
  const NumpyFile npz = load(archive_of({{"notes.txt", "text"}, {"folder/", ""}, {"folder/v.npy", npy}}));
  EXPECT_EQ(names_of(npz.tensors), std::vector<std::string>{"folder/v"});
  ASSERT_EQ(npz.unreadable.size(), 1u);
  EXPECT_EQ(npz.unreadable[0].name, "notes.txt");
  expect_refused(archive_of({{"a.npy", "text"}}), {"array 'a.npy'", "not an array of NumPy"});
  expect_refused(archive_of({{"a.npy", ""}}), {"not an array of NumPy"});
  expect_refused(archive_of({{"a.npy", npy.substr(0, npy.size() - 1)}}), {"array 'a.npy'", "truncated"});
  expect_refused(archive_of({{"a.npy", npy}, {"b.npy", npy}, {"a.npy", npy}}), {"two entries named 'a.npy'"});
}

TEST_F(NumpyArchives, DamageIsFound) {
  for (const char* name : {"savez.npz", "compressed.npz"}) {
    SCOPED_TRACE(name);
    const std::string bytes = read_whole_file(kArchives + name);
    for (size_t n = 0; n < bytes.size(); n += 7) EXPECT_THROW(load(bytes.substr(0, n)), Error) << n;
    const NumpyFile whole = load_npz(kArchives + name);
    const ZipDirectory zip(name, bytes.data(), bytes.size());
    int unharmed = 0;
    for (const ZipEntry& entry : zip.entries())
      for (uint64_t i = 0; i < entry.bytes; i += 5) {
        std::string damaged = bytes;
        damaged[static_cast<size_t>(entry.data - bytes.data()) + i] ^= 0x10;
        const std::string array = "array '" + std::string(entry.name) + "'";
        if (entry.method == 0) {
          expect_refused(damaged, {array});
          continue;
        }
        try {  // deflate has bits without meaning, at the end of a stream for example
          const NumpyFile npz = load(damaged);
          for (size_t k = 0; k < npz.tensors.size(); ++k) expect_equal(npz.tensors[k].tensor, whole.tensors[k].tensor);
          ++unharmed;
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find(array), std::string::npos) << error.what();
        }
      }
    EXPECT_LE(unharmed, 10);
    // Any other byte: an Error, or the same arrays.
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string damaged = bytes;
      damaged[i] ^= 0x04;
      try {
        for (const NamedTensor& entry : load(damaged).tensors) entry.tensor.to_vector<double>();
      } catch (const Error&) {
      }
    }
  }
}

/// The fields of the first entry in the directory.
size_t directory_at(const std::string& bytes) { return bytes.find("PK\1\2"); }

TEST_F(NumpyArchives, ClaimsOfTheDirectory) {
  const std::string stored = saved({{"a", arange(0, 8)}});
  std::string bytes = stored;
  const size_t at = directory_at(bytes);
  bytes[at + 8] |= 1;
  expect_refused(bytes, {"'a.npy'", "encrypted"});
  bytes = stored;
  bytes[at + 10] = 12;
  expect_refused(bytes, {"method 12"});
  bytes = stored;
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at) + 16, 4, '\0');
  expect_refused(bytes, {"checksum"});  // 0 is no exception here
  bytes = stored;
  bytes[at + 10] = 8;
  bytes[at + 27] = 0x7f;  // two billion bytes
  expect_refused(bytes, {"cannot hold", "claims"});
  std::string compressed = read_whole_file(kArchives + "compressed.npz");
  ++compressed[directory_at(compressed) + 24];
  expect_refused(compressed, {"not as many"});
  compressed[directory_at(compressed) + 24] -= 2;
  expect_refused(compressed, {"not as many"});
}

/// Members and places beyond 4 GiB. Zeros are holes of the file, so that it takes no room.
TEST_F(NumpyArchives, Zip64) {
  constexpr uint64_t kLarge = (uint64_t{1} << 32) + 12345;
  const int descriptor = memory_;
  off_t at = 0;
  ZipWriter zip([&](const void* data, size_t bytes) {
    EXPECT_TRUE(!data || pwrite(descriptor, data, bytes, at) == static_cast<ssize_t>(bytes));
    at += static_cast<off_t>(bytes);
  });
  const auto member = [&](const std::string& name, uint64_t bytes) {
    zip.begin_member(name, bytes, 7);
    EXPECT_EQ(at % 64, 0) << name;
    zip.append(nullptr, bytes);
  };
  member("first.npy", 3);
  member("large.npy", kLarge);
  member("edge.npy", 0xffffffff);
  member("last.npy", 5);
  zip.finish();
  ASSERT_EQ(ftruncate(descriptor, at), 0);
  const MappedFile mapping(path_);
  const ZipDirectory directory(path_, mapping.data(), mapping.bytes());
  ASSERT_EQ(directory.entries().size(), 4u);
  const std::pair<const char*, uint64_t> wanted[] = {
      {"first.npy", 3}, {"large.npy", kLarge}, {"edge.npy", 0xffffffff}, {"last.npy", 5}};
  for (const auto& [name, bytes] : wanted) {
    const ZipEntry* const entry = directory.find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->bytes, bytes);
    EXPECT_EQ(entry->plain_bytes, bytes);
    EXPECT_EQ((entry->data - mapping.data()) % 64, 0) << name;
  }
  EXPECT_GT(directory.find("last.npy")->data - mapping.data(), int64_t{1} << 33);
}

TEST_F(NumpyArchives, MoreMembersThanSixteenBitsCount) {
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < 66000; ++i) members.emplace_back("m" + std::to_string(i), "");
  EXPECT_EQ(load(archive_of(members)).unreadable.size(), 66000u);
}

TEST_F(NumpyArchives, TheWriterCountsItsBytes) {
  ZipWriter zip([](const void*, size_t) {});
  zip.begin_member("a", 3, 0);
  zip.append("ab", 2);
  expect_error([&] { zip.finish(); }, {"'a'", "3 bytes"});
}

TEST_F(NumpyArchives, AsFilesOfWeights) {
  const StateFile npz = load_state_file(kArchives + "savez.npz");
  EXPECT_EQ(npz.format, "NumPy (npz)");
  EXPECT_EQ(npz.tensors.size(), 5u);
  EXPECT_EQ(npz.widened.at("small"), "int8");
  EXPECT_EQ(npz.unreadable.size(), 1u);
  EXPECT_EQ(load_state_file(file(saved({{"w", ones({2})}}))).format, "NumPy (npz)");
  expect_error([] { load_state_file(kArchives + "savez.npz:model"); }, {"no container 'model'"});
  const TemporaryFolder folder;
  save_npy(ones({2, 2}), folder / "one.npy");
  const StateFile one = load_state_file(folder / "one.npy");
  EXPECT_EQ(one.format, "NumPy (npy)");
  ASSERT_EQ(one.tensors.size(), 1u);
  EXPECT_EQ(one.tensors[0].name, "tensor");
}

}  // namespace
}  // namespace tern::test
