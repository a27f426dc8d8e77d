# driven: javac; a thread pool, garbage, a socket
# packages: default-jdk-headless
cat > A.java <<'X'
import java.util.*; import java.util.concurrent.*; import java.net.*; import java.io.*;
public class A { public static void main(String[] a) throws Exception {
  ExecutorService p = Executors.newFixedThreadPool(4); List<Future<Integer>> r = new ArrayList<>();
  for (int i = 0; i < 20; i++) { int k = i; r.add(p.submit(() -> { List<byte[]> l = new ArrayList<>(); for (int j = 0; j < 200; j++) l.add(new byte[10000]); return k + l.size(); })); }
  int s = 0; for (Future<Integer> f : r) s += f.get(); p.shutdown(); System.gc();
  ServerSocket ss = new ServerSocket(0); Thread t = new Thread(() -> { try (Socket c = ss.accept()) { c.getOutputStream().write(42); } catch (IOException e) {} }); t.start();
  try (Socket c = new Socket("127.0.0.1", ss.getLocalPort())) { if (c.getInputStream().read() != 42) System.exit(1); } t.join();
  if (s != 4190) System.exit(2); } }
X
javac A.java && java A
