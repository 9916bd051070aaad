# Compiler flags, dependencies and the helper functions that every folder uses.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# The binary sits at the top of the build folder: build/release/hadal.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/cmake/cuda-compiler.sh)
if(CCACHE)
  list(APPEND CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(hadal_flags INTERFACE)
target_include_directories(hadal_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
# -ffp-contract=off: results must not depend on which multiplies the compiler happens to fuse; kernels that want
# a fused multiply-add write it out.
target_compile_options(hadal_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror=return-type
    -ffp-contract=off -fno-math-errno>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Debug,RelWithDebInfo>>:-D_GLIBCXX_ASSERTIONS>)
target_compile_definitions(hadal_flags INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY
  HADAL_VERSION="${PROJECT_VERSION}")
if(HADAL_SANITIZE)
  # Instrumented code makes g++ 12 warn of uninitialised members inside the standard library's headers.
  target_compile_options(hadal_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${HADAL_SANITIZE} -fno-omit-frame-pointer -Wno-maybe-uninitialized>)
  target_link_options(hadal_flags INTERFACE -fsanitize=${HADAL_SANITIZE})
  # The runtimes of the sanitizers are linked in, so that the program runs on a machine without them. libstdc++ stays
  # dynamic: linked in, its __cxa_throw is not intercepted, and the stack of what an exception left stays poisoned.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    foreach(pair address:asan undefined:ubsan thread:tsan)
      string(REPLACE ":" ";" pair ${pair})
      list(GET pair 0 sanitizer)
      list(GET pair 1 runtime)
      if(HADAL_SANITIZE MATCHES ${sanitizer})
        target_link_options(hadal_flags INTERFACE -static-lib${runtime})
      endif()
    endforeach()
  endif()
else()
  # Only glibc stays dynamic, so that the binary can be copied to another machine (scripts/check-linkage.sh).
  target_link_options(hadal_flags INTERFACE -static-libstdc++ -static-libgcc -Wl,--as-needed)
endif()

find_package(Threads REQUIRED)
set(Boost_NO_WARN_NEW_VERSIONS ON)
find_package(Boost 1.81 QUIET)
if(NOT Boost_FOUND)
  message(FATAL_ERROR "Boost 1.81 or newer was not found (Debian 12: libboost1.81-dev; elsewhere: -DBoost_ROOT=DIR)")
endif()
target_link_libraries(hadal_flags INTERFACE Boost::headers)
find_program(MOLD mold)
if(MOLD)
  target_link_options(hadal_flags INTERFACE -fuse-ld=mold)
endif()

# Finds a static library of a Debian package and wraps it as an imported target.
function(hadal_static_library target name header)
  find_library(HADAL_LIB_${name} NAMES lib${name}.a REQUIRED)
  find_path(HADAL_INC_${name} ${header} REQUIRED)
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${HADAL_LIB_${name}}
    INTERFACE_INCLUDE_DIRECTORIES ${HADAL_INC_${name}})
endfunction()

set(HADAL_HAVE_CUDA OFF)
if(NOT HADAL_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  # CMake 3.25 knows no flag for C++20 with nvcc 13; hadal_library() passes it.
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(HADAL_HAVE_CUDA ON)
  elseif(HADAL_CUDA STREQUAL "ON")
    message(FATAL_ERROR "HADAL_CUDA=ON, but no CUDA compiler was found; install the CUDA 13 toolkit or set CMAKE_CUDA_COMPILER")
  endif()
endif()
message(STATUS "CUDA backend: ${HADAL_HAVE_CUDA}")

# hadal_library(NAME deps...): a static library of every *.cc (and *.cu) below the current folder, without tests,
# and NAME_test of its test files (test.cc and *_test.cc).
function(hadal_library name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "(/|_)test\\.cc$")
  list(FILTER tests INCLUDE REGEX "(/|_)test\\.cc$")
  if(HADAL_HAVE_CUDA)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
    list(APPEND sources ${cuda_sources})
  endif()
  if(NOT sources)  # headers only, so far
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE hadal_flags ${ARGN} Threads::Threads)
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC hadal_flags ${ARGN} Threads::Threads)
  if(HADAL_HAVE_CUDA)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -lineinfo --expt-relaxed-constexpr
      -Xcompiler=-Wall,-ffp-contract=off>)
    target_compile_definitions(${name} PUBLIC HADAL_HAVE_CUDA=1)
    target_link_libraries(${name} PUBLIC CUDA::cudart_static)
  endif()
  if(HADAL_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE ${name} GTest::gtest GTest::gtest_main rapidcheck)
    gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 60)
  endif()
endfunction()

if(HADAL_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  hadal_static_library(rapidcheck rapidcheck rapidcheck.h)
endif()
