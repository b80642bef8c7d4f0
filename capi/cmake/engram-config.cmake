# The imported targets of an installed Engram:
#
#   engram::engram   the library, for C, and for C++20 by engram.hpp
#   engram::static   the same, linked into the program (from `make install`; a wheel has none)
#   engram::pmemcpy  pMEMCPY's interface (C++17); with MPI, if the project has looked for it with
#                    find_package(MPI) before, or it is found now
get_filename_component(_engram_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET engram::engram)
  add_library(engram::engram SHARED IMPORTED)
  set_target_properties(engram::engram PROPERTIES
    IMPORTED_LOCATION "${_engram_prefix}/lib/libengram.so.0"
    IMPORTED_SONAME "libengram.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_engram_prefix}/include")

  # In a wheel, this file is a script that names the shared library.
  file(READ "${_engram_prefix}/lib/libengram.a" _engram_magic LIMIT 7 HEX)
  if(_engram_magic STREQUAL "213c617263683e") # "!<arch>"
    add_library(engram::static STATIC IMPORTED)
    set_target_properties(engram::static PROPERTIES
      IMPORTED_LOCATION "${_engram_prefix}/lib/libengram.a"
      INTERFACE_INCLUDE_DIRECTORIES "${_engram_prefix}/include"
      INTERFACE_LINK_LIBRARIES "gcc_s;util;rt;pthread;m;dl;c")
  endif()
  unset(_engram_magic)

  add_library(engram::pmemcpy INTERFACE IMPORTED)
  set_target_properties(engram::pmemcpy PROPERTIES
    INTERFACE_LINK_LIBRARIES "engram::engram;${CMAKE_DL_LIBS}"
    INTERFACE_COMPILE_FEATURES cxx_std_17)
  get_property(_engram_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT TARGET MPI::MPI_CXX AND "CXX" IN_LIST _engram_languages)
    find_package(MPI QUIET COMPONENTS CXX)
  endif()
  if(TARGET MPI::MPI_CXX)
    set_property(TARGET engram::pmemcpy APPEND PROPERTY INTERFACE_LINK_LIBRARIES MPI::MPI_CXX)
  else()
    set_property(TARGET engram::pmemcpy PROPERTY INTERFACE_COMPILE_DEFINITIONS ENGRAM_NO_MPI)
  endif()
  unset(_engram_languages)
endif()
unset(_engram_prefix)
