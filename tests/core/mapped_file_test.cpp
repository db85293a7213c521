// A mapped file that is cut shorter causes an error and does not end the process.

#include "tern/core/io/mapped_file.h"

#include <sys/wait.h>

#include <csetjmp>
#include <csignal>
#include <numeric>

#include "tern/core/autograd/parameter.h"
#include "tern/core/io/safetensors.h"
#include "tern/core/io/state_file.h"
#include "tern/tests/core/files.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::test {
namespace {

constexpr int64_t kMany = 100'003;  // fp32: about a hundred pages

class MappedFiles : public FolderTest {
 protected:
  std::string write(const std::string& name, size_t bytes) const {
    std::string text(bytes, 0);
    for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(1 + i % 127);
    return FolderTest::write(name, text);
  }
  /// Two tensors of ones, "a" before "b" in the file.
  std::string write_tensors(const std::string& name) const {
    save_safetensors({{"a", ones({kMany})}, {"b", ones({kMany})}}, path(name));
    return path(name);
  }
};

int64_t sum_of_bytes(const MappedFile& file) {
  return std::accumulate(file.data(), file.data() + file.bytes(), int64_t{0});
}

int64_t expected_sum(size_t bytes) {
  int64_t sum = 0;
  for (size_t i = 0; i < bytes; ++i) sum += static_cast<int64_t>(1 + i % 127);
  return sum;
}

TEST_F(MappedFiles, WholeFiles) {
  for (const size_t bytes : {0ul, 1ul, 4096ul, 4097ul, 1'000'001ul}) {
    const MappedFile file(write("file", bytes));
    ASSERT_EQ(file.bytes(), bytes);
    EXPECT_EQ(sum_of_bytes(file), expected_sum(bytes));
    EXPECT_NO_THROW(file.check());
    if (bytes > 0) verify_mapped_memory(file.data() + bytes - 1);
  }
  // A longer file is no loss: the mapped part stays.
  const MappedFile file(write("file", 5000));
  fs::resize_file(path("file"), 9000);
  EXPECT_NO_THROW(file.check());
  // Another file with the same name does not affect the mapped one.
  fs::rename(write("other", 10), path("file"));
  EXPECT_EQ(sum_of_bytes(file), expected_sum(5000));
  EXPECT_NO_THROW(file.check());
}

TEST_F(MappedFiles, WhatIsCutOffReadsAsZeros) {
  std::mt19937_64 random = fresh_random();
  for (int repetition = 0; repetition < 20; ++repetition) {
    const size_t bytes = 1 + random() % 300'000, left = random() % bytes;
    const std::string name = write("file", bytes);
    const MappedFile file(name);
    fs::resize_file(name, left);
    EXPECT_EQ(sum_of_bytes(file), expected_sum(left)) << bytes << " " << left;
    const auto pages = [page = static_cast<size_t>(sysconf(_SC_PAGESIZE))](size_t n) { return (n + page - 1) / page; };
    if (pages(left) < pages(bytes))
      expect_error(check_lost_files, {name + ": it was cut shorter"});
    else
      EXPECT_NO_THROW(check_lost_files());
    std::fill_n(file.data(), bytes, 'x');  // writable, like any private mapping
    expect_error([&] { file.check(); }, {name + ": ", "it was cut"});
    expect_error([&] { verify_mapped_memory(file.data() + bytes / 2); }, {name + ": "});
    int local = 0;
    EXPECT_NO_THROW(verify_mapped_memory(&local));
  }
  EXPECT_NO_THROW(check_lost_files());
}

/// The loss of less than a page gives no signal: only the length of the file shows it.
TEST_F(MappedFiles, ThePartOfAPage) {
  const std::string name = write("file", 1000);
  const MappedFile file(name);
  fs::resize_file(name, 999);
  EXPECT_EQ(error_of([&] { file.check(); }),
            name +
                ": it was cut from 1000 to 999 bytes while it was read; write it again whole, under another name first "
                "if a program may have it open");
  EXPECT_NO_THROW(check_lost_files());
}

TEST_F(MappedFiles, TensorsOfACutFile) {
  const std::string name = path("cut.safetensors");
  const SafetensorsFile other = load_safetensors(write_tensors("good.safetensors"));
  const auto expect_lost = [&](const std::function<void(const Tensor&)>& use) {
    const SafetensorsFile file = load_safetensors(write_tensors("cut.safetensors"));
    fs::resize_file(name, fs::file_size(name) / 2);
    expect_error([&] { use(file.tensors[1].tensor); }, {name + ": ", "it was cut"});
    EXPECT_FALSE(fs::exists(path("saved.safetensors")));
  };
  expect_lost([](const Tensor& x) { x.to_vector<float>(); });
  expect_lost([](const Tensor& x) { sum(x).item<float>(); });
  expect_lost([](const Tensor& x) { (x + x).to_vector<float>(); });
  expect_lost([](const Tensor& x) { zeros({kMany}).copy_(x).to_vector<float>(); });
  expect_lost([](const Tensor& x) { load_state({{"b", zeros({kMany})}}, {{"b", x}}); });
  expect_lost([&](const Tensor& x) { save_safetensors({{"b", x}}, path("saved.safetensors")); });
  // When the file's last tensor is gone, its loss is no longer reported.
  EXPECT_EQ(sum(other.tensors[0].tensor).item<double>(), kMany);
}

TEST_F(MappedFiles, WeightsAreComparedWithTheFileWhenTheyAreCopied) {
  save_safetensors({{"w", ones({3})}}, path("small.safetensors"));
  const SafetensorsFile file = load_safetensors(path("small.safetensors"));
  Tensor target = zeros({3});
  load_state({{"w", target}}, file.tensors);
  EXPECT_EQ(target.to_vector<float>(), (std::vector<float>{1, 1, 1}));
  fs::resize_file(path("small.safetensors"), fs::file_size(path("small.safetensors")) - 1);
  const std::vector<std::string> cut = {path("small.safetensors") + ": it was cut from "};
  expect_error([&] { load_state({{"w", target}}, file.tensors); }, cut);
  expect_error([&] { verify_files_of(file.tensors); }, cut);
  expect_error([&] { save_safetensors(file.tensors, path("again.safetensors")); }, cut);
  EXPECT_FALSE(fs::exists(path("again.safetensors")));
  EXPECT_NO_THROW(verify_files_of({{"x", ones({3})}}));
}

TEST_F(MappedFiles, ManyThreadsAndFiles) {
  in_threads(8, [&](size_t t) {
    for (size_t repetition = 0; repetition < 20; ++repetition) {
      const size_t bytes = 50'000 + t * 4096;
      const std::string name = write("file" + std::to_string(t), bytes);
      const MappedFile file(name);
      const bool cut = (t + repetition) % 2 == 0;
      if (cut) fs::resize_file(name, 4096 * 3);
      EXPECT_EQ(sum_of_bytes(file), expected_sum(cut ? 4096 * 3 : bytes));
      if (cut)
        EXPECT_TRUE(error_of([&] { file.check(); }).starts_with(name + ": "));
      else
        EXPECT_NO_THROW(file.check());
    }
  });
  EXPECT_NO_THROW(check_lost_files());
}

/// All threads of a process read one file while it is cut.
TEST_F(MappedFiles, ManyThreadsOfOneFile) {
  const std::string name = write("file", 1 << 20);
  const MappedFile file(name);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int repetition = 0; repetition < 5; ++repetition) EXPECT_LE(sum_of_bytes(file), expected_sum(1 << 20));
    });
  fs::resize_file(name, 5000);
  threads.clear();
  EXPECT_EQ(sum_of_bytes(file), expected_sum(5000));
  expect_error([&] { file.check(); }, {name});
}

