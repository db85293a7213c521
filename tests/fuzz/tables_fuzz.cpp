// Tables of numbers, texts with several labels, and tagged words. The first byte selects the options.

#include "tern/data/datasets/table.h"
#include "tern/data/datasets/tagged_set.h"
#include "tern/tests/fuzz/fuzz.h"

void tern::fuzz::try_input(std::string_view input) {
  if (input.empty()) return;
  const auto first = static_cast<uint8_t>(input[0]);
  const std::string path = write_file(first & 1 ? "input.csv" : "input.tsv", input.substr(1));
  read([&] {
    data::TableOptions options{.non_finite = (first & 2) != 0};
    if (first & 4) options.targets = {"y"};
    const data::Table table = data::read_table(path, options);
    require(table.features.size(0) == table.targets.size(0) && table.features.size(1) >= 1);
  });
  read([&] {
    const data::MultiLabelSet set =
        data::read_multi_label(path, first & 8 ? std::vector<std::string>{"y"} : std::vector<std::string>{});
    require(set.targets.size(0) == set.texts.size());
  });
  read([&] {
    const data::TaggedSet set = data::read_conll(path);
    require(set.offsets.back() == static_cast<int64_t>(set.words.size()) && set.tags.size() == set.words.size());
    for (const int32_t tag : set.tags) require(tag >= 0 && tag < static_cast<int32_t>(set.tag_names.size()));
  });
}
