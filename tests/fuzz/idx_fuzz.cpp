// idx files, plain and compressed by gzip.

#include "tern/data/files/idx.h"
#include "tern/tests/fuzz/fuzz.h"

void tern::fuzz::try_input(std::string_view bytes) {
  read([&] {
    const Tensor values = data::parse_idx(bytes, "input");
    require(values.dim() >= 1 && values.nbytes() < static_cast<int64_t>(bytes.size()));
  });
  const std::string path = write_file("input", bytes);
  read([&] { data::read_idx(path); });
}
