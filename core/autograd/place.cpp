#include "tern/core/autograd/place.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "tern/core/autograd/grad_mode.h"

namespace tern::detail {
namespace {

constexpr int kMaxCalls = 64;
constexpr size_t kShownCalls = 4, kMaxName = 100;

thread_local std::vector<std::string> modules;

struct Call {
  std::string function = {}, line = {};  // "loss_of(...)", "model.cpp:31"; "": not known
};

/// As one word of a shell's command.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// For an address addr2line writes "FUNCTION at FILE:LINE", and one line more for each function that it is inlined in.
std::vector<Call> parse(std::FILE* output) {
  constexpr std::string_view kInlined = " (inlined by) ", kAt = " at ";
  std::vector<Call> calls;
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, output)) {
    std::string line = buffer;
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    if (line.starts_with(kInlined)) line.erase(0, kInlined.size());
    const size_t at = line.rfind(kAt);
    if (at == std::string::npos) continue;
    Call call{.function = line.substr(0, at), .line = line.substr(at + kAt.size())};
    if (const size_t note = call.line.find(" (discriminator"); note != std::string::npos) call.line.resize(note);
    if (call.line.starts_with('?') || call.line.ends_with('?')) call.line.clear();
    if (const size_t folder = call.line.rfind('/'); folder != std::string::npos) call.line.erase(0, folder + 1);
    calls.push_back(std::move(call));
  }
  return calls;
}

/// The calls at these addresses of a program or library, innermost first, with the inlined ones.
std::vector<Call> look_up(const std::string& file, const std::vector<uintptr_t>& addresses) {
  std::ostringstream command;
  command << "addr2line -Cfpi -e " << quoted(file) << std::hex;
  for (const uintptr_t address : addresses) command << " 0x" << address;
  command << " 2>/dev/null";
  std::FILE* const output = popen(command.str().c_str(), "re");
  if (!output) return {};
  std::vector<Call> calls = parse(output);
  pclose(output);
  return calls;
}

/// Consecutive calls of one program or library are looked up together, since reading it takes most of the time.
std::vector<Call> look_up(const std::vector<void*>& addresses) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  std::vector<Call> calls;
  std::string file;
  std::vector<uintptr_t> gathered;
  const auto flush = [&] {
    if (gathered.empty()) return;
    const std::vector<Call> found = look_up(file, gathered);
    calls.insert(calls.end(), found.begin(), found.end());
    gathered.clear();
  };
  for (void* const address : addresses) {
    Dl_info info{};
    link_map* map = nullptr;
    if (!dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) || !map || !info.dli_fname) continue;
    const std::string its = *map->l_name ? map->l_name : program;
    if (its != file) flush();
    file = its;
    gathered.push_back(reinterpret_cast<uintptr_t>(address) - 1 - map->l_addr);  // it is where the call returns to
  }
  flush();
  return calls;
}

bool is_of_library(const std::string& function) {
  for (const std::string_view name : {"tern::", "std::", "__libc_start", "_start", "??", "operator()"})
    if (function.starts_with(name)) return true;
  // A result's type comes first in the name of a function template.
  const size_t arguments = function.find('('), space = function.substr(0, arguments).rfind(' ');
  return space != std::string::npos &&
         (function.compare(space + 1, 6, "tern::") == 0 || function.compare(space + 1, 5, "std::") == 0);
}

/// Without namespaces that have no name and without arguments: a lambda has the name of the function that it is in.
std::string name_of(const Call& call) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  std::string name = call.function;
  for (size_t at; (at = name.find(kUnnamed)) != std::string::npos;) name.erase(at, kUnnamed.size());
  name.resize(std::min({name.size(), name.find("::{lambda"), name.find('('), kMaxName}));
  return call.line.empty() ? name : name + " at " + call.line;
}

}  // namespace

std::unique_ptr<const Place> current_place() {
  auto place = std::make_unique<Place>();
  if (!modules.empty()) place->module = modules.back();
  void* addresses[kMaxCalls];
  const int count = backtrace(addresses, kMaxCalls);
  place->addresses.assign(addresses, addresses + count);
  return place;
}

std::unique_ptr<const Place> place_in_anomaly_mode() {
  return anomaly_mode() == Anomaly::kOff ? nullptr : current_place();
}

std::string describe_place(const Place* place) {
  if (!place)
    return "; the forward pass was outside of anomaly mode: with a DetectAnomaly around it, too, this says where it "
           "was";
  std::string text = place->module.empty() ? "" : " in " + place->module;
  size_t shown = 0;
  std::string last;
  for (const Call& call : look_up(place->addresses)) {
    if (is_of_library(call.function)) continue;
    const std::string name = name_of(call);
    if (name == std::exchange(last, name)) continue;
    text += (shown == 0 ? ", called from " : ", ") + name;
    if (++shown == kShownCalls) break;
  }
  return text;
}

InModule::InModule(const std::string& name) { modules.push_back(name); }
InModule::~InModule() { modules.pop_back(); }

}  // namespace tern::detail
