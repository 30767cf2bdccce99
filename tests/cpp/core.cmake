# Tests of cpp/core.
# Linked with the object libraries, so that hidden symbols are reachable.
topstitch_test(test_core
  SOURCES test_core_buffer.cpp test_core_caches.cpp test_core_dim.cpp test_core_dim_random.cpp test_core_dtype.cpp test_core_ndarray.cpp
          test_core_overlap.cpp test_core_print.cpp test_core_settings.cpp test_core_shape.cpp test_core_views.cpp
  LINK topstitch_core)
