#include "tern/data/tokenizers/pipeline/normalizers.h"

namespace tern::data {

std::unique_ptr<const Normalizer> read_precompiled(const JsonField& field) {
  fail(field.where(), ": Tern does not have the normalizer \"Precompiled\"");
}

}  // namespace tern::data
