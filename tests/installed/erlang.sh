# driven: 100 processes
# packages: erlang-base
erl -noshell -eval 'S=self(), [spawn(fun() -> S ! I*I end) || I <- lists:seq(1,100)], R=lists:sum([receive X -> X end || _ <- lists:seq(1,100)]), R=338350, halt(0).'
