/* C++'s streams, which keep the address of a C stream. */
#include <fcntl.h>
#include <iostream>
#include <cstdio>
#include <string>
#include <unistd.h>

int main(int argc, char **argv) {
    std::string path = std::string(argv[argc - 1]) + "/file";
    std::cout << "before" << std::endl;
    int kept = dup(1);
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 1);
    close(fd);
    std::cout << "cout " << 42 << ";";
    printf("printf;");
    std::cout << "cout again" << std::endl;
    dup2(kept, 1);
    std::cout << "after" << std::endl;
    int kept2 = dup(2);
    fd = open(path.c_str(), O_WRONLY | O_APPEND);
    dup2(fd, 2);
    close(fd);
    std::cerr << "cerr;";
    std::clog << "clog" << std::endl;
    dup2(kept2, 2);
    int in = open(path.c_str(), O_RDONLY);
    dup2(in, 0);
    close(in);
    std::string line;
    while (std::getline(std::cin, line)) {
        std::cout << "read '" << line << "'" << std::endl;
    }
    return 0;
}
