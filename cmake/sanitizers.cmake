# Compiles our libraries with the sanitizers that TOPSTITCH_SANITIZE names, and links everything with them.
# The tests themselves are not instrumented: that would double the time of the build, and finds nothing of ours.
add_library(topstitch_sanitized INTERFACE)
if(TOPSTITCH_SANITIZE)
  set(sanitizer_flags -fsanitize=${TOPSTITCH_SANITIZE} -fno-omit-frame-pointer)
  if(TOPSTITCH_SANITIZE MATCHES "undefined")
    # LLVM has no run-time type information, so the check of virtual calls (vptr) is left out; null pointers and sizes of
    # objects are the address sanitizer's business.
    list(APPEND sanitizer_flags -fno-sanitize=vptr,null,object-size -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(topstitch_sanitized INTERFACE ${sanitizer_flags} -g1)
  target_compile_definitions(topstitch_options INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(topstitch_options INTERFACE ${sanitizer_flags})
endif()
