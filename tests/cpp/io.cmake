# Tests of cpp/io: files and the safetensors format.
# Linked with the object libraries, so that hidden symbols are reachable.
topstitch_test(test_io
  SOURCES test_io_files.cpp test_io_safetensors.cpp
  LINK topstitch_core topstitch_io)
