# driven: -flto, make -j2
# packages: gcc make
# quick
for i in 1 2 3 4; do echo "int f$i(int x){return x*$i;}" > f$i.c; done
echo 'int f1(int),f2(int),f3(int),f4(int); int main(){return f1(1)+f2(1)+f3(1)+f4(1)-10;}' > main.c
printf 'prog: main.o f1.o f2.o f3.o f4.o\n\tgcc -flto -O2 -o $@ $^\n%%.o: %%.c\n\tgcc -flto -O2 -c $<\n' > Makefile
make -s -j2 && ./prog
