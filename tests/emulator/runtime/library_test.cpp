// The search path of NVIDIA's libraries, tested with a copy of a library that the process has not loaded: the C
// library's vector mathematics.

#include "tern/kernels/cuda/support/library.h"
#include "tern/tests/support/temporary_folder.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace tern::kernels::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProbe = "_ZGVbN2v_cos";

class Search : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::canonical(temporary_.path());
    Dl_info where = {};
    void* handle = dlopen("libmvec.so.1", RTLD_NOW);
    ASSERT_TRUE(handle && dladdr(dlsym(handle, kProbe), &where) != 0);
    original_ = fs::canonical(where.dli_fname);
  }

  fs::path put(const fs::path& where) const {
    fs::create_directories((folder_ / where).parent_path());
    fs::copy_file(original_, folder_ / where);
    return folder_ / where;
  }

  /// The file found by a new process: each process reads the folders once.
  std::string found_with(const std::map<std::string, std::string>& variables) const {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      for (const char* name : {"CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME"}) unsetenv(name);
      setenv("PATH", "/nowhere", 1);
      for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
      const std::string path = library().info().found ? library().info().path : "nothing: " + library().info().reason;
      const bool whole = write(ends[1], path.data(), path.size()) == static_cast<ssize_t>(path.size());
      _exit(whole ? 0 : 1);
    }
    close(ends[1]);
    std::string path;
    char part[256];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) path.append(part, static_cast<size_t>(n));
    close(ends[0]);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return path;
  }

  static SharedLibrary& library() {
    static SharedLibrary library({"libsearched",
                                  "this test",
                                  {"libsearched.so.2", "libsearched.so.1"},
                                  "nothing",
                                  "TERN_SEARCHED",
                                  kProbe,
                                  [](void*) { return std::string("1"); }});
    return library;
  }

  const test::TemporaryFolder temporary_;
  fs::path folder_, original_;
};

TEST_F(Search, FindsTheToolkit) {
  const std::string path = put("cuda/lib64/libsearched.so.1");
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) EXPECT_EQ(found_with({{variable, folder_ / "cuda"}}), path);
  const std::string profiler = put("other/extras/CUPTI/lib64/libsearched.so.2");
  EXPECT_EQ(found_with({{"CUDA_HOME", folder_ / "other"}}), profiler);
}

TEST_F(Search, FindsPythonsPackages) {
  const std::string path = put("venv/lib/python3.99/site-packages/nvidia/cu13/lib/libsearched.so.1");
  fs::create_directories(folder_ / "venv/lib/python3.99/site-packages/nvidia/empty");
  put("venv/lib/other3.99/site-packages/nvidia/cu13/lib/libsearched.so.2");  // not a Python folder
  fs::create_directories(folder_ / "venv/bin");
  fs::copy_file("/proc/self/exe", folder_ / "venv/bin/python3");
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    EXPECT_EQ(found_with({{variable, folder_ / "venv"}}), path);
  EXPECT_EQ(found_with({{"PATH", "/nowhere::" + (folder_ / "venv/bin").string()}}), path);
  fs::create_directories(folder_ / "elsewhere");
  fs::create_symlink(folder_ / "venv/bin/python3", folder_ / "elsewhere/python");
  EXPECT_EQ(found_with({{"PATH", folder_ / "elsewhere"}}), path);
  const std::string mine = put("home/.local/lib/python3.99/dist-packages/nvidia/cublas/lib/libsearched.so.2");
  EXPECT_EQ(found_with({{"HOME", folder_ / "home"}}), mine);
}

TEST_F(Search, TheToolkitPrecedesPython) {
  put("cuda/lib/python3.99/site-packages/nvidia/cu13/lib/libsearched.so.2");
  const std::string path = put("cuda/lib64/libsearched.so.1");
  EXPECT_EQ(found_with({{"CUDA_HOME", folder_ / "cuda"}, {"VIRTUAL_ENV", folder_ / "cuda"}}), path);
}

TEST_F(Search, TheVariableNamesTheOnlyFile) {
  const std::string path = put("named.so");
  put("venv/lib/python3.99/site-packages/nvidia/cu13/lib/libsearched.so.1");
  EXPECT_EQ(found_with({{"TERN_SEARCHED", path}, {"VIRTUAL_ENV", folder_ / "venv"}}), path);
  EXPECT_EQ(found_with({{"TERN_SEARCHED", folder_ / "absent.so"}, {"VIRTUAL_ENV", folder_ / "venv"}}).find("nothing: "),
            0u);
}

TEST_F(Search, AFileThatCannotBeLoadedIsSaid) {
  const fs::path folder = folder_ / "venv/lib/python3.99/site-packages/nvidia/cu13/lib";
  fs::create_directories(folder);
  std::ofstream(folder / "libsearched.so.1") << "no library";
  const std::string said = found_with({{"VIRTUAL_ENV", folder_ / "venv"}});
  EXPECT_NE(said.find((folder / "libsearched.so.1").string() + ": "), std::string::npos) << said;
}

TEST_F(Search, AbsentLibrariesAreSaidByName) {
  const std::string said = found_with({{"HOME", folder_}});
  EXPECT_EQ(said.find("nothing: libsearched.so.2: cannot open"), 0u) << said;
  EXPECT_EQ(said.find(folder_), std::string::npos) << said;
}

}  // namespace
}  // namespace tern::kernels::cuda
