#pragma once
// Where an op was recorded: the module that computed it, and the calls that led to it. Recorded in anomaly mode.

#include <memory>
#include <string>
#include <vector>

namespace tern::detail {

struct Place {
  std::string module = {};            // "encoder.layer.3.output"; "" outside of modules
  std::vector<void*> addresses = {};  // of the calls, innermost first
};

/// The place of the op that this thread is computing.
std::unique_ptr<const Place> current_place();
/// The same; null unless in anomaly mode.
std::unique_ptr<const Place> place_in_anomaly_mode();

/// Part of a sentence: " in encoder.layer.3.output, called from loss_of at model.cpp:31, main at model.cpp:80". Names
/// the calls outside of the library, of which the innermost come first; files and lines where the program has debugging
/// information (-g) and addr2line (Debian: binutils) is installed. null: says how to get the place.
std::string describe_place(const Place* place);

/// While it lives, ops that this thread computes are in the module of this name.
class InModule {
 public:
  explicit InModule(const std::string& name);
  ~InModule();
  InModule(const InModule&) = delete;
  InModule& operator=(const InModule&) = delete;
};

}  // namespace tern::detail
