// PyTorch's files: torch.save's output is read exactly, and damage causes an Error or changes nothing.

#include <zlib.h>

#include <map>
#include <set>

#include "tern/core/io/input_file.h"
#include "tern/core/io/safetensors.h"
#include "tern/core/io/state_file.h"
#include "tern/core/io/torch_file.h"
#include "tern/core/io/zip_directory.h"
#include "tern/tests/core/files.h"
#include "tern/tests/places.h"

namespace tern::test {
namespace {

using namespace std::string_literals;

const std::string kGolden = source_dir() + "/tests/golden/torch/";

/// Equal bytes, including NaN, -0 and the type.
bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor x = a.contiguous(), y = b.contiguous();
  return a.numel() == 0 || std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

/// Reads all elements, but only some of an expanded tensor that damage made large.
void touch_all(const StateView& state) {
  for (const NamedTensor& entry : state) {
    Tensor t = entry.tensor;
    for (int64_t d = 0; d < t.dim(); ++d) t = t.slice(d, 0, std::min<int64_t>(t.size(d), 100));
    if (t.numel() < 1'000'000) t.to_vector<double>();
  }
}

class TorchFiles : public MemoryFileTest {
 protected:
  StateFile load(const std::string& bytes) const { return load_state_file(file(bytes)); }
  void expect_refused(const std::string& bytes, const std::vector<std::string>& parts) const {
    MemoryFileTest::expect_refused([&] { load(bytes); }, parts);
  }
};

TEST_F(TorchFiles, EverythingThatPyTorchWrote) {
  const StateView expected = load_safetensors(kGolden + "expected.safetensors").tensors;
  std::set<std::string> files;
  for (const NamedTensor& entry : expected) files.insert(entry.name.substr(0, entry.name.find('/')));
  EXPECT_EQ(files.size(), 33u);
  for (const std::string& name : files) {
    SCOPED_TRACE(name);
    const StateFile file = load_state_file(kGolden + name);
    size_t wanted = 0;
    for (const NamedTensor& entry : expected) {
      if (!entry.name.starts_with(name + "/")) continue;
      ++wanted;
      const Tensor loaded = find(file.tensors, entry.name.substr(name.size() + 1));
      ASSERT_TRUE(loaded.defined()) << entry.name;
      EXPECT_TRUE(same_bits(loaded, entry.tensor)) << entry.name << ": " << loaded << " and " << entry.tensor;
    }
    EXPECT_EQ(file.tensors.size(), wanted);
  }
}

TEST_F(TorchFiles, ViewsShareTheirStorage) {
  for (const char* name : {"views.pt", "older_views.pt"}) {
    const StateView state = load_state_file(kGolden + name).tensors;
    const Tensor base = find(state, "base");
    EXPECT_EQ(find(state, "transposed").strides()[0], 1);
    EXPECT_EQ(find(state, "expanded").strides()[1], 0);
    EXPECT_EQ(find(state, "offset").raw_data(), static_cast<char*>(base.raw_data()) + 28);
    const std::string before = read_whole_file(kGolden + name);
    find(state, "shared").add_(1);
    EXPECT_EQ(base[23].item<float>(), 24);
    EXPECT_EQ(read_whole_file(kGolden + name), before);  // the mapping is private
  }
}

TEST_F(TorchFiles, ContainersAndPrefixes) {
  const auto expect_at = [](const char* name, const char* container, const char* prefix) {
    const StateFile file = load_state_file(kGolden + name);
    EXPECT_EQ(file.container, container) << name;
    EXPECT_EQ(file.prefix, prefix) << name;
  };
  expect_at("dtypes.pt", "", "");
  expect_at("checkpoint.pth", "model", "");
  expect_at("parallel.pth", "", "module.");
  expect_at("compiled.pth", "net.state_dict", "module._orig_mod.");
  expect_at("average.pth", "model_ema", "module.");
}

TEST_F(TorchFiles, WhatIsNoTensor) {
  const StateFile file = load_state_file(kGolden + "checkpoint.pth", {.whole = true});
  EXPECT_EQ(file.format, "PyTorch (zip)");
  EXPECT_TRUE(find(file.tensors, "model.0.weight").defined());
  EXPECT_TRUE(find(file.tensors, "optimizer.state.0.exp_avg").defined());
  EXPECT_TRUE(find(file.tensors, "rng").defined());
  std::string other = "\n";
  for (const auto& [name, value] : file.other_entries) other += name + ": " + value + "\n";
  for (const char* line :
       {"epoch: 7", "loss: 0.25", "name: 'a \u00e9 \\x0a'", "best: None", "betas: tuple of 2", "dtype: torch.bfloat16",
        "seen: set of 2", "milestones.5: 1", "args.lr: 0.001", "args.output: 'runs/a'", "args.device: 'cpu'",
        "args.seed: 0x400000000000000000", "optimizer.param_groups.0.lr: 0.001"})
    EXPECT_NE(other.find("\n"s + line + "\n"), std::string::npos) << line << " is not in" << other;
  EXPECT_EQ(file.contents.find("args").find("lr").as_float(), 1e-3);
  EXPECT_EQ(load_state_file(kGolden + "older_dtypes.pt").format, "PyTorch (older format)");
  EXPECT_EQ(load_state_file(kGolden + "cifar_batch").format, "pickle");
}

TEST_F(TorchFiles, TypesThatTernHasNot) {
  const StateFile small = load_state_file(kGolden + "dtypes.pt");
  EXPECT_EQ(small.widened, (std::map<std::string, std::string>{{"int16", "int16"}, {"int8", "int8"}}));
  const StateFile file = load_state_file(kGolden + "complex.pt");
  ASSERT_EQ(file.unreadable.size(), 1u);
  EXPECT_EQ(file.unreadable[0].name, "odd");
  EXPECT_EQ(file.unreadable[0].reason, "complex64 [2]: Tern has no complex64");
}

/// Sparse, quantised, nested and sub-byte tensors, those without values, and what is no tensor.
TEST_F(TorchFiles, OddTensorsBesideTheWeights) {
  for (const char* name : {"odd2.pt", "odd4.pt"}) {
    SCOPED_TRACE(name);
    const StateFile weights = load_state_file(kGolden + name);
    ASSERT_EQ(weights.tensors.size(), 1u);
    EXPECT_EQ(weights.container, "model");
    EXPECT_EQ(weights.tensors[0].tensor.to_vector<double>(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
    EXPECT_TRUE(weights.unreadable.empty());
    const StateFile whole = load_state_file(kGolden + name, {.whole = true});
    EXPECT_TRUE(find(whole.tensors, "odd.buffer").defined());
    std::map<std::string, std::string> reasons;
    for (const UnreadableTensor& tensor : whole.unreadable) reasons[tensor.name] = tensor.reason;
    const std::map<std::string, std::string> expected = {
        {"odd.coo", "float32 [3, 3]: a sparse tensor (sparse_coo); Tern has only dense ones"},
        {"odd.csr", "float32 [3, 3]: a sparse tensor (sparse_csr); Tern has only dense ones"},
        {"odd.parameter", "float32 [3, 3]: a sparse tensor (sparse_coo); Tern has only dense ones"},
        {"odd.quantised", "qint8 [3, 3]: a quantised tensor, which Tern has not"},
        {"odd.channels", "quint8 [3, 3]: a quantised tensor, which Tern has not"},
        {"odd.meta", "float32 [2, 3]: a tensor on PyTorch's meta device, which has no values"},
        {"odd.bits", "bits8 [2]: Tern has no bits8"},
        {"odd.float4", "float4_e2m1fn_x2 [2, 3]: Tern has no float4_e2m1fn_x2"},
        {"odd.float8", "float8_e8m0fnu [2]: Tern has no float8_e8m0fnu"},
        {"odd.uint64", "uint64 [2]: Tern has no uint64"},
        {"odd.nested", "a nested tensor; Tern has only those of one shape"},
        {"odd.lazy", "a lazy module's parameter, without values"}};
    EXPECT_EQ(reasons, expected);
    std::map<std::string, std::string> others(whole.other_entries.begin(), whole.other_entries.end());
    EXPECT_EQ(others["complex"], "(1-2.5j)");
    EXPECT_EQ(others["numpy_complex"], "(0.5+1j)");
    EXPECT_EQ(others["deque"], "list of 2");
    EXPECT_EQ(others["counts.a"], "1");
    EXPECT_EQ(whole.contents.find("complex").as_text(), "(1-2.5j)");
    EXPECT_EQ(whole.contents.find("deque")[1].as_integer(), 2);
  }
}

TEST_F(TorchFiles, CodeIsRefusedByItsName) {
  for (const char* name : {"hostile.pt", "older_hostile.pt"})
    expect_error([&] { load_state_file(kGolden + name); }, {name, "it names posix.system", "never runs code"});
  expect_error([&] { load_state_file(kGolden + "hostile.pkl"); }, {"builtins.eval"});
  expect_error([&] { load_state_file(kGolden + "module.pt"); },
               {"torch.nn.modules.linear.Linear", "torch.save(model.state_dict(), file)"});
  EXPECT_FALSE(fs::exists("hostile-was-here"));
}

TEST_F(TorchFiles, FilesOfAnotherKind) {
  expect_error([&] { load_state_file("/nowhere/a.pt"); }, {"/nowhere/a.pt", "No such file"});
  expect_error([&] { load_state_file(source_dir()); }, {"not a regular file"});
  expect_refused("", {"empty"});
  expect_refused("Hello, world\n",
                 {"neither a safetensors file nor one that PyTorch or NumPy writes", "'Hello, world\\x0a'"});
  expect_refused("version https://git-lfs.github.com/spec/v1\n", {"Git LFS"});
  std::string tar(1024, '\0');
  tar.replace(257, 5, "ustar");
  expect_refused(tar, {"a tar archive"});
  expect_error([&] { load_state_file(kGolden + "compressed.pt"); }, {"compressed.pt", "is compressed (method 8)"});
}

// Archives created here.

std::string little(uint64_t value, int bytes) {
  return {reinterpret_cast<const char*>(&value), static_cast<size_t>(bytes)};
}

struct Member {
  std::string name, data;
  uint16_t method = 0, flags = 0;
  int64_t header = -1;  // offset in the directory; -1: the true one
};

std::string zip(const std::vector<Member>& members) {
  std::string out, directory;
  for (const Member& m : members) {
    const uint64_t at = m.header < 0 ? out.size() : static_cast<uint64_t>(m.header);
    const std::string common = little(m.flags, 2) + little(m.method, 2) + little(0, 4) +
                               little(crc32_z(0, reinterpret_cast<const Bytef*>(m.data.data()), m.data.size()), 4) +
                               little(m.data.size(), 4) + little(m.data.size(), 4) + little(m.name.size(), 2) +
                               little(0, 2);
    out += "PK\3\4"s + little(20, 2) + common + m.name + m.data;
    directory += "PK\1\2"s + little(20, 2) + little(20, 2) + common + std::string(10, '\0') + little(at, 4) + m.name;
  }
  return out + directory + "PK\5\6"s + little(0, 4) + little(members.size(), 2) + little(members.size(), 2) +
         little(directory.size(), 4) + little(out.size(), 4) + little(0, 2);
}

/// The pickle of one tensor: a storage of `numel` elements, the tensor's offset, sizes and strides.
std::string tensor_pickle(int64_t numel, int64_t offset, const std::vector<int64_t>& sizes,
                          const std::vector<int64_t>& strides, const std::string& storage = "torch\nFloatStorage") {
  const auto number = [](int64_t value) { return "\x8a\x08"s + little(static_cast<uint64_t>(value), 8); };
  const auto tuple = [&](const std::vector<int64_t>& values) {
    std::string out = "(";
    for (const int64_t value : values) out += number(value);
    return out + "t";
  };
  return "\x80\x02}U\1x"s + "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagec" + storage + "\nU\1" + "0U\3cpu" +
         number(numel) + "tQ" + number(offset) + tuple(sizes) + tuple(strides) + "\x89}tRs.";
}

TEST_F(TorchFiles, TensorsThatDoNotFitTheirStorage) {
  const auto archive = [](const std::string& pickle) {
    return zip({{"a/data.pkl", pickle}, {"a/data/0", std::string(24, '\0')}});  // 6 floats
  };
  const auto tensor_of = [&](const std::string& pickle) { return load(archive(pickle)).tensors[0].tensor; };
  const auto refused = [&](const std::string& pickle, const std::vector<std::string>& parts) {
    expect_refused(archive(pickle), parts);
  };
  constexpr int64_t kHuge = INT64_MAX;
  EXPECT_EQ(tensor_of(tensor_pickle(6, 0, {2, 3}, {3, 1})).shape(), Shape({2, 3}));
  EXPECT_EQ(tensor_of(tensor_pickle(6, 5, {1}, {kHuge})).strides()[0], 1);  // a stride without effect is not stored
  EXPECT_EQ(tensor_of(tensor_pickle(6, 9, {0, 4}, {4, 1})).numel(), 0);
  EXPECT_EQ(tensor_of(tensor_pickle(6, 0, {1000, 2}, {0, 5})).numel(), 2000);
  const std::string outside = "is not inside its storage of 24 bytes";
  refused(tensor_pickle(6, 1, {2, 3}, {3, 1}), {"tensor 'x'", outside});
  refused(tensor_pickle(6, 6, {}, {}), {outside});
  refused(tensor_pickle(6, -1, {2}, {1}), {outside});
  refused(tensor_pickle(6, kHuge, {2}, {1}), {outside});
  refused(tensor_pickle(6, 0, {2}, {kHuge}), {outside});
  refused(tensor_pickle(6, 1, {2, 2}, {kHuge, kHuge}), {outside});
  refused(tensor_pickle(6, 5, {2}, {-1}), {"stride -1", "negative"});
  refused(tensor_pickle(6, 0, {-2}, {1}), {"-2"});
  refused(tensor_pickle(6, 0, {kHuge, kHuge}, {0, 0}), {"tensor 'x'"});
  refused(tensor_pickle(6, 0, {0, kHuge, kHuge}, {1, 1, 1}), {"tensor 'x'"});
  refused(tensor_pickle(6, 0, {1 << 20, 1 << 20}, {0, 0}), {"takes more than 1 GiB"});
  refused(tensor_pickle(7, 0, {2}, {1}), {"'0' must have 7 elements of 4 bytes, the file holds 24 bytes"});
  refused(tensor_pickle(-1, 0, {2}, {1}), {"has -1 elements"});
  refused(tensor_pickle(kHuge, 0, {2}, {1}), {"9223372036854775807 elements"});
  refused(tensor_pickle(6, 0, {2, 3}, {1}), {"2 sizes and 1 strides"});
  refused(tensor_pickle(6, 0, {2}, {1}, "os\nFloatStorage"), {"os.FloatStorage"});
  const std::vector<int64_t> nine(9, 1);
  EXPECT_EQ(load(archive(tensor_pickle(6, 0, nine, nine))).unreadable[0].reason, "9 dimensions; Tern has at most 8");
}

/// As timm does, the average is taken, and the other set by its name.
TEST_F(TorchFiles, SeveralContainers) {
  const auto archive = [](const std::string& entries) {
    const std::string one = tensor_pickle(1, 0, {1}, {1});
    const std::string tensor = one.substr(6, one.size() - 8);  // the tensor alone
    std::string pickle = "\x80\x02}("s;
    for (const std::string name : {"state_dict", "state_dict_ema", "model"})
      if (entries.find("|" + name + "|") != std::string::npos)
        pickle += "U"s + static_cast<char>(name.size()) + name + "}U\1" + name.back() + tensor + "s";
    return zip({{"a/data.pkl", pickle + "u."}, {"a/data/0", std::string(4, '\0')}});
  };
  StateFile file = load(archive("|state_dict|state_dict_ema|model|"));
  EXPECT_EQ(file.container, "state_dict_ema");
  EXPECT_EQ(file.other_containers, (std::vector<std::string>{"state_dict", "model"}));
  EXPECT_EQ(file.tensors[0].name, "a");
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "both.pth").string();
  std::ofstream(path, std::ios::binary) << archive("|state_dict|state_dict_ema|");
  file = load_state_file(path + ":state_dict");
  EXPECT_EQ(file.container, "state_dict");
  EXPECT_EQ(file.path, path);
  EXPECT_EQ(file.tensors[0].name, "t");
  EXPECT_EQ(file.other_containers, (std::vector<std::string>{"state_dict_ema"}));
  expect_error([&] { load_state_file(path + ":model"); }, {path, "no tensors under 'model'"});
  expect_error([&] { load_state_file(path + ".x:model"); }, {"No such file"});
  EXPECT_EQ(load(archive("|state_dict|")).other_containers.size(), 0u);
}

TEST_F(TorchFiles, BoolsThatAreNeitherZeroNorOne) {
  const std::string pickle = tensor_pickle(3, 0, {3}, {1}, "torch\nBoolStorage");
  const Tensor x = load(zip({{"a/data.pkl", pickle}, {"a/data/0", "\x00\x01\xff"s}})).tensors[0].tensor;
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{0, 1, 1}));
}

TEST_F(TorchFiles, ArchivesThatAreNotSound) {
  const Member pickle{"a/data.pkl", tensor_pickle(1, 0, {1}, {1})}, storage{"a/data/0", "\0\0\0\0"s};
  EXPECT_NO_THROW(load(zip({pickle, storage})));
  expect_refused(zip({pickle}), {"tensor 'x'", "storage '0' is not in the archive"});
  expect_refused(zip({}), {"without PyTorch's data.pkl"});
  expect_refused(zip({storage}), {"without PyTorch's data.pkl"});
  expect_refused(zip({pickle, storage, {"b/data.pkl", "N."}}), {"two of PyTorch's pickles"});
  expect_refused(zip({pickle, storage, storage}), {"two entries named 'a/data/0'"});
  expect_refused(zip({pickle, storage, {"a/constants.pkl", "N."}}), {"TorchScript"});
  expect_refused(zip({pickle, storage, {"a/byteorder", "middle"}}), {"byteorder", "'middle'"});
  const auto changed = [&](uint16_t method, uint16_t flags, int64_t header) {
    return zip({pickle, {storage.name, storage.data, method, flags, header}});
  };
  expect_refused(changed(8, 0, -1), {"'a/data/0' is compressed (method 8)"});
  expect_refused(changed(0, 1, -1), {"'a/data/0' is encrypted"});
  expect_refused(changed(0, 0, 5), {"'a/data/0' has no header at byte 5"});
  expect_refused(changed(0, 0, 1 << 30), {"'a/data/0' has no header at byte 1073741824"});
  expect_refused(changed(0, 0, 0), {"'a/data/0' has another name in its header"});  // the pickle's header
  // Two directory records with one entry would be two names; here an entry overlaps the next one:
  std::string bytes = zip({pickle, storage});
  const size_t directory = bytes.find("PK\1\2"s);
  for (const size_t field : {20u, 24u}) bytes.replace(directory + field, 4, little(pickle.data.size() + 1, 4));
  expect_refused(bytes, {"'a/data.pkl' and 'a/data/0' overlap"});
  bytes = zip({pickle, storage});
  bytes.replace(bytes.size() - 12, 2, little(60000, 2));
  expect_refused(bytes, {"claims 60000 entries"});
  bytes = zip({pickle, storage});
  bytes[bytes.find("PK\1\2"s) - 1] ^= 1;
  expect_refused(bytes, {"tensor 'x'", "'a/data/0' is damaged: its checksum"});
  bytes = zip({pickle, storage});
  expect_refused(bytes.substr(0, bytes.size() - 1), {"no directory at its end"});
  EXPECT_NO_THROW(load(bytes.replace(bytes.size() - 2, 2, "\2\0#!"s)));  // a comment
}

TEST_F(TorchFiles, NamesAndNesting) {
  expect_refused("\x80\x02}(U\1a}U\1b" + "cnumpy.core.multiarray\n_reconstruct\n)Rs"s + "U\3a.b" +
                     "cnumpy.core.multiarray\n_reconstruct\n)Ru.",
                 {"two tensors are named 'a.b'"});
  const std::string deep = "\x80\x02"s + std::string(100, ']') + "cnumpy.core.multiarray\n_reconstruct\n)R";
  expect_refused(deep + std::string(100, 'a') + ".", {"nested in more than 64 containers"});
  expect_refused("\x80\x02}X"s + little(2000, 4) + std::string(2000, 'n') + "K\1s.", {"longer than 1000 bytes"});
  // 2^30 paths to one value.
  std::string shared = "\x80\x02K\x01\x85\x85";
  for (int i = 0; i < 30; ++i) shared += "2\x86";
  expect_refused(shared + ".", {"too many paths"});
  EXPECT_TRUE(load("\x80\x02]q\x01h\x01\x61.").tensors.empty());
}

/// A list of tensors of one element in PyTorch's older format. One dict is the metadata of all tensors; before each of
/// the calls `entries` (instructions that push keys and values) are added to it.
std::string with_shared_metadata(const std::vector<std::string>& entries) {
  const std::string magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s,
                    version = "\x80\x02M\xe9\x03."s, system = "\x80\x02N."s, keys = "\x80\x02]X\x01\0\0\0"s + "0a.",
                    data = "\x01\0\0\0\0\0\0\0\0\0\x80\x3f"s;
  std::string value = "\x80\x02}q\x00"s;                                                              // 0: the metadata
  value += "(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"s + "0X\x03\0\0\0cpuK\x01tQq\x01"s;  // 1: the storage
  value += "(h\x01K\x00K\x01\x85K\x01\x85\x89}h\x00tq\x02"s;  // 2: the arguments
  value += "ctorch._utils\n_rebuild_tensor_v2\nq\x03]"s;      // 3: the function; the list
  for (const std::string& entry : entries) value += "h\x00("s + entry + "u0h\x03h\x02Ra";
  return magic + version + system + value + "." + keys + data;
}

TEST_F(TorchFiles, MetadataThatTensorsShare) {
  const std::string neg = "X\x03\0\0\0neg"s, conj = "X\x04\0\0\0conj"s, other = "K\x01N"s;
  const StateFile state = load(with_shared_metadata({"", other + other, neg + "\x88", other, neg + "\x89" + other,
                                                     conj + "\x88", neg + "\x88", conj + "\x89" + neg + "\x89"}));
  std::string problems;
  for (const UnreadableTensor& entry : state.unreadable) problems += entry.name + ": " + entry.reason + "\n";
  EXPECT_EQ(problems,
            "2: float32 [1]: it is saved with a pending neg\n3: float32 [1]: it is saved with a pending neg\n"
            "5: float32 [1]: it is saved with a pending conj\n6: float32 [1]: it is saved with a pending neg\n");
  EXPECT_EQ(state.tensors.size(), 4u);
  expect_refused(with_shared_metadata({"", neg + "N"}), {"neg must be an integer"});
}

/// About 6 MB; reading all of the metadata for each tensor would take 3.5 * 10^11 steps.
TEST_F(TorchFiles, ManyTensorsThatShareALargeDict) {
  std::string entries;
  for (int i = 0; i < 500'000; ++i) entries += "K\x01K\x00"s;
  std::vector<std::string> calls(700'000);
  calls[0] = entries;
  EXPECT_EQ(load(with_shared_metadata(calls)).tensors.size(), 700'000u);
}

/// Damage anywhere gives the right values or an Error, because the archive has checksums.
TEST_F(TorchFiles, EveryDamagedByteOfAnArchive) {
  const std::string whole = read_whole_file(kGolden + "protocol2.pt");
  const StateView right = load_state_file(kGolden + "protocol2.pt").tensors;
  int loaded = 0, refused = 0;
  for (size_t i = 0; i < whole.size(); ++i)
    for (const int change : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ change);
      try {
        const StateView state = load(damaged).tensors;
        ASSERT_EQ(state.size(), right.size()) << i;
        for (size_t k = 0; k < state.size(); ++k) {
          ASSERT_EQ(state[k].name, right[k].name) << i;
          ASSERT_TRUE(same_bits(state[k].tensor, right[k].tensor)) << i;
        }
        ++loaded;
      } catch (const Error& error) {
        ASSERT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
        ++refused;
      }
    }
  EXPECT_GT(loaded, 1000);  // damage in padding, dates and unused entries has no effect
  EXPECT_GT(refused, 1000);
}

/// The older format and plain pickles have no checksums: damage may give another number, but never a crash.
TEST_F(TorchFiles, EveryDamagedByteWithoutChecksums) {
  for (const char* name :
       {"older_protocol2.pt", "older_protocol4.pt", "older_views.pt", "older_numpy_in.pt", "numpy4.pkl"}) {
    const std::string whole = read_whole_file(kGolden + name);
    int refused = 0;
    for (size_t i = 0; i < whole.size(); ++i)
      for (const int change : {0x01, 0x10, 0xff}) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ change);
        try {
          touch_all(load(damaged).tensors);
        } catch (const Error& error) {
          ++refused;
        }
      }
    EXPECT_GT(refused, 200) << name;
  }
}

TEST_F(TorchFiles, EveryTruncationIsAnError) {
  for (const char* name : {"protocol2.pt", "zip64.pt", "older_protocol2.pt", "older_views.pt", "numpy4.pkl"}) {
    const std::string whole = read_whole_file(kGolden + name);
    for (size_t length = 0; length < whole.size(); ++length)
      ASSERT_NE(error_of([&] { load(whole.substr(0, length)); }).find(path_), std::string::npos)
          << name << " " << length;
  }
}

TEST_F(TorchFiles, RandomDamageOfAnArchiveThatHasNoChecksums) {
  const std::string whole = read_whole_file(kGolden + "no_checksums.pt");
  std::mt19937_64 random = fresh_random();
  for (int i = 0; i < 10'000; ++i) {
    std::string damaged = whole;
    for (size_t k = 0; k <= random() % 3; ++k)
      damaged[random() % whole.size()] = random() % 2 ? static_cast<char>(random()) : "\xff\0\x80().eub"[random() % 9];
    try {
      touch_all(load(damaged).tensors);
    } catch (const Error&) {
    }
  }
}

class WeightFolder : public FolderTest {
 protected:
  StateFile load() const { return load_state_folder(folder_.string()); }
};

TEST_F(WeightFolder, TheFirstOfFourNames) {
  expect_error([&] { load(); }, {path("model.safetensors"), "no such file", "pytorch_model.bin.index.json"});
  fs::copy(kGolden + "protocol2.pt", path("pytorch_model.bin"));
  EXPECT_EQ(load().format, "PyTorch (zip)");
  EXPECT_EQ(load().tensors.size(), 2u);
  save_safetensors({{"only", ones({2})}}, path("model.safetensors"));
  EXPECT_EQ(load().tensors[0].name, "only");
}

TEST_F(WeightFolder, ContentsDecideNotNames) {
  fs::copy(kGolden + "older_protocol2.pt", path("model.safetensors"));
  EXPECT_EQ(load().format, "PyTorch (older format)");
  save_safetensors({{"only", ones({2})}}, path("model.safetensors"));
  fs::rename(path("model.safetensors"), path("pytorch_model.bin"));
  EXPECT_EQ(load().format, "safetensors");
  write("model.safetensors", "short");
  expect_error([&] { load(); }, {"model.safetensors", "too few for a safetensors file"});
}

TEST_F(WeightFolder, Parts) {
  fs::copy(kGolden + "protocol2.pt", path("pytorch_model-00001-of-00002.bin"));
  save_safetensors({{"c", ones({3})}}, path("part2"));
  const auto index = [&](const std::string& map) {
    write("pytorch_model.bin.index.json", "{\"weight_map\": "s + map + "}");
  };
  index(R"({"w": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00001-of-00002.bin", "c": "part2"})");
  EXPECT_EQ(load().tensors.size(), 3u);
  EXPECT_EQ(load().path, path("pytorch_model.bin.index.json"));
  index(R"({"w": "pytorch_model-00001-of-00002.bin", "d": "part2"})");
  expect_error([&] { load(); }, {"part2", "has no tensor 'd'"});
  index(R"({"c": "part3"})");
  expect_error([&] { load(); }, {"part3", "No such file"});
  save_safetensors({{"c", ones({3})}}, path("part3"));
  index(R"({"c": "part2", "x": "part3"})");
  expect_error([&] { load(); }, {"part3", "'c'", "another"});
  for (const char* name : {"../part2", "/etc/passwd", "", ".."}) {
    index("{\"c\": \""s + name + "\"}");
    expect_error([&] { load(); }, {"not the name of a file next to the index"});
  }
  index("{\"c\": 1}");
  expect_error([&] { load(); }, {"the file of 'c'"});
  index("[]");
  expect_error([&] { load(); }, {"weight_map"});
  for (const char* text : {"{", "", "[[[1e999"}) {
    write("pytorch_model.bin.index.json", text);
    expect_error([&] { load(); }, {"pytorch_model.bin.index.json: "});
  }
}

}  // namespace
}  // namespace tern::test
