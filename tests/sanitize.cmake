# The tests that .ci/run also runs with sanitizers.
set(TERN_SANITIZE_TESTS)
