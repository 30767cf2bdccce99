# Finds LLVM 23.1 (the static libraries of the PyPI package mlc-llvm-static, or an installed one).
# Defines topstitch_llvm: what cpp/cpu links; nothing else in the project may.
if(NOT LLVM_DIR)
  find_package(Python COMPONENTS Interpreter QUIET)
  execute_process(COMMAND ${Python_EXECUTABLE} -m mlc_llvm_static.config --cmake-dir
    OUTPUT_VARIABLE llvm_static_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(llvm_static_dir)
    set(LLVM_DIR ${llvm_static_dir} CACHE PATH "Folder of LLVMConfig.cmake")
  endif()
endif()
# LLVM's own package looks for zlib and zstd: take the static ones that lie beside it.
get_filename_component(llvm_prefix ${LLVM_DIR}/../../.. ABSOLUTE)
list(PREPEND CMAKE_PREFIX_PATH ${llvm_prefix})
set(ZLIB_USE_STATIC_LIBS ON)
find_package(LLVM 23.1 REQUIRED CONFIG)
add_library(topstitch_llvm INTERFACE)
include(cmake/stable_paths.cmake)
stable_paths(llvm_include ${LLVM_INCLUDE_DIRS})
target_include_directories(topstitch_llvm SYSTEM INTERFACE ${llvm_include})
separate_arguments(llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
target_compile_definitions(topstitch_llvm INTERFACE ${llvm_definitions})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(llvm_target AArch64)
else()
  set(llvm_target X86)
endif()
llvm_map_components_to_libnames(llvm_libraries
  core support orcjit native ${llvm_target} passes scalaropts instcombine vectorize mcdisassembler)
list(TRANSFORM llvm_libraries REPLACE "(.+)" "$<LINK_ONLY:\\1>")  # their headers are found through the link
target_link_libraries(topstitch_llvm INTERFACE ${llvm_libraries})
