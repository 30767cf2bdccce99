// check_msl FILE...: whether the simulation accepts MSL sources, and which kernels they hold.
// For work on kernels; "-" reads standard input. The exit status is 1 when one is rejected.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "msl/library.h"

namespace {

std::string read(const std::string& path) {
    std::ostringstream text;
    if (path == "-") {
        text << std::cin.rdbuf();
    } else {
        std::ifstream file(path, std::ios::binary);
        if (!file) {
            std::fprintf(stderr, "check_msl: cannot read %s\n", path.c_str());
            std::exit(2);
        }
        text << file.rdbuf();
    }
    return text.str();
}

}  // namespace

int main(int argc, char** argv) {
    int status = 0;
    for (int i = 1; i < argc; ++i) {
        metal_sim::msl::CompileRequest request;
        request.source = read(argv[i]);
        const auto result = metal_sim::msl::compile(request);
        if (!result.library) {
            std::printf("%s: rejected\n%s\n", argv[i], result.log.c_str());
            status = 1;
            continue;
        }
        std::printf("%s: accepted by the simulation\n", argv[i]);
        for (const auto& kernel : result.library->kernels) {
            std::printf("  %s: %zu parameters, %zu bytes of threadgroup variables\n", kernel.name.c_str(),
                        kernel.parameters.size(), kernel.threadgroup_bytes());
        }
    }
    return status;
}
