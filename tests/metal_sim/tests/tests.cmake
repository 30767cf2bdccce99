# The simulation's tests: one program, run in each mode that finds another kind of error.
# Compiled kernels are kept in the build folder.
add_executable(metal_sim_tests
  tests/main.cpp tests/harness.mm tests/test_wrong_kernels.mm
  tests/test_legal_kernels.mm)
target_include_directories(metal_sim_tests PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/../..)
target_compile_definitions(metal_sim_tests PRIVATE METAL_SIM_KERNELS="${CMAKE_CURRENT_SOURCE_DIR}/kernels")
target_link_libraries(metal_sim_tests PRIVATE metal_sim doctest::doctest metal_sim_sanitized)
set_target_properties(metal_sim_tests PROPERTIES LINKER_LANGUAGE CXX)
