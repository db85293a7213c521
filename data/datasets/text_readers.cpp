// load_text and its readers.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tern/core/io/json.h"
#include "tern/data/datasets/columns.h"
#include "tern/data/datasets/imdb.h"
#include "tern/data/datasets/label_index.h"
#include "tern/data/datasets/text_set.h"
#include "tern/data/files/delimited.h"
#include "tern/data/files/files.h"
#include "tern/data/files/json_lines.h"
#include "tern/kernels/base/check.h"

namespace tern::embedded {
std::string_view amazon_cells_labelled();
std::string_view imdb_labelled();
std::string_view yelp_labelled();
}  // namespace tern::embedded

namespace tern::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kOfLists = "; lists of labels are read as several labels for each text (--task multi_label)";
const ColumnKind kLabelColumn = {"label", {"label", "sentiment"}};

TextSet read_delimited(const std::string& path, const LoadOptions& options) {
  TextSet set;
  set.name = path;
  DelimitedFile reader(path, options.log);
  std::vector<std::string> fields;
  TERN_CHECK(reader.next(fields), path, ": the file is empty; expected a header row with a label and a text column");
  const Location header{path, reader.line()};
  const size_t columns = fields.size();
  const TextColumns texts = TextColumns::find(fields, header);
  const size_t label = find_column(kLabelColumn, fields, header);
  LabelIndex index(options.known_labels, options.log);
  while (reader.next(fields)) {
    const Location where{path, reader.line()};
    TERN_CHECK(fields.size() == columns, where, ": expected ", columns, " fields as in the header, got ",
               fields.size());
    add_row(set, texts.of(fields), index.id(fields[label], where), where);
  }
  TERN_CHECK(set.size() > 0, path, ": no rows after the header");
  set.label_names = index.finish(path, set.labels);
  return set;
}

/// The label and text of one JSON object.
void add_object(const nlohmann::json& object, const Location& where, LabelIndex& index, TextSet& set) {
  TERN_CHECK(object.is_object(), where, ": expected a JSON object with a label and a text, got ", object.type_name());
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  const TextRow row = text_row(object, keys, where);
  const auto& label = object[keys[find_column(kLabelColumn, keys, where)]];
  const std::optional<std::string> name = label_name(label);
  TERN_CHECK(name, where, ": the label must be a string, a number, true or false, got ", label.type_name(),
             label.is_array() ? kOfLists : "");
  add_row(set, row, index.id(*name, where), where);
}

TextSet read_jsonl(const std::string& path, const LoadOptions& options) {
  TextSet set;
  set.name = path;
  JsonLines lines(path);
  LabelIndex index(options.known_labels, options.log);
  for (std::string line; lines.next(line);)
    add_object(parse_json(line, detail::concatenate(lines.where())), lines.where(), index, set);
  set.invalid_utf8 += lines.invalid_utf8();
  TERN_CHECK(set.size() > 0, path, ": no rows; expected one JSON object a line");
  set.label_names = index.finish(path, set.labels);
  return set;
}

/// Adds folder/LABEL/*.txt. Labels without a single text file do not exist. The log gets these, and how many files of
/// other kinds there are.
void add_label_folders(const fs::path& folder, LabelIndex& index, const LoadOptions& options, TextSet& set) {
  const auto say = [&](const auto&... words) {
    if (options.log) options.log(tern::detail::concatenate(words...));
  };
  std::string text;
  for (const fs::path& label : sorted_entries(folder)) {
    std::error_code error;
    if (!fs::is_directory(label, error)) continue;
    const std::string name = label.filename().string();
    if (name == "unsup") {
      say(label.string(), " is skipped: reviews without a label");
      continue;
    }
    const int64_t before = set.size();
    int64_t others = 0;
    for (const fs::path& file : sorted_entries(label)) {
      if (lower_ascii(file.extension().string()) != ".txt") {
        ++others;
        continue;
      }
      text.clear();
      read_file(file, text);
      const std::string place = label.string();
      set.add(text, index.id(name, {place}));
    }
    const bool none = set.size() == before;
    if (none) say(label.string(), ": no .txt file, so it is no label");
    if (others > 0 && !none) say(label.string(), ": files that are not .txt are skipped: ", others);
  }
}

