# embed_json(NAME FOLDER HEADER): a generated .cpp, appended to embedded_sources, defines the function NAME that HEADER
# declares; it returns (file name without .json, text) of each JSON file in FOLDER.
function(embed_json name folder header)
    file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.json)
    list(SORT files)
    set(rows "")
    foreach(file IN LISTS files)
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
        file(READ ${file} text)
        cmake_path(GET file STEM stem)
        string(APPEND rows "        {\"${stem}\", R\"json(${text})json\"},\n")
    endforeach()
    if(files)
        set(body "    static constexpr std::pair<std::string_view, std::string_view> files[] = {\n${rows}    };\n    return files;")
    else()
        set(body "    return {};")
    endif()
    set(output ${PROJECT_BINARY_DIR}/embedded/${name}.cpp)
    file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[#include "@header@"

namespace bitreplay::detail {

std::span<const std::pair<std::string_view, std::string_view>> @name@() noexcept {
@body@
}

}  // namespace bitreplay::detail
]])
    set(embedded_sources ${embedded_sources} ${output} PARENT_SCOPE)
endfunction()
