#!/usr/bin/env bash
# Plants faults into a copy of the sources, one at a time, and expects the tests to catch them.
#
#   run.sh [--list | --fit] [--only PATTERN] [--sanitize thread|address] [--work FOLDER] [--allow-skipped]
#
# --list      names the faults and why each is one
# --fit       only looks whether each fault's text occurs once in the sources; those of all sanitizers
# --only      only faults whose name matches the pattern, as a shell reads it ('norm_*')
# --sanitize  the faults that a build with this sanitizer must report itself, instead of those that results show
# --work      where the copy and its build go; kept, so that the next run starts warm (default: a temporary folder)
# --allow-skipped  passes although faults were skipped
#
# The file faults/TEST.fault has the faults that the ctest test TEST must catch, each up to an empty line:
#
#   NAME: why it is a fault
#   also: OTHER_TEST ...       further tests; at least one of all must fail
#   in: norm.cu                see below
#   sanitize: thread           which of the runs take it: none, thread, address; default: none
#   cpu: avx512f               a flag of /proc/cpuinfo, on a machine without which no test can see the fault
#   -text that is replaced
#   +what replaces it
#    text that stays
#
# All but the name and the text may be left out. The text must occur exactly once in the C++ and CUDA sources, wherever
# that is; where it occurs in several files `in` names one, by its last name or its path. A line of '-' alone is an
# empty line. Code may so be moved and files renamed without a change here.
#
# A fault that does not fit the sources any more (stale) or does not compile fails the run, and so does a test that
# fails without a fault. Of the others at least 58 in 60 must be caught. Tests that this machine cannot build (those of
# the stand-in runtime without CUDA's headers) are left out, and faults that only they catch are skipped.
#
# Exit status: 0 enough were caught and none skipped, 1 not enough or a fault is not valid, 2 wrong usage or no result,
# 77 faults were skipped and the rest would pass (ctest then reports the test as skipped).
set -uo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
root=$(cd "$here/../.." && pwd)

die() {
  printf 'faults: %s\n' "$*" >&2
  exit 2
}

list=0 fit=0 only='*' sanitize="" work="" keep=0 allow_skipped=0
# What the tests in the copy write there is not this run's.
results=${TERN_TEST_RESULTS:-}
unset TERN_TEST_RESULTS
while (($#)); do
  case $1 in
    --list) list=1 ;;
    --fit) fit=1 ;;
    --allow-skipped) allow_skipped=1 ;;
    --only | --sanitize | --work)
      (($# > 1)) || die "$1 needs a value"
      case $1 in
        --only) only=$2 ;;
        --sanitize) sanitize=$2 ;;
        --work) work=$2 keep=1 ;;
      esac
      shift
      ;;
    *) die "unknown option $1; see the head of ${BASH_SOURCE[0]}" ;;
  esac
  shift
done
case $sanitize in
  "" | thread | address) ;;
  *) die "--sanitize: expected thread or address, got $sanitize" ;;
esac

