#!/usr/bin/env bash
# names.sh ROOT: no text in models/cli names a model family, a set of data or a size with a recipe: what the program says
# of them comes from their rows, so that an added one touches no file there. Comments may name them as examples.
set -euo pipefail
root=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

first_words() { grep -ohE "$1\"[a-z0-9-]+\"" | grep -oE '[a-z0-9-]+"$' | tr -d '"'; }
families=$(cat "$root"/models/*/*.cpp | first_words 'return \{\.name = ')
sizes=$(cat "$root"/models/*/config.cpp | first_words 'k[A-Za-z]+Name = ')
sets=$(sed -n '/named_[a-z]*_sets() {/,/^}/p' "$root"/data/datasets/{image_set,text_readers}.cpp | first_words '\{')
[[ $(wc -w <<<"$families") -ge 4 && $(wc -w <<<"$sizes") -ge 1 && $(wc -w <<<"$sets") -ge 6 ]] || {
  echo "the rows of families, sizes and sets are written otherwise than this test reads them: $families $sizes $sets"
  exit 1
}
# "fashion-mnist" before "mnist" does not matter: any of them is a finding.
names=$(printf '%s\n' $families $sizes $sets | paste -sd '|')

find_names() {  # FOLDER: the lines with a name in a text
  find "$1" -name '*.h' -o -name '*.cpp' | sort | while read -r file; do
    sed -E 's#(^|[[:space:]])//.*##' "$file" | grep -nE "\"[^\"]*\b($names)\b[^\"]*\"" | sed "s#^#$file:#" || true
  done
}
found=$(find_names "$root/models/cli")
if [[ -n $found ]]; then
  printf 'models/cli names a model family or a set of data; have its row say it:\n%s\n' "$found"
  exit 1
fi
mkdir "$scratch/cli"
for name in $families $sizes $sets; do
  printf '// "%s" is an example\nconst char* text = "as for %s: more"; // none\n' "$name" "$name" >"$scratch/cli/text.cpp"
  [[ $(find_names "$scratch/cli") == *text.cpp:2:* ]] || {
    echo "FAILED: a text that names $name is not found"
    exit 1
  }
done
echo "no text in models/cli names one of: $names"
