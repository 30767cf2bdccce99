# stable_paths(NAME FOLDER...): sets NAME to links in the build folder that lead to the folders.
# pip installs build requirements into a folder with a new name each time; through the links, ccache knows objects again.
function(stable_paths name)
  set(links "")
  foreach(folder IN LISTS ARGN)
    list(LENGTH links count)
    set(link ${CMAKE_BINARY_DIR}/links/${name}${count})
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/links)
    file(REMOVE ${link})
    file(CREATE_LINK ${folder} ${link} SYMBOLIC)
    list(APPEND links ${link})
  endforeach()
  set(${name} ${links} PARENT_SCOPE)
endfunction()