declare -A why tests_of file_of sanitize_of cpu_of original replacement
faults=()
read_faults() {  # FILE
  local line key value name="" number=0
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1)) key=${line%%: *} value=${line#*: }
    case $line in
      '') name="" ;;
      [-+' ']*)
        [[ -n $name ]] || die "$1:$number: text of a fault without a name"
        [[ $line == +* ]] || original[$name]+=${line:1}$'\n'
        [[ $line == -* ]] || replacement[$name]+=${line:1}$'\n'
        ;;
      *': '*)
        if [[ -z $name ]]; then
          name=$key
          [[ -z ${why[$name]:-} ]] || die "$1:$number: there are two faults '$name'"
          why[$name]=$value tests_of[$name]=$(basename "$1" .fault) faults+=("$name")
          continue
        fi
        case $key in
          also) tests_of[$name]+=" $value" ;;
          in) file_of[$name]=$value ;;
          sanitize) sanitize_of[$name]=$value ;;
          cpu) cpu_of[$name]=$value ;;
          *) die "$1:$number: expected also, in, sanitize or cpu, got '$key'" ;;
        esac
        ;;
      *) die "$1:$number: expected 'NAME: why', a setting, or text after '-', '+' or ' ', got '$line'" ;;
    esac
  done <"$1"
}
for file in "$here"/faults/*.fault; do read_faults "$file"; done

wanted() {  # NAME: whether this run takes it
  # shellcheck disable=SC2053
  [[ $1 == $only ]] || return 1
  ((!fit)) || return 0
  [[ " ${sanitize_of[$1]:-none} " == *" ${sanitize:-none} "* ]] || return 1
  [[ -z ${cpu_of[$1]:-} ]] || grep -qw "${cpu_of[$1]}" /proc/cpuinfo
}
chosen=()
for name in ${faults[@]+"${faults[@]}"}; do
  [[ -n ${original[$name]:-} ]] || die "the fault '$name' has no text to replace"
  ! wanted "$name" || chosen+=("$name")
done
faults=(${chosen[@]+"${chosen[@]}"})
((${#faults[@]})) || die "no fault matches '$only'"
if ((list)); then
  for name in "${faults[@]}"; do printf '%-44s %s\n' "$name" "${why[$name]}"; done
  exit 0
fi

if ((fit)); then
  # One pass over the sources; place() below does the same for one fault of the copy.
  cd "$root" || die "$root cannot be entered"
  mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' | sort -u |
    while IFS= read -r path; do [[ ! -f $path ]] || printf '%s\n' "$path"; done)
  for name in "${faults[@]}"; do
    printf '%s\002%s\002%s\001' "$name" "${file_of[$name]:-}" "${original[$name]%$'\n'}"
  done | awk -v RS='\001' '
    FILENAME == "/dev/stdin" { faults[++count] = $0; next }
    { text[FILENAME] = $0 }
    END {
      for (f = 1; f <= count; ++f) {
        split(faults[f], part, "\002")
        found = 0
        for (file in text) {
          path = "/" file
          if (part[2] != "" && substr(path, length(path) - length(part[2])) != "/" part[2]) continue
          if (!(at = index(text[file], part[3]))) continue
          found += index(substr(text[file], at + 1), part[3]) ? 2 : 1
        }
        if (found == 1) continue
        printf "%s does not fit the sources: its text occurs %s\n", part[1], found ? "more than once" : "nowhere"
        bad = 1
      }
      if (!bad) printf "%d faults fit the sources\n", count
      exit bad
    }' /dev/stdin "${sources[@]}"
  exit
fi

# --- the copy ---------------------------------------------------------------------------------------------------------

# Only what differs is written: the rest keeps its time, and what was built from it stays.
copy_sources() {
  local path
  (cd "$root" && git ls-files --cached --others --exclude-standard) | sort >"$work/wanted"
  while IFS= read -r path; do
    if [[ -L $root/$path ]]; then
      { mkdir -p "$(dirname "$copy/$path")" && ln -sfn "$(readlink "$root/$path")" "$copy/$path"; } || return 1
      continue
    fi
    [[ -f $root/$path ]] || continue
    cmp -s "$root/$path" "$copy/$path" && continue
    mkdir -p "$(dirname "$copy/$path")"
    cp "$root/$path" "$copy/$path" || return 1
  done <"$work/wanted"
  (cd "$copy" && find . -path ./build -prune -o -type f -print | sed 's,^\./,,') | sort | comm -23 - "$work/wanted" |
    while IFS= read -r path; do rm -f "$copy/$path"; done
}

# place NAME: prints the file of the copy that has the fault's text; fails unless it has it once, and no other has it.
place() {
  local text=${original[$1]%$'\n'} line longest="" file found=""
  while IFS= read -r line; do ((${#line} <= ${#longest})) || longest=$line; done <<<"$text"
  while IFS= read -r file; do
    [[ -z ${file_of[$1]:-} || /$file == */"${file_of[$1]}" ]] || continue
    case $(TEXT=$text awk -v RS='\001' '{
        at = index($0, ENVIRON["TEXT"])
        print !at ? "none" : index(substr($0, at + 1), ENVIRON["TEXT"]) ? "several" : "one"
      }' "$copy/$file") in
      none) ;;
      one) [[ -z $found ]] && found=$file || return 1 ;;
      *) return 1 ;;
    esac
  done < <(cd "$copy" && grep -E '\.(h|cpp|cu)$' "$work/wanted" | tr '\n' '\0' | xargs -0 -r grep -lsF -e "$longest")
  [[ -n $found ]] && printf '%s\n' "$found"
}

plant() {  # NAME FROM TO: TO is FROM with the fault in it
  TEXT=${original[$1]%$'\n'} NEW=${replacement[$1]-} awk -v RS='\001' '{
    at = index($0, ENVIRON["TEXT"])
    new = ENVIRON["NEW"]
    sub(/\n$/, "", new)
    printf "%s%s%s", substr($0, 1, at - 1), new, substr($0, at + length(ENVIRON["TEXT"]))
  }' "$2" >"$3"
}

trap 'exit 130' INT
trap 'exit 143' TERM
if ((!keep)); then
  work=$(mktemp -d "${TMPDIR:-/tmp}/tern-faults-XXXXXX") || die "no temporary folder"
  chmod 755 "$work"  # some tests start the program as another user
  trap 'rm -rf "$work"' EXIT
