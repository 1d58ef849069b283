# What `make install` puts where: headers, both libraries, pkg-config, a CMake package, the command line.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/raffle)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/raffle DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS raffle_static raffle_shared EXPORT raffle
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET raffle)
  install(TARGETS raffle RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(EXPORT raffle NAMESPACE raffle:: FILE raffleTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/raffleConfig.cmake.in raffleConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 minor versions may differ in ABI: ask for the one you were built for.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file(raffleConfigVersion.cmake COMPATIBILITY ${compatibility})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/raffleConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/raffleConfigVersion.cmake
        DESTINATION ${package_dir})

set(private_libs "")
if(raffle_with_cuda)
  set(private_libs "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lstdc++ -ldl -lrt -lpthread")
endif()
# Relative to the .pc file, so that an installed tree can be moved.
file(RELATIVE_PATH prefix_from_pc /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" prefix_from_pc ${prefix_from_pc})
configure_file(${PROJECT_SOURCE_DIR}/cmake/raffle.pc.in raffle.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/raffle.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
