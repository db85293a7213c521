// Tables of numbers, texts with several labels or numbers, and tagged words. The first byte selects the options.

#include "tern/data/datasets/table.h"
#include "tern/data/datasets/tagged_set.h"
#include "tern/data/datasets/target_set.h"
#include "tern/tests/fuzz/fuzz.h"

void tern::fuzz::try_input(std::string_view input) {
  if (input.empty()) return;
  const auto first = static_cast<uint8_t>(input[0]);
  const std::string path = write_file(first & 16  ? "input.jsonl"
                                      : first & 1 ? "input.csv"
                                                  : "input.tsv",
                                      input.substr(1));
  read([&] {
    data::TableOptions options{.non_finite = (first & 2) != 0};
    if (first & 4) options.targets = {"y"};
    const data::Table table = data::read_table(path, options);
    require(table.features.size(0) == table.targets.size(0) && table.features.size(1) >= 1);
  });
  read([&] {
    data::MultiLabelOptions options;
    if (first & 8) options.columns = {"y"};
    const data::TargetSet set = data::read_multi_label(path, options);
    require(set.targets.size(0) == set.texts.size());
  });
  read([&] {
    const data::TargetSet set = data::read_numbers(path);
    require(set.targets.size(0) == set.texts.size());
  });
  read([&] { data::label_kind_of(path); });
  read([&] {
    const data::TaggedSet set = data::read_conll(path);
    require(set.offsets.back() == static_cast<int64_t>(set.words.size()) && set.tags.size() == set.words.size());
    for (const int32_t tag : set.tags) require(tag >= 0 && tag < static_cast<int32_t>(set.tag_names.size()));
  });
}
