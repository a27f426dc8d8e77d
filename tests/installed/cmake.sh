# driven: configure, ninja, ctest
# packages: cmake ninja-build
mkdir b; printf 'cmake_minimum_required(VERSION 3.10)\nproject(p C)\nenable_testing()\nadd_executable(a a.c)\nadd_test(NAME a COMMAND a)\n' > CMakeLists.txt
echo 'int main(void){return 0;}' > a.c
cmake -G Ninja -S . -B b > log && ninja -C b > log && (cd b && ctest > log)
