# tern_embed(target file symbol): the bytes of a file inside a library, at no compile cost.
# The library then defines `std::string_view tern::embedded::<symbol>()`; its users declare that one line:
#   namespace tern::embedded { std::string_view bert_base_uncased_vocab(); }
# The file's path is relative to the source root. Each is compiled alone, so that a test can replace it. Without
# TERN_EMBEDDED_DATA the function throws.

set(TERN_EMBED_BYTES [=[
#include <cstddef>
#include <string_view>

asm(".pushsection .rodata\n"
    ".balign 16\n"
    "tern_embedded_@symbol@_begin:\n"
    ".incbin \"@path@\"\n"
    "tern_embedded_@symbol@_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" {
[[gnu::visibility("hidden")]] extern const char tern_embedded_@symbol@_begin[];
[[gnu::visibility("hidden")]] extern const char tern_embedded_@symbol@_end[];
}

namespace tern::embedded {
std::string_view @symbol@();
std::string_view @symbol@() {
  return {tern_embedded_@symbol@_begin,
          static_cast<std::size_t>(tern_embedded_@symbol@_end - tern_embedded_@symbol@_begin)};
}
}  // namespace tern::embedded
]=])

set(TERN_EMBED_NOTHING [=[
#include <string_view>

#include "tern/data/without/part.h"

namespace tern::embedded {
std::string_view @symbol@();
std::string_view @symbol@() {
  data::fail_without("the embedded file @file@", "embedded data", "TERN_EMBEDDED_DATA");
}
}  // namespace tern::embedded
]=])

function(tern_embed_nothing target file symbol)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/embedded/no_${symbol}.cpp)
  file(CONFIGURE OUTPUT ${generated} @ONLY CONTENT "${TERN_EMBED_NOTHING}")
  set_source_files_properties(${generated} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${generated})
endfunction()

function(tern_embed target file symbol)
  if(NOT TERN_EMBEDDED_DATA)
    tern_embed_nothing(${target} ${file} ${symbol})
    return()
  endif()
  set(path ${PROJECT_SOURCE_DIR}/${file})
  set(generated ${PROJECT_BINARY_DIR}/embedded/${symbol}.cpp)
  file(CONFIGURE OUTPUT ${generated} @ONLY CONTENT "${TERN_EMBED_BYTES}")
  set_source_files_properties(${generated} PROPERTIES OBJECT_DEPENDS ${path} SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${generated})
endfunction()
