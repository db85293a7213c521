#pragma once
// The parts of a data set's official split.

#include <array>
#include <cstdint>
#include <utility>

namespace tern::data {

/// The part of the official split that a row belongs to.
enum class Part : uint8_t { kTrain, kValidation, kTest };

/// The names of the parts' folders, in the order in which they are read.
inline constexpr std::array<std::pair<const char*, Part>, 5> kPartFolders = {{{"train", Part::kTrain},
                                                                              {"val", Part::kValidation},
                                                                              {"valid", Part::kValidation},
                                                                              {"validation", Part::kValidation},
                                                                              {"test", Part::kTest}}};

}  // namespace tern::data
