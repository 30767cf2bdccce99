# Tests of the math expansions (cpp/loopir/math_*), and the tool that measures their accuracy for docs/accuracy.md.
# Linked with the object libraries, so that hidden symbols are reachable.
topstitch_test(test_math
  SOURCES test_math_support.cpp test_math_accuracy.cpp test_math_special.cpp test_math_expand.cpp
  LINK topstitch_core topstitch_loopir)

# Not built by default: cmake --build <folder> --target math_accuracy
if(TARGET topstitch_cpu AND EXISTS ${CMAKE_SOURCE_DIR}/bench/accuracy.cpp)
  add_executable(math_accuracy EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/accuracy.cpp test_math_support.cpp)
  target_include_directories(math_accuracy PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(math_accuracy PRIVATE topstitch_options topstitch_cpu topstitch_loopir topstitch_core
    topstitch_llvm)
endif()
