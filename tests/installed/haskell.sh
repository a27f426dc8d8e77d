# driven: ghc; 100 threads on two capabilities
# packages: ghc
cat > a.hs <<'X'
import Control.Concurrent
main = do { m <- newEmptyMVar; mapM_ (\i -> forkIO (putMVar m (i*i))) [1..100]; s <- sum <$> mapM (const (takeMVar m)) [1..100 :: Int]; if s == (338350 :: Int) then return () else error "bad" }
X
ghc -v0 -threaded a.hs && ./a +RTS -N2
