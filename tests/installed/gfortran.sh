# driven: OpenMP: a reduction, a critical section
# packages: gfortran
cat > a.f90 <<'X'
program a
  integer :: i, s
  s = 0
  !$omp parallel do reduction(+:s) num_threads(4)
  do i = 1, 100000
    s = s + mod(i, 7)
  end do
  !$omp parallel num_threads(3)
  !$omp critical
  s = s + 1
  !$omp end critical
  !$omp barrier
  !$omp end parallel
  if (s /= 300003) stop 1
end program
X
gfortran -fopenmp -O2 a.f90 -o a
./a
