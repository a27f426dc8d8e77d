# driven: a native program that forks
# packages: ocaml
echo 'let () = let r, w = Unix.pipe () in match Unix.fork () with 0 -> ignore (Unix.write_substring w "x" 0 1); exit 0 | p -> let b = Bytes.create 1 in assert (Unix.read r b 0 1 = 1); assert (snd (Unix.waitpid [] p) = Unix.WEXITED 0)' > a.ml
ocamlfind ocamlopt -package unix -linkpkg a.ml -o a 2>log || ocamlopt unix.cmxa a.ml -o a
./a
