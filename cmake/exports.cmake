# Keeps every symbol but our own public ones inside libtopstitch, so that another LLVM in the same
# process (numba, torch, jax) never meets ours; also drops the sections that nothing refers to.
if(APPLE)
  set(export_list ${CMAKE_CURRENT_SOURCE_DIR}/cmake/exported_symbols.macos)
  target_link_options(topstitch PRIVATE LINKER:-exported_symbols_list,${export_list} LINKER:-dead_strip)
else()
  set(export_list ${CMAKE_CURRENT_SOURCE_DIR}/cmake/exported_symbols.map)
  target_link_options(topstitch PRIVATE
    LINKER:--version-script=${export_list} LINKER:--exclude-libs,ALL LINKER:--gc-sections)
  if(NOT TOPSTITCH_SANITIZE)  # a sanitizer's own symbols are found when the program starts
    target_link_options(topstitch PRIVATE LINKER:-z,defs)
  endif()
endif()
set_target_properties(topstitch PROPERTIES LINK_DEPENDS ${export_list})