/// Memory of another cut file, mapped without MappedFile.
volatile char* foreign_memory(const std::string& name) {
  const InputFile file(name);
  void* const memory = mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  EXPECT_NE(memory, MAP_FAILED);
  fs::resize_file(name, 0);
  return static_cast<volatile char*>(memory);
}

sigjmp_buf back;
volatile sig_atomic_t calls = 0;

void jump_back(int) { siglongjmp(back, 1); }
void count_call(int, siginfo_t* info, void*) {
  calls = calls + 1;
  if (info->si_code > 0) siglongjmp(back, 1);
}

/// Each child runs in a separate process without an installed handler.
class BusErrors : public MappedFiles {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  void use_cut_file() const {
    const MappedFile file(write("file", 9000));
    fs::resize_file(path("file"), 0);
    if (sum_of_bytes(file) != 0 || calls != 0) _exit(3);
  }
  void read_foreign_memory() const { (void)foreign_memory(write("foreign", 8192))[5000]; }

  /// The child ends itself with `code`.
  static void expect_exit(int code, const std::function<void()>& child) {
    EXPECT_EXIT(
        {
          alarm(300);  // an unhandled fault would repeat endlessly
          child();
        },
        testing::ExitedWithCode(code), "");
  }
  /// Without a handler the signal ends the process; a sanitizer's handler reports and exits.
  static void expect_killed(const std::function<void()>& child) {
    const auto ended_as_before = [](int status) {
      if (kSanitized) return WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3;
      return testing::KilledBySignal(SIGBUS)(status);
    };
    EXPECT_EXIT(child(), ended_as_before, kSanitized ? "Sanitizer.*BUS" : "");
  }
};

TEST_F(BusErrors, OutsideOfMappedFilesKeepTheirHandler) {
  expect_killed([&] {
    use_cut_file();
    read_foreign_memory();
  });
  expect_killed([&] {
    use_cut_file();
    raise(SIGBUS);
  });
  expect_exit(0, [&] {
    signal(SIGBUS, SIG_IGN);
    use_cut_file();
    raise(SIGBUS);
    _exit(0);
  });
}

TEST_F(BusErrors, GoToAnEarlierHandler) {
  expect_exit(0, [&] {
    signal(SIGBUS, jump_back);
    use_cut_file();
    if (sigsetjmp(back, 1) != 0) _exit(0);
    read_foreign_memory();
    _exit(4);
  });
  expect_exit(2, [&] {
    struct sigaction action {};
    action.sa_sigaction = count_call;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, nullptr);
    use_cut_file();
    raise(SIGBUS);
    if (sigsetjmp(back, 1) != 0) _exit(calls);
    read_foreign_memory();
    _exit(4);
  });
}

TEST_F(BusErrors, OfALaterHandlerGoToThatHandler) {
  expect_exit(0, [&] {
    const MappedFile file(write("file", 9000));
    signal(SIGBUS, jump_back);
    const MappedFile second(write("second", 9000));
    fs::resize_file(path("file"), 0);
    if (sigsetjmp(back, 1) != 0) _exit(0);
    sum_of_bytes(file);
    _exit(4);
  });
}

}  // namespace
}  // namespace tern::test