TextSet read_text_folder(const std::string& path, const LoadOptions& options) {
  TextSet set;
  set.name = path;
  LabelIndex index(options.known_labels, options.log);
  set.add_parts(path, [&](const std::string& folder) { add_label_folders(folder, index, options, set); });
  TERN_CHECK(set.size() > 0, path,
             ": no texts found; expected train/LABEL/*.txt (and optionally test/LABEL, val/LABEL) ", "or LABEL/*.txt");
  set.label_names = index.finish(path, set.labels);
  return set;
}

TextSet read_sentences(const LoadOptions&) {
  TextSet set;
  set.name = "sentences";
  LabelIndex index({});
  const std::pair<const char*, std::string_view> files[] = {
      {"amazon_cells_labelled.txt", embedded::amazon_cells_labelled()},
      {"imdb_labelled.txt", embedded::imdb_labelled()},
      {"yelp_labelled.txt", embedded::yelp_labelled()},
  };
  for (const auto& [file, contents] : files) {
    std::string_view rest = contents;
    for (int64_t number = 1; !rest.empty(); ++number) {
      // Only LF ends a line: two lines contain U+0085.
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      const Location where{file, number};
      TERN_CHECK(line.size() >= 2 && line[line.size() - 2] == '\t', where, ": expected a sentence, a tab and 0 or 1");
      set.add(line.substr(0, line.size() - 2), index.id(line.back() == '0' ? "neg" : "pos", where));
    }
  }
  set.label_names = index.finish(set.name, set.labels);
  return set;
}

TextSet read_imdb(const LoadOptions& options) {
  const auto found = find_imdb();
  TERN_CHECK(found || options.allow_download, "imdb: not found; set TERN_DATA to the folder that holds aclImdb");
  TextSet set = read_text_folder(found ? *found : fetch_imdb(options.log), {});
  set.name = "imdb";
  return set;
}

TextSet read_source(const std::string& source, const LoadOptions& options) {
  if (const NamedSet<TextSet>* const set = find_named(named_text_sets(), source))
    return with_known_labels(set->read(options), options, LabelOrder::kIntegersByValue);
  std::error_code error;
  if (fs::is_directory(source, error)) return read_text_folder(source, options);
  const std::string extension = lower_ascii(fs::path(source).extension().string());
  if (extension == ".csv" || extension == ".tsv") return read_delimited(source, options);
  if (extension == ".jsonl") return read_jsonl(source, options);
  fail("\"", source,
       fs::exists(source, error) ? "\" is a file of another kind"
                                 : "\": there is no such file or folder, and no set of that name",
       "; expected ", names_of(named_text_sets()), ", a .csv, .tsv or .jsonl file, or a folder of train/LABEL/*.txt");
}

}  // namespace

const std::vector<NamedSet<TextSet>>& named_text_sets() {
  static const std::vector<NamedSet<TextSet>> sets = {{"imdb", "", read_imdb, find_imdb, "aclImdb"},
                                                      {"sentences", " (embedded)", read_sentences}};
  return sets;
}

TextSet load_text(const std::string& source, const LoadOptions& options) {
  TextSet set = read_source(source, options);
  const bool is_imdb = source == "imdb" || (fs::path(source) / "").parent_path().filename() == "aclImdb";
  set.check_texts(is_imdb ? nullptr : options.log);
  if (!is_imdb || !options.log) return set;
  if (const std::string difference = imdb_difference(set); !difference.empty())
    options.log(set.name + ": not the published set: " + difference);
  return set;
}

}  // namespace tern::data
