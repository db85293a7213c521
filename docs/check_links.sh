#!/usr/bin/env bash
# check_links.sh [FOLDER]: names each link of a .md file in the folder (default: the repository) whose file or heading
# does not exist. Links to other hosts are not followed. Exit status: 0 none, 1 some.
set -uo pipefail
folder=${1:-$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)}
cd "$folder" || exit 1

find . \( -path ./build -o -name '.?*' \) -prune -o -name '*.md' -print | sed 's,^\./,,' | sort | LC_ALL=C awk '
  # The name under which GitHub links a heading.
  function anchor_of(text) {
    gsub(/\]\([^)]*\)/, "", text)  # a link in it: its words stay
    text = tolower(text)
    gsub(/[^a-z0-9 _\200-\377-]/, "", text)
    gsub(/ /, "-", text)
    return text
  }
  function normal(path,    parts, n, i, kept, out) {
    n = split(path, parts, "/")
    kept = 0
    for (i = 1; i <= n; ++i) {
      if (parts[i] == "" || parts[i] == ".") continue
      if (parts[i] == ".." && kept > 0) { --kept; continue }
      out_of[++kept] = parts[i]
    }
    out = kept > 0 ? out_of[1] : "."
    for (i = 2; i <= kept; ++i) out = out "/" out_of[i]
    return out
  }
  function exists(path) { return system("test -e \"" path "\"") == 0 }
  {
    file = $0
    known[file] = 1
    fenced = 0
    number = 0
    while ((getline line <file) > 0) {
      ++number
      if (line ~ /^ *(```|~~~)/) { fenced = !fenced; continue }
      if (fenced || line ~ /^    /) continue
      if (line ~ /^#+ /) {
        text = line
        sub(/^#+ +/, "", text)
        sub(/ +#* *$/, "", text)
        name = anchor_of(text)
        again = times[file, name]++
        anchors[file, again ? name "-" again : name] = 1
      }
      gsub(/`[^`]*`/, "", line)
      while (match(line, /\]\([^() ]+\)/)) {
        links[++count] = substr(line, RSTART + 2, RLENGTH - 3)
        from[count] = file
        place[count] = file ":" number
        line = substr(line, RSTART + RLENGTH)
      }
    }
    close(file)
  }
  END {
    for (i = 1; i <= count; ++i) {
      link = links[i]
      if (link ~ /^[a-z]+:/) continue
      mark = index(link, "#")
      path = mark ? substr(link, 1, mark - 1) : link
      name = mark ? substr(link, mark + 1) : ""
      directory = from[i] ~ /\// ? from[i] : ""
      sub(/[^\/]*$/, "", directory)
      path = path == "" ? from[i] : normal(directory path)
      if (!exists(path)) {
        print place[i] ": " link ": there is no such file"
        bad = 1
      } else if (name != "" && path in known && !((path, name) in anchors)) {
        print place[i] ": " link ": " path " has no such heading"
        bad = 1
      }
    }
    exit bad
  }'