fi
copy=$work/tern build=$work/tern/build/faults
{ mkdir -p "$build" && copy_sources; } || die "the sources cannot be copied to $work"
copy=$(cd "$copy" && pwd) build=$copy/build/faults log=$copy/build/log
export CCACHE_BASEDIR=$copy CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros

# Two CPU levels are enough: every machine has the first, and only the second has packed products (tests that need it
# pass without it).
options=(-DTERN_BUILD_TESTS=ON "-DTERN_CPU_LEVELS=v3;v4")
case $sanitize in
  thread) options+=(-DTERN_SANITIZE=thread -DCMAKE_BUILD_TYPE=RelWithDebInfo) ;;
  address) options+=("-DTERN_SANITIZE=address,undefined" -DCMAKE_BUILD_TYPE=RelWithDebInfo) ;;
esac
if [[ -n $sanitize ]]; then
  source "$here/../sanitizer_options.sh"
  sanitizer_options "$copy"
fi
cmake -S "$copy" --preset release -B "$build" "${options[@]}" >"$log" 2>&1 || { cat "$log" >&2; die "cmake failed"; }

build_tests() { ninja -C "$build" -j "${TERN_JOBS:-$(nproc)}" "$@" </dev/null >"$log" 2>&1; }  # TEST...
run_tests() {                                                                                  # TEST...
  local names="$*"
  ctest --test-dir "$build" --no-tests=error --output-on-failure --stop-on-failure -R "^(${names// /|})\$" </dev/null >"$log" 2>&1
}

told() {  # by the sanitizer, not by a wrong result
  case $sanitize in
    thread) grep -q 'ThreadSanitizer: data race' "$log" ;;
    address) grep -Eq 'AddressSanitizer|LeakSanitizer|runtime error:' "$log" ;;
  esac
}

known=" $(ctest --test-dir "$build" -N | sed -n '/(Disabled)$/d; s/^ *Test *#[0-9]*: //p' | paste -sd' ') "
known_tests() {  # NAME: those of the fault's tests that are here
  local test
  for test in ${tests_of[$1]}; do [[ $known != *" $test "* ]] || printf '%s ' "$test"; done
}

# --- without a fault --------------------------------------------------------------------------------------------------

read -ra tests < <(for name in "${faults[@]}"; do known_tests "$name"; done | tr ' ' '\n' | sort -u | paste -sd' ')
if ((${#tests[@]})); then
  build_tests "${tests[@]}" || { tail -n 40 "$log" >&2; die "the tests do not build"; }
  run_tests "${tests[@]}" || { tail -n 60 "$log" >&2; die "the tests fail without a fault"; }
fi

# --- with each --------------------------------------------------------------------------------------------------------

declare -A count=([caught]=0 [missed]=0 [stale]=0 ["does not build"]=0 [skipped]=0)
for name in "${faults[@]}"; do
  started=$SECONDS by=""
  read -ra tests < <(known_tests "$name")
  if ((${#tests[@]} == 0)); then
    verdict=skipped
  elif ! file=$(place "$name"); then
    verdict=stale
  else
    plant "$name" "$copy/$file" "$work/planted"
    mv "$copy/$file" "$work/original"
    mv "$work/planted" "$copy/$file"
    if ! build_tests "${tests[@]}"; then
      verdict="does not build"
    elif run_tests "${tests[@]}" || ! told; then
      verdict=missed
    else
      verdict=caught by=$(sed -n 's/^.*Test *#[0-9]*: \([a-z_0-9]*\) .*\*\*\*.*$/\1/p' "$log" | paste -sd' ')
    fi
    cp "$log" "$work/$name.log"
    cp "$work/original" "$copy/$file"
  fi
  count[$verdict]=$((count[$verdict] + 1))
  printf '%-44s %-14s %4d s  %s\n' "$name" "$verdict" $((SECONDS - started)) "${by:-${why[$name]}}"
done

valid=$((count[caught] + count[missed]))
printf '%d of %d faults caught, %d missed, %d stale, %d do not build, %d skipped\n' "${count[caught]}" "$valid" \
  "${count[missed]}" "${count[stale]}" "${count["does not build"]}" "${count[skipped]}"
((count[stale] == 0 && count["does not build"] == 0 && count[caught] * 60 >= valid * 58)) || exit 1
if ((count[skipped] && !allow_skipped)); then
  reason="${count[skipped]} faults were skipped: the tests that would catch them cannot be built here"
  echo "$reason (NVIDIA's header cublasLt.h or MPI is missing; --allow-skipped passes nevertheless)"
  [[ -z $results ]] || printf 'skipped\tfaults_planted\tcuda: %s\n' "$reason" >"$results/faults_planted"
  exit 77
fi
exit 0
