# The product's Metal code, compiled as on macOS and run on the simulated device.
# Without the simulation there is nothing to run it on.
if(TARGET metal_sim)
  add_executable(metal_tests ${PROJECT_SOURCE_DIR}/tests/metal_sim/tests/main.cpp test_metal.cpp
    ${PROJECT_SOURCE_DIR}/metal/gpu.mm ${PROJECT_SOURCE_DIR}/metal/memory.cpp ${PROJECT_SOURCE_DIR}/metal/pipeline.mm
    ${PROJECT_SOURCE_DIR}/metal/pipeline_cache.cpp)
  target_include_directories(metal_tests PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests/metal_sim/tests)
  target_link_libraries(metal_tests PRIVATE topstitch_options topstitch_core metal_sim doctest::doctest)
  set_target_properties(metal_tests PROPERTIES LINKER_LANGUAGE CXX)
  add_executable(metal_interop_tests ${PROJECT_SOURCE_DIR}/tests/metal_sim/tests/main.cpp test_metal_interop.cpp
    metal_objects.mm)
  target_include_directories(metal_interop_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests/metal_sim/tests)
  target_link_libraries(metal_interop_tests PRIVATE topstitch::topstitch metal_sim doctest::doctest)
  set_target_properties(metal_interop_tests PROPERTIES LINKER_LANGUAGE CXX)
  add_test(NAME metal_interop COMMAND metal_interop_tests)
  set_tests_properties(metal_interop PROPERTIES ENVIRONMENT
    "TOPSTITCH_CACHE_DIR=off;METAL_SIM_CACHE=${CMAKE_CURRENT_BINARY_DIR}/kernels")
  foreach(order forward reversed)
    add_test(NAME metal_${order} COMMAND metal_tests)
    set_tests_properties(metal_${order} PROPERTIES ENVIRONMENT
      "TOPSTITCH_CACHE_DIR=off;METAL_SIM_CACHE=${CMAKE_CURRENT_BINARY_DIR}/kernels;METAL_SIM_ORDER=${order};METAL_SIM_GUARD=end")
  endforeach()
endif()
