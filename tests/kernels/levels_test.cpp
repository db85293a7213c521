// Each CPU level's shared object exports only its entry points and runs no code when it is loaded: templates compiled
// for AVX-512 must never replace those of another level, nor run on a processor without it.

#include <cxxabi.h>
#include <elf.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "tern/tests/places.h"
#include "tern/tests/support/levels.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::kernels {
namespace {

/// The section headers of a 64-bit ELF file.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    if (bytes_.size() < sizeof(Elf64_Ehdr) || std::memcmp(bytes_.data(), ELFMAG, SELFMAG) != 0) return;
    const auto header = at<Elf64_Ehdr>(0);
    for (int i = 0; i < header.e_shnum; ++i)
      sections_.push_back(at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
  }
  bool ok() const { return !sections_.empty(); }

  /// Names of the dynamic symbols defined in this file.
  std::vector<std::string> defined_symbols() const {
    std::vector<std::string> names;
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_DYNSYM) continue;
      const Elf64_Shdr& strings = sections_[section.sh_link];
      for (uint64_t o = 0; o < section.sh_size; o += sizeof(Elf64_Sym)) {
        const auto symbol = at<Elf64_Sym>(section.sh_offset + o);
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS || symbol.st_name == 0) continue;
        names.emplace_back(bytes_.data() + strings.sh_offset + symbol.st_name);
      }
    }
    return names;
  }
  /// Number of functions run at load time; the compiler's start file contains one (frame_dummy).
  int initialisers() const {
    int count = 0;
    for (const Elf64_Shdr& section : sections_)
      if (section.sh_type == SHT_INIT_ARRAY || section.sh_type == SHT_PREINIT_ARRAY)
        count += section.sh_size / sizeof(void*);
    return count;
  }

 private:
  template <class T>
  T at(uint64_t offset) const {
    T value{};
    if (offset + sizeof(T) <= bytes_.size()) std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  std::vector<char> bytes_;
  std::vector<Elf64_Shdr> sections_;
};

std::string demangle(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? text.get() : name;
}

class Levels : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override {
    if (!is_built(GetParam())) GTEST_SKIP() << "levels: this build leaves the level out";
    ASSERT_TRUE(file.ok()) << "cannot read " << path;
  }
  const std::string path = test::parent_of_programs() + "/lib/libtern_kernels_" + name_of(GetParam()) + ".so";
  const ElfFile file{path};
};

TEST_P(Levels, ExportsItsEntryPointsAlone) {
  const std::string prefix = std::string("tern::kernels::cpu_") + name_of(GetParam()) + "::";
  const std::vector<std::string> symbols = file.defined_symbols();
  EXPECT_GT(symbols.size(), 10u);
  for (const std::string& symbol : symbols) {
    const std::string name = demangle(symbol);
    EXPECT_EQ(name.substr(0, prefix.size()), prefix) << name;
  }
}

TEST_P(Levels, RunsNothingWhenLoaded) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizer: it adds an initialiser to each object file";
  EXPECT_LE(file.initialisers(), 1);
}

INSTANTIATE_TEST_SUITE_P(All, Levels, testing::Values(CpuLevel::kV2, CpuLevel::kV3, CpuLevel::kV4),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace tern::kernels
