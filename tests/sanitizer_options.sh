# Sourced by what runs test programs.
#
# sanitizer_options ROOT: sets the environment for programs that were built with a sanitizer from the sources in ROOT.
# What the caller's environment says comes last, and so decides.
sanitizer_options() {
  # Two threads, also where there is one core. oneDNN and libgomp are not instrumented.
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
  local asan=detect_leaks=1:halt_on_error=1:detect_stack_use_after_return=1:strict_string_checks=1
  local lsan="suppressions=\"$1/tests/lsan.supp\":print_suppressions=0"
  local ubsan=print_stacktrace=1:halt_on_error=1
  local tsan="suppressions=\"$1/tests/tsan.supp\":halt_on_error=1:second_deadlock_stack=1"
  export ASAN_OPTIONS=$asan${ASAN_OPTIONS:+:$ASAN_OPTIONS} LSAN_OPTIONS=$lsan${LSAN_OPTIONS:+:$LSAN_OPTIONS}
  export UBSAN_OPTIONS=$ubsan${UBSAN_OPTIONS:+:$UBSAN_OPTIONS} TSAN_OPTIONS=$tsan${TSAN_OPTIONS:+:$TSAN_OPTIONS}
}
