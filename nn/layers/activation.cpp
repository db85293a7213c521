#include "tern/nn/layers/activation.h"

#include "tern/nn/init.h"

namespace tern::nn {
namespace {

Shape slopes_shape(int64_t count) {
  TERN_CHECK(count >= 1, "nn::PReLU: the number of slopes must be >= 1, got ", count);
  return {count};
}

}  // namespace

PReLU::PReLU(const Scope& s, int64_t count, double slope)
    : Module(s), weight_(this, "weight", slopes_shape(count), init::constant(slope)) {}

}  // namespace tern::nn
