#pragma once

#include <functional>
#include <string>

namespace tern::models {

/// Takes one line about something that was read otherwise than might be expected.
using Log = std::function<void(const std::string&)>;

}  // namespace tern::models
