# driven: a pool, a shared value
# packages: python3
cat > a.py <<'X'
import multiprocessing as m
def f(x): return x*x
if __name__ == '__main__':
    with m.Pool(3) as p: assert sum(p.map(f, range(100))) == 328350
    v = m.Value('i', 0); 
    def inc(): 
        for _ in range(50):
            with v.get_lock(): v.value += 1
    ps = [m.Process(target=inc) for _ in range(3)]; [p.start() for p in ps]; [p.join() for p in ps]; assert v.value == 150
X
/usr/bin/python3 a.py
