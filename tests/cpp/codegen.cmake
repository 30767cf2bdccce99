# Tests of the emitter of GPU source; those that run what it emits need the Metal simulation.
# Linked with the object libraries, so that hidden symbols are reachable.
if(TARGET topstitch_codegen)
  topstitch_test(test_codegen
    SOURCES test_codegen_text.cpp test_codegen_limits.cpp test_kernel_support.cpp
    LINK topstitch_codegen topstitch_loopir topstitch_core)
endif()
# metal_sim_core: the simulation's compiler of kernels and its scheduler, without the Objective-C++ device around them.
if(TARGET topstitch_codegen AND TARGET metal_sim_core)
  topstitch_test(test_codegen_run
    SOURCES test_codegen_run.cpp test_codegen_device.cpp test_kernel_support.cpp
    LINK topstitch_codegen topstitch_loopir topstitch_core metal_sim_core ${CMAKE_DL_LIBS})
  target_include_directories(test_codegen_run PRIVATE ${PROJECT_SOURCE_DIR}/tests/metal_sim
    ${PROJECT_SOURCE_DIR}/tests/metal_sim/include)
  # Compiled kernels call into the program that loads them.
  set_target_properties(test_codegen_run PROPERTIES ENABLE_EXPORTS ON)
endif()
