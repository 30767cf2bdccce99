# The disk cache of kernels is keyed by the sources of everything between the loop IR and machine code.
# A header with their hash is written whenever one of them changes.
file(GLOB codegen_sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/cpp/cpu/*.cpp ${PROJECT_SOURCE_DIR}/cpp/cpu/*.h
  ${PROJECT_SOURCE_DIR}/cpp/loopir/*.cpp ${PROJECT_SOURCE_DIR}/cpp/loopir/*.h)
string(REPLACE ";" "|" codegen_source_list "${codegen_sources}")
set(codegen_id_header ${PROJECT_BINARY_DIR}/generated/cpu/codegen_id.h)
add_custom_command(
  OUTPUT ${codegen_id_header}
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${codegen_id_header} "-DSOURCES=${codegen_source_list}"
    -DLLVM_VERSION=${LLVM_PACKAGE_VERSION} -P ${PROJECT_SOURCE_DIR}/cmake/codegen_id.cmake
  DEPENDS ${codegen_sources} ${PROJECT_SOURCE_DIR}/cmake/codegen_id.cmake
  VERBATIM)
target_sources(topstitch_cpu PRIVATE ${codegen_id_header})
target_include_directories(topstitch_cpu PRIVATE ${PROJECT_BINARY_DIR}/generated)
