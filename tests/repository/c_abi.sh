#!/usr/bin/env bash
# c_abi.sh ROOT LIBTERN CC: what compiled programs know of tern_c.h is in tests/repository/tern_c.abi: every
# prototype, the numbers of constants, sizes and members of structs; and LIBTERN exports these functions, and no other
# C function named tern_*. Prints the difference. With TERN_WRITE_ABI=1 it writes the file anew: for additions, which
# raise TERN_C_API_VERSION; a line that goes or changes breaks programs that were compiled before.
set -euo pipefail
root=$1 library=$2 cc=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The header without comments and directives, on one line.
sed -z 's|/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/| |g' "$root/tern_c.h" | grep -v '^ *#' | tr '\n' ' ' | tr -s ' ' |
  sed 's/extern "C" {//' >"$scratch/header"

# A program that prints constants and structs.
tr '}' '\n' <"$scratch/header" >"$scratch/blocks"
{
  echo '#include <stdio.h>'
  echo '#include <stddef.h>'
  echo '#include "tern_c.h"'
  echo 'int main(void) {'
  echo '  printf("TERN_C_API_VERSION %d\n", TERN_C_API_VERSION);'
  grep -o 'TERN_[A-Z0-9_]* = [0-9]*' "$scratch/blocks" | awk '{ printf "  printf(\"%s %%d\\n\", (int)%s);\n", $1, $1 }'
  grep -o 'typedef struct [a-z_]* {.*' "$scratch/blocks" | awk '{
      name = $3
      printf "  printf(\"struct %s %%d\\n\", (int)sizeof(%s));\n", name, name
      sub(/^[^{]*{/, "")
      count = split($0, members, ";")
      for (i = 1; i < count; ++i) {
        listed = split(members[i], names, ",")
        for (k = 1; k <= listed; ++k) {
          sub(/^.*[ *]/, "", names[k])
          printf "  printf(\"  %s.%s %%d %%d\\n\", (int)offsetof(%s, %s), (int)sizeof(((%s*)0)->%s));\n", \
                 name, names[k], name, names[k], name, names[k]
        }
      }
    }'
  echo '  return 0;'
  echo '}'
} >"$scratch/numbers.c"
"$cc" -std=c99 -pedantic -Wall -Wextra -Werror -I "$root" "$scratch/numbers.c" -o "$scratch/numbers"
{
  grep -o 'TERN_C_API [^;{}]*;' "$scratch/header" | sed 's/^TERN_C_API //' | LC_ALL=C sort
  "$scratch/numbers"
} >"$scratch/found"

wanted=$root/tests/repository/tern_c.abi status=0
if [[ -n ${TERN_WRITE_ABI:-} ]]; then cp "$scratch/found" "$wanted"; fi
diff -u "$wanted" "$scratch/found" || status=1

grep -o 'tern_[a-z0-9_]*(' "$scratch/found" | tr -d '(' | LC_ALL=C sort -u >"$scratch/functions"
[[ -s $scratch/functions ]]
nm -D --defined-only "$library" | awk '$3 ~ /^tern_/ { print $3 }' | LC_ALL=C sort -u >"$scratch/exported"
diff -u --label "functions of tern_c.h" "$scratch/functions" --label "exported by $(basename "$library")" \
  "$scratch/exported" || status=1
exit "$status"
