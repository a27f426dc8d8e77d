# work: messages round a ring of 100 processes
# packages: erlang-base
prepare() { :; }
drive() {
  erl -noshell -eval "N = 3000 * $2, F = fun G(Next) -> receive 0 -> Next ! 0; I -> Next ! I - 1, G(Next) end end,
    First = lists:foldl(fun(_, Next) -> spawn(fun() -> F(Next) end) end, self(), lists:seq(1, 100)),
    H = fun L() -> receive 0 -> halt(0); I when I =< 1 -> halt(0); I -> First ! I - 1, L() end end, First ! N * 10, H()."
}
