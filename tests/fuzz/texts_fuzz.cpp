// Labelled texts: CSV, TSV and JSONL files. The first byte selects the format and whether labels are known.

#include <sstream>

#include "tern/data/datasets/text_set.h"
#include "tern/data/files/delimited.h"
#include "tern/tests/fuzz/fuzz.h"

void tern::fuzz::try_input(std::string_view input) {
  if (input.empty()) return;
  const auto first = static_cast<uint8_t>(input[0]);
  const std::string_view text = input.substr(1);
  const std::string extension = first % 3 == 0 ? ".csv" : first % 3 == 1 ? ".tsv" : ".jsonl";
  data::LoadOptions options;
  if (first & 16) options.known_labels = {"negative", "positive", "7"};
  read([&] {
    const data::TextSet set = data::load_text(write_file("input" + extension, text), options);
    require(set.offsets.size() == static_cast<size_t>(set.size()) + 1 && set.offsets.back() == set.bytes.size());
    for (const int32_t label : set.labels) require(label >= 0 && label < static_cast<int32_t>(set.label_names.size()));
  });
  read([&] {
    std::istringstream in{std::string(text)};
    const data::Dialect dialect{.delimiter = first % 3 == 1 ? '\t' : ',',
                                .quotes = (first & 32) == 0,
                                .carriage_returns = (first & 64) != 0,
                                .separator_line = (first & 128) != 0};
    data::DelimitedReader reader(in, dialect, "input");
    std::vector<std::string> fields;
    int64_t before = 0;
    while (reader.next(fields)) {
      require(!fields.empty() && reader.line() > before);
      before = reader.line();
    }
  });
}
