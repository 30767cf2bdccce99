# Tests of cpp/graph and of what evaluates single operations.
# Linked with the object libraries, so that hidden symbols are reachable.
topstitch_test(test_graph
  SOURCES test_graph_attributes.cpp test_graph_build.cpp test_graph_control.cpp test_graph_dims.cpp
          test_graph_evaluate.cpp test_graph_hash.cpp test_graph_parse_errors.cpp test_graph_parse_hostile.cpp
          test_graph_registry.cpp test_graph_scale.cpp test_graph_text.cpp test_graph_verify.cpp
  LINK topstitch_core topstitch_loopir topstitch_graph topstitch_ops)
