# work: cargo build of a small program, its run
# packages: cargo rustc
prepare() {
  mkdir -p p/src
  printf '[package]\nname="p"\nversion="0.1.0"\nedition="2021"\n' > p/Cargo.toml
  cat > p/src/main.rs <<'X'
use std::{sync::mpsc, thread};
fn main() {
    let (t, r) = mpsc::channel();
    for i in 0..8 {
        let t = t.clone();
        thread::spawn(move || for j in 0..100 { t.send(i * j).unwrap(); });
    }
    drop(t);
    let s: i32 = r.iter().sum();
    assert_eq!(s, 28 * 4950);
}
X
}
drive() { cd p; CARGO_HOME=$PWD/cargo cargo -q build; ./target/debug/p; }
