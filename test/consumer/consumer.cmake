# Installs the build into a fresh prefix, then configures, builds and runs the consumer against it, once through
# find_package and once through pkg-config.
# Usage: cmake -DBUILD=<build dir> -DSOURCE=<this folder> -DWORK=<scratch dir> -DCOMPILER=... -DFLAGS=... -P consumer.cmake
cmake_minimum_required(VERSION 3.25)
function(run)
    execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/prefix)  # nothing installed may name the prefix
file(GLOB_RECURSE packages ${WORK}/prefix/*.pc)
if(NOT packages)
    message(FATAL_ERROR "no pkg-config file was installed")
endif()
cmake_path(GET packages PARENT_PATH folder)
set(ENV{PKG_CONFIG_PATH} ${folder})
foreach(pkg_config OFF ON)
    set(build ${WORK}/build-${pkg_config})
    run(${CMAKE_COMMAND} -S ${SOURCE} -B ${build} -G Ninja -DUSE_PKG_CONFIG=${pkg_config} -DCMAKE_PREFIX_PATH=${WORK}/prefix
        -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS})
    run(${CMAKE_COMMAND} --build ${build})
    run(${build}/consumer)
endforeach()
run(${WORK}/prefix/bin/bitreplay --help)
