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
    SOURCES test_codegen_run.cpp test_codegen_wide.cpp test_codegen_matrices.cpp test_codegen_prefix.cpp test_codegen_device.cpp test_kernel_support.cpp
    LINK topstitch_codegen topstitch_loopir topstitch_core metal_sim_core ${CMAKE_DL_LIBS})
  # Whole graphs, whose kernels are emitted and run.
  topstitch_test(test_codegen_products
    SOURCES test_codegen_products.cpp test_codegen_products_random.cpp test_codegen_convolutions.cpp
            test_codegen_attention.cpp test_codegen_rows.cpp test_codegen_backend.cpp test_codegen_device.cpp test_kernel_support.cpp
    LINK topstitch_core topstitch_io topstitch_loopir topstitch_graph topstitch_ops topstitch_autodiff topstitch_passes
         topstitch_stitch topstitch_codegen topstitch_runtime topstitch_cpu topstitch_builders topstitch_llvm
         metal_sim_core ${CMAKE_DL_LIBS})
  foreach(test IN ITEMS test_codegen_run test_codegen_products)
    target_include_directories(${test} PRIVATE ${PROJECT_SOURCE_DIR}/tests/metal_sim
      ${PROJECT_SOURCE_DIR}/tests/metal_sim/include)
    # Compiled kernels call into the program that loads them.
    set_target_properties(${test} PROPERTIES ENABLE_EXPORTS ON)
  endforeach()
endif()
