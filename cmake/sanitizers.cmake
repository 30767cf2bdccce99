# Compiles and links everything of ours with the sanitizers that TOPSTITCH_SANITIZE names.
# LLVM has no run-time type information, so the check of virtual calls (vptr) is left out.
if(TOPSTITCH_SANITIZE)
  set(sanitizer_flags -fsanitize=${TOPSTITCH_SANITIZE} -fno-omit-frame-pointer)
  if(TOPSTITCH_SANITIZE MATCHES "undefined")
    list(APPEND sanitizer_flags -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(topstitch_options INTERFACE ${sanitizer_flags} -g1)
  target_compile_definitions(topstitch_options INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(topstitch_options INTERFACE ${sanitizer_flags})
endif()
