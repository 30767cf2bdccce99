# Generates the typed C++ builders and the Python stub from the registry, with a small program built for the purpose.
# They land in generated/ of the build folder and are installed from there.
set(generated_dir ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${generated_dir}/topstitch)
add_executable(topstitch_opgen cpp/opgen/main.cpp cpp/opgen/cpp_builders.cpp cpp/opgen/python_stub.cpp)
target_link_libraries(topstitch_opgen PRIVATE topstitch_options topstitch_core topstitch_loopir topstitch_graph topstitch_ops)
set(generated_files ${generated_dir}/topstitch/ops.h ${generated_dir}/ops.cpp ${generated_dir}/_ops.pyi)
add_custom_command(OUTPUT ${generated_files} COMMAND topstitch_opgen ${generated_files} DEPENDS topstitch_opgen
  COMMENT "Generating the builders of all operations" VERBATIM)
add_library(topstitch_builders OBJECT ${generated_files})
target_include_directories(topstitch_builders PUBLIC ${generated_dir})
target_link_libraries(topstitch_builders PRIVATE topstitch_options)
install(FILES ${generated_dir}/topstitch/ops.h DESTINATION include/topstitch)
install(FILES ${generated_dir}/_ops.pyi DESTINATION .)
