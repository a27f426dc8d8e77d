// A server of the kind that redrive-tutorial(7) looks into: whoever connects writes a customer's name on a line, and
// gets the number of items that this customer has ordered more than once. Nearly all customers are answered at once.
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kCustomers = 50, kOrders = 400, kLargest = 100000, kPort = 7070 };

struct customer {
  char name[32];
  int count;
  int *orders;  // numbers of items
};

static struct customer customers[kCustomers];

static void load_orders(void) {
  uint32_t random = 1;
  for (int i = 0; i < kCustomers; ++i) {
    struct customer *customer = &customers[i];
    snprintf(customer->name, sizeof customer->name, "customer-%d", i);
    customer->count = i == 37 ? kLargest : kOrders;
    customer->orders = malloc(sizeof(int) * (size_t)customer->count);
    for (int k = 0; k < customer->count; ++k) {
      random = random * 1664525 + 1013904223;
      customer->orders[k] = (int)(random >> 8);
    }
  }
}

static int repeated_items(const struct customer *customer) {
  int repeated = 0;
  for (int i = 0; i < customer->count; ++i) {
    for (int k = 0; k < i; ++k) {
      if (customer->orders[i] == customer->orders[k]) {
        ++repeated;
        break;
      }
    }
  }
  return repeated;
}

static void answer(int connection, const char *name) {
  char text[64] = "no such customer\n";
  for (int i = 0; i < kCustomers; ++i) {
    if (strcmp(customers[i].name, name) == 0) snprintf(text, sizeof text, "%d\n", repeated_items(&customers[i]));
  }
  write(connection, text, strlen(text));
}

static void serve(int connection) {
  char line[64];
  ssize_t length;
  while ((length = read(connection, line, sizeof line - 1)) > 0) {
    line[length] = 0;
    line[strcspn(line, "\n")] = 0;
    answer(connection, line);
  }
  close(connection);
}

int main(void) {
  load_orders();
  const int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(kPort), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (bind(listener, (const struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 16) != 0) {
    perror("orders");
    return 1;
  }
  for (;;) {
    const int connection = accept(listener, NULL, NULL);
    if (connection >= 0) serve(connection);
  }
}
