// Labelled texts: CSV, TSV and JSONL files. The first byte selects the format and whether labels are known.

#include <sstream>

#include "tern/data/datasets/delimited.h"
#include "tern/data/datasets/text_set.h"
#include "tern/tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  if (size < 1) return 0;
  const std::string_view text = fuzz::text_of(data + 1, size - 1);
  const std::string extension = data[0] % 3 == 0 ? ".csv" : data[0] % 3 == 1 ? ".tsv" : ".jsonl";
  const std::string path = fuzz::write_file("input" + extension, text);
  data::LoadOptions options;
  if (data[0] & 16) options.known_labels = {"negative", "positive", "7"};
  fuzz::read([&] {
    const data::TextSet set = data::load_text(path, options);
    fuzz::require(set.offsets.size() == static_cast<size_t>(set.size()) + 1 && set.offsets.back() == set.bytes.size());
    for (const int32_t label : set.labels)
      fuzz::require(label >= 0 && label < static_cast<int32_t>(set.label_names.size()));
  });
  fuzz::read([&] {
    std::istringstream in{std::string(text)};
    data::DelimitedReader reader(in, data[0] % 3 == 1 ? '\t' : ',', "input");
    std::vector<std::string> fields;
    int64_t before = 0;
    while (reader.next(fields)) {
      fuzz::require(!fields.empty() && reader.line() > before);
      before = reader.line();
    }
  });
  return 0;
}
