# tern_embed(target file symbol): the bytes of a file inside a library, at no compile cost.
# The library then defines `std::string_view tern::embedded::<symbol>()`; whoever uses it declares that one line:
#   namespace tern::embedded { std::string_view bert_base_uncased_vocab(); }
# The file's path is relative to the source root.

function(tern_embed target file symbol)
  set(path ${CMAKE_SOURCE_DIR}/${file})
  set(generated ${CMAKE_BINARY_DIR}/embedded/${symbol}.cpp)
  file(CONFIGURE OUTPUT ${generated} @ONLY CONTENT [=[
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
  set_source_files_properties(${generated} PROPERTIES OBJECT_DEPENDS ${path})
  target_sources(${target} PRIVATE ${generated})
endfunction()
