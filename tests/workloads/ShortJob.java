// Threads with locks and queues, a thread pool, a TCP server and its clients, garbage, timers and a child process, of one Java program.
// usage: java ShortJob ROUNDS
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

public class ShortJob {
  static void check(boolean good, String what) {
    if (good) return;
    System.out.println("WRONG " + what);
    System.exit(1);
  }

  // Short-lived strings: the collector stops all threads to remove them.
  static int garbage(int rounds) {
    List<String> kept = new ArrayList<>();
    for (int i = 0; i < rounds * 200; i++) {
      String text = "number " + i;
      if (i % 100 == 0) kept.add(text);
    }
    return kept.size();
  }

  static long produceAndConsume(int rounds) throws Exception {
    BlockingQueue<Integer> queue = new ArrayBlockingQueue<>(4);
    Thread producer = new Thread(() -> {
      try {
        for (int i = 0; i < rounds; i++) queue.put(i);
        queue.put(-1);
      } catch (InterruptedException error) {
        check(false, "interrupted");
      }
    });
    producer.start();
    long sum = 0;
    for (int n = queue.take(); n >= 0; n = queue.take()) sum += n;
    producer.join();
    return sum;
  }

  static int pool(int rounds) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(4);
    List<Future<Integer>> results = new ArrayList<>();
    for (int i = 0; i < rounds; i++) {
      final int number = i;
      results.add(pool.submit(() -> garbage(1) + number));
    }
    int sum = 0;
    for (Future<Integer> result : results) sum += result.get();
    pool.shutdown();
    return sum;
  }

  static void serve(Socket connection) {
    try (connection) {
      BufferedReader in = new BufferedReader(new InputStreamReader(connection.getInputStream()));
      PrintWriter out = new PrintWriter(connection.getOutputStream(), true);
      for (String line; (line = in.readLine()) != null;) out.println(new StringBuilder(line).reverse());
    } catch (Exception error) {
      check(false, error.toString());
    }
  }

  static int talk(int rounds) throws Exception {
    AtomicInteger answers = new AtomicInteger();
    try (ServerSocket listener = new ServerSocket(0, 16, InetAddress.getLoopbackAddress())) {
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        threads.add(new Thread(() -> {
          try (Socket connection = new Socket(listener.getInetAddress(), listener.getLocalPort())) {
            BufferedReader in = new BufferedReader(new InputStreamReader(connection.getInputStream()));
            PrintWriter out = new PrintWriter(connection.getOutputStream(), true);
            for (int round = 0; round < rounds; round++) {
              out.println("abc" + round);
              if (in.readLine().endsWith("cba")) answers.incrementAndGet();
            }
          } catch (Exception error) {
            check(false, error.toString());
          }
        }));
        threads.get(i).start();
      }
      for (int i = 0; i < 3; i++) {
        Socket connection = listener.accept();
        threads.add(new Thread(() -> serve(connection)));
        threads.get(threads.size() - 1).start();
      }
      for (Thread thread : threads) thread.join();
    }
    return answers.get();
  }

  public static void main(String[] arguments) throws Exception {
    final int rounds = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 100;
    check(garbage(rounds) == rounds * 2, "garbage");
    check(produceAndConsume(rounds) == (long) rounds * (rounds - 1) / 2, "queue");
    check(pool(rounds) == rounds * 2 + rounds * (rounds - 1) / 2, "pool");
    check(talk(rounds) == 3 * rounds, "answers");
    Thread.sleep(5);
    Process child = new ProcessBuilder("/bin/echo", "from a child").start();
    String said = new BufferedReader(new InputStreamReader(child.getInputStream())).readLine();
    check(child.waitFor() == 0 && said.equals("from a child"), "child");
    System.out.println("ok " + rounds);
  }
}
