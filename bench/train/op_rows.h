#pragma once

namespace tern::bench {

/// Registers ops as a user calls them: op-*, on a matrix of 4096 x 1024, and small-*, on one element or in a network of
/// three layers of 32. An item is a call.
void add_op_rows();

}  // namespace tern::bench
