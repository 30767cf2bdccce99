# Installs libtopstitch, its headers, the CMake package for native programs, and the licences.
# The layout is relative to one prefix: the folder of the Python package inside a wheel.
include(CMakePackageConfigHelpers)
set(package_dir share/cmake/topstitch)

install(TARGETS topstitch EXPORT topstitchTargets
  LIBRARY DESTINATION lib RUNTIME DESTINATION lib ARCHIVE DESTINATION lib)
install(DIRECTORY cpp/include/topstitch DESTINATION include FILES_MATCHING PATTERN "*.h")
install(EXPORT topstitchTargets NAMESPACE topstitch:: DESTINATION ${package_dir})
configure_package_config_file(cmake/topstitchConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/topstitchConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/topstitchConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/topstitchConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/topstitchConfigVersion.cmake
  DESTINATION ${package_dir})

install(FILES LICENSE THIRD_PARTY_NOTICES.md DESTINATION share/licenses)
foreach(part LLVM zlib zstd)
  set(licence ${LLVM_INSTALL_PREFIX}/../licenses/${part}.txt)
  if(EXISTS ${licence})
    install(FILES ${licence} DESTINATION share/licenses/third_party)
  else()
    message(STATUS "No licence text of ${part} beside this LLVM: do not give this build to others")
  endif()
endforeach()
