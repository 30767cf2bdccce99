# The simulation's tests: one program, run in each mode that finds another kind of error.
# Compiled kernels are kept in the build folder.
add_executable(metal_sim_tests tests/main.cpp tests/harness.mm tests/test_execution.mm tests/test_legal_kernels.mm
  tests/test_libraries.mm tests/test_misuse.mm tests/test_queues.mm tests/test_wrong_kernels.mm)
target_include_directories(metal_sim_tests PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/../..)
target_compile_definitions(metal_sim_tests PRIVATE METAL_SIM_KERNELS="${CMAKE_CURRENT_SOURCE_DIR}/kernels")
target_link_libraries(metal_sim_tests PRIVATE metal_sim doctest::doctest metal_sim_sanitized)
set_target_properties(metal_sim_tests PROPERTIES LINKER_LANGUAGE CXX)

# metal_sim_test(NAME [FILTER ...] [ENVIRONMENT ...]): a run of the tests that the filter chooses.
function(metal_sim_test name)
  cmake_parse_arguments(arg "" "" "FILTER;ENVIRONMENT" ${ARGN})
  add_test(NAME ${name} COMMAND metal_sim_tests ${arg_FILTER})
  set_tests_properties(${name} PROPERTIES LABELS metal_sim
    ENVIRONMENT "METAL_SIM_CACHE=${CMAKE_CURRENT_BINARY_DIR}/kernels;${arg_ENVIRONMENT}")
endfunction()

set(compile_only "*are rejected*")
metal_sim_test(metal_sim_rejects_language FILTER "--test-case=*MSL lacks*,*address spaces*")
metal_sim_test(metal_sim_rejects_types FILTER "--test-case=*types do not fit*,*wrong declarations*")
metal_sim_test(metal_sim FILTER "--test-case-exclude=${compile_only}")
metal_sim_test(metal_sim_reversed FILTER "--test-case-exclude=${compile_only}"
  ENVIRONMENT METAL_SIM_ORDER=reversed METAL_SIM_GUARD=end)
metal_sim_test(metal_sim_shuffled FILTER "--test-case-exclude=${compile_only}" ENVIRONMENT METAL_SIM_ORDER=shuffled:7)
