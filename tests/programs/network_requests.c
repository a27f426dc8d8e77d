// The ioctls of sockets and network interfaces: on an interface of its own in a network of its own, if the user may make one.
#include "test.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_tun.h>
#include <linux/mii.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/time.h>

static int asked;  // a UDP socket
static int free_to_change;

static struct ifreq interface(const char* name) {
  struct ifreq request;
  memset(&request, 0, sizeof request);
  strcpy(request.ifr_name, name);
  return request;
}

static void set_address(struct sockaddr* to, const char* text) {
  struct sockaddr_in* address = (struct sockaddr_in*)to;
  memset(address, 0, sizeof *address);
  address->sin_family = AF_INET;
  CHECK(inet_pton(AF_INET, text, &address->sin_addr) == 1);
}

// Asks about the interface; what comes back must be the same in a replay.
static struct ifreq get(unsigned long request, const char* name) {
  struct ifreq found = interface(name);
  if (MAY(ioctl(asked, request, &found), EADDRNOTAVAIL, EOPNOTSUPP, ENOTTY, EINVAL)) NOTE(found);
  return found;
}

static void set(unsigned long request, struct ifreq value) {
  if (MAY(ioctl(asked, request, &value), EOPNOTSUPP, EINVAL, ENOTTY, EADDRNOTAVAIL, ENODEV, EBUSY)) NOTE(value);
}

// A tap device, or what stands in its place for a user who may not have one.
static const char* made_interface(void) {
  const int tun = open("/dev/net/tun", O_RDWR);
  struct ifreq request = interface("redrive0");
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (tun < 0 || !MAY(ioctl(tun, TUNSETIFF, &request), EBADFD)) {
    const int other = tun < 0 ? asked : tun;
    const unsigned long requests[] = {TUNSETIFF,       TUNGETIFF,   TUNGETFEATURES,  TUNSETPERSIST,   TUNSETOWNER,
                                      TUNSETGROUP,     TUNSETOFFLOAD, TUNGETVNETHDRSZ, TUNSETVNETHDRSZ};
    for (int i = 0; i < 9; i++) MAY(ioctl(other, requests[i], &request), ENOTTY, EBADFD, EINVAL, EFAULT);
    return "lo";
  }
  struct ifreq found = interface("");
  MUST(ioctl(tun, TUNGETIFF, &found));
  CHECK(strcmp(found.ifr_name, "redrive0") == 0 && (found.ifr_flags & IFF_TAP));
  unsigned features = 0;
  MUST(ioctl(tun, TUNGETFEATURES, &features));
  CHECK(features & IFF_TAP);
  MUST(ioctl(tun, TUNSETPERSIST, 0));
  MUST(ioctl(tun, TUNSETOWNER, getuid()));
  MUST(ioctl(tun, TUNSETGROUP, getgid()));
  MUST(ioctl(tun, TUNSETOFFLOAD, 0));
  int header = 12;
  MUST(ioctl(tun, TUNSETVNETHDRSZ, &header));
  header = 0;
  MUST(ioctl(tun, TUNGETVNETHDRSZ, &header));
  CHECK(header == 12);
  // Requests without a row.
  int room = 100000;
  MUST(ioctl(tun, TUNSETSNDBUF, &room));
  room = 0;
  MUST(ioctl(tun, TUNGETSNDBUF, &room));
  CHECK(room == 100000);
  return "redrive0";
}

static void addresses(const char* name) {
  struct ifreq request = interface(name);
  set_address(&request.ifr_addr, "10.9.8.7");
  set(SIOCSIFADDR, request);
  set_address(&request.ifr_addr, "255.255.255.0");
  set(SIOCSIFNETMASK, request);
  set_address(&request.ifr_addr, "10.9.8.255");
  set(SIOCSIFBRDADDR, request);
  set_address(&request.ifr_addr, "10.9.8.1");
  set(SIOCSIFDSTADDR, request);
  get(SIOCGIFDSTADDR, name);
  get(SIOCGIFBRDADDR, name);
  get(SIOCGIFNETMASK, name);
  const struct ifreq found = get(SIOCGIFADDR, name);
  if (free_to_change) CHECK(((const struct sockaddr_in*)&found.ifr_addr)->sin_addr.s_addr == inet_addr("10.9.8.7"));
}

static void properties(const char* name) {
  struct ifreq flags = get(SIOCGIFFLAGS, name);
  flags.ifr_flags |= IFF_UP;
  set(SIOCSIFFLAGS, flags);
  if (free_to_change) CHECK(get(SIOCGIFFLAGS, name).ifr_flags & IFF_UP);
  struct ifreq unit = get(SIOCGIFMTU, name);
  if (free_to_change) unit.ifr_mtu = 1400;
  set(SIOCSIFMTU, unit);
  if (free_to_change) CHECK(get(SIOCGIFMTU, name).ifr_mtu == 1400);
  set(SIOCSIFMETRIC, get(SIOCGIFMETRIC, name));
  set(SIOCSIFTXQLEN, get(SIOCGIFTXQLEN, name));
  set(SIOCSIFHWADDR, get(SIOCGIFHWADDR, name));
  set(SIOCSIFMAP, get(SIOCGIFMAP, name));
  set(SIOCSIFPFLAGS, get(SIOCGIFPFLAGS, name));
  struct ifreq named = get(SIOCGIFINDEX, name);
  MUST(ioctl(asked, SIOCGIFNAME, &named));
  CHECK(strcmp(named.ifr_name, name) == 0);
  struct ifreq group = interface(name);
  group.ifr_hwaddr.sa_family = AF_UNSPEC;
  memcpy(group.ifr_hwaddr.sa_data, "\x01\x00\x5e\x01\x02\x03", 6);
  set(SIOCADDMULTI, group);
  set(SIOCDELMULTI, group);
  get(SIOCGMIIPHY, name);
  get(SIOCGMIIREG, name);
  struct ifreq old = interface(name);
  set(SIOCDIFADDR, old);
  strcpy(old.ifr_newname, name);
  set(SIOCSIFNAME, old);
}

// One command of SIOCETHTOOL; whether it works is up to the interface.
static int ethtool(const char* name, void* command) {
  struct ifreq request = interface(name);
  request.ifr_data = command;
  return MAY(ioctl(asked, SIOCETHTOOL, &request), EOPNOTSUPP, EINVAL, ENODEV, ENOBUFS, EBUSY);
}

static void driver(const char* name) {
  static const uint32_t values[] = {ETHTOOL_GLINK, ETHTOOL_GTSO, ETHTOOL_GGSO, ETHTOOL_GGRO, ETHTOOL_GSG, ETHTOOL_GTXCSUM, ETHTOOL_GFLAGS};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    struct ethtool_value value = {.cmd = values[i], .data = 0x77777777};
    if (ethtool(name, &value)) NOTE(value);
  }
  struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
  if (ethtool(name, &info)) NOTE(info);
  struct ethtool_cmd old = {.cmd = ETHTOOL_GSET};
  if (ethtool(name, &old)) NOTE(old);
  struct {
    struct ethtool_link_settings head;
    uint32_t masks[3 * 128];
  } link;
  memset(&link, 0, sizeof link);
  link.head.cmd = ETHTOOL_GLINKSETTINGS;
  if (ethtool(name, &link)) {
    CHECK(link.head.link_mode_masks_nwords < 0);
    link.head.link_mode_masks_nwords = (int8_t)-link.head.link_mode_masks_nwords;
    CHECK(ethtool(name, &link));
    NOTE(link);
  }
  struct {
    struct ethtool_gfeatures head;
    struct ethtool_get_features_block blocks[4];
  } features = {.head = {.cmd = ETHTOOL_GFEATURES, .size = 4}};
  if (ethtool(name, &features)) NOTE(features);
  struct {
    struct ethtool_perm_addr head;
    unsigned char address[32];
  } permanent = {.head = {.cmd = ETHTOOL_GPERMADDR, .size = 32}};
  if (ethtool(name, &permanent)) NOTE(permanent);
  struct {
    struct ethtool_sset_info head;
    uint32_t counts[2];
  } sets = {.head = {.cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1 << ETH_SS_FEATURES | 1 << ETH_SS_STATS}};
  if (ethtool(name, &sets)) NOTE(sets);
  struct ethtool_ts_info stamps = {.cmd = ETHTOOL_GET_TS_INFO};
  if (ethtool(name, &stamps)) NOTE(stamps);
  struct ifreq request = interface(name);
  FAILS(ioctl(asked, SIOCETHTOOL, &request), EFAULT);
  struct ethtool_value segmentation = {.cmd = ETHTOOL_GTSO};
  if (!free_to_change || !ethtool(name, &segmentation)) return;
  segmentation.cmd = ETHTOOL_STSO;
  ethtool(name, &segmentation);
}

static void neighbours_and_routes(const char* name) {
  struct arpreq neighbour;
  memset(&neighbour, 0, sizeof neighbour);
  set_address(&neighbour.arp_pa, "10.9.8.9");
  strcpy(neighbour.arp_dev, name);
  neighbour.arp_ha.sa_family = ARPHRD_ETHER;
  neighbour.arp_flags = ATF_COM | ATF_PERM;
  memcpy(neighbour.arp_ha.sa_data, "\x02\x03\x04\x05\x06\x07", 6);
  if (MAY(ioctl(asked, SIOCSARP, &neighbour), EINVAL, ENETUNREACH, ENODEV)) {
    memset(&neighbour.arp_ha.sa_data, 0, sizeof neighbour.arp_ha.sa_data);
    MUST(ioctl(asked, SIOCGARP, &neighbour));
    CHECK(neighbour.arp_ha.sa_data[5] == 7);
    MUST(ioctl(asked, SIOCDARP, &neighbour));
  } else {
    MAY(ioctl(asked, SIOCGARP, &neighbour), EINVAL, ENXIO, ENETUNREACH, ENODEV);
    MAY(ioctl(asked, SIOCDARP, &neighbour), EINVAL, ENXIO, ENETUNREACH, ENODEV);
  }
  struct rtentry route;
  memset(&route, 0, sizeof route);
  set_address(&route.rt_dst, "10.77.0.0");
  set_address(&route.rt_genmask, "255.255.0.0");
  set_address(&route.rt_gateway, "10.9.8.1");
  route.rt_flags = RTF_UP | RTF_GATEWAY;
  if (MAY(ioctl(asked, SIOCADDRT, &route), ENETUNREACH)) MUST(ioctl(asked, SIOCDELRT, &route));
  MAY(ioctl(asked, SIOCDELRT, &route), ESRCH);
}

// Requests without a size in their number, of which one writes behind a pointer in its structure.
static void bridge(void) {
  if (!free_to_change || !MAY(ioctl(asked, SIOCBRADDBR, "bridge0"), ENOPKG, ENOTTY)) return;
  int indices[8] = {0};
  const unsigned long request[3] = {1 /* BRCTL_GET_BRIDGES */, (unsigned long)indices, 8};
  CHECK(ioctl(asked, SIOCGIFBR, request) == 1 && indices[0] == get(SIOCGIFINDEX, "bridge0").ifr_ifindex);
  NOTE(indices);
  MUST(ioctl(asked, SIOCBRDELBR, "bridge0"));
}

static void list(void) {
  struct ifreq found[20];
  struct ifconf all = {.ifc_len = sizeof found, .ifc_req = found};
  memset(found, 0x77, sizeof found);
  MUST(ioctl(asked, SIOCGIFCONF, &all));
  CHECK(all.ifc_len >= 0 && all.ifc_len % (int)sizeof *found == 0);
  NOTE(found);
  struct ifconf size = {0};  // asks how much there is
  MUST(ioctl(asked, SIOCGIFCONF, &size));
  CHECK(size.ifc_len == all.ifc_len);
}

static void of_any_socket(void) {
  struct sockaddr_storage address;
  int number = 77;
  const int receiver = bound_socket(AF_INET, SOCK_DGRAM, &address);
  MUST(ioctl(receiver, SIOCSPGRP, &(int){getpid()}));
  MUST(ioctl(receiver, SIOCGPGRP, &number));
  CHECK(number == getpid());
  MUST(ioctl(receiver, FIOSETOWN, &(int){-getpgrp()}));
  MUST(ioctl(receiver, FIOGETOWN, &number));
  CHECK(number == -getpgrp());
  MUST(ioctl(receiver, FIOASYNC, &(int){0}));
  MUST(ioctl(receiver, FIONBIO, &(int){1}));
  char byte;
  FAILS(recv(receiver, &byte, 1, 0), EAGAIN);
  MUST(ioctl(receiver, FIONBIO, &(int){0}));
  MUST(ioctl(receiver, FIOCLEX));
  CHECK(fcntl(receiver, F_GETFD) == FD_CLOEXEC);
  MUST(ioctl(receiver, FIONCLEX));
  MAY(ioctl(receiver, SIOCGSTAMP, (struct timeval[1]){{0, 0}}), ENOENT);  // from here on datagrams are stamped
  CHECK(sendto(asked, "x", 1, 0, (struct sockaddr*)&address, sizeof(struct sockaddr_in)) == 1);
  CHECK(recv(receiver, &byte, 1, 0) == 1);
  const unsigned long stamps[] = {0x8906, 0x8907, 0x80108906, 0x80108907};
  for (int i = 0; i < 4; i++) {
    int64_t stamp[2] = {0, 0};
    MUST(ioctl(receiver, stamps[i], stamp));
    CHECK(stamp[0] > 1000000000);
    NOTE(stamp);
  }
  const int listener = bound_socket(AF_INET, SOCK_STREAM, &address), client = connected_to(&address);
  const int server = MUST(accept(listener, NULL, NULL));
  MUST(ioctl(server, SIOCATMARK, &number));
  CHECK(number == 0);
  MUST(ioctl(client, SIOCOUTQNSD, &number));
  CHECK(number == 0);
  int space = -1, file = -1;
  if (MAY(space = ioctl(client, SIOCGSKNS), ENOTTY)) MUST(close(space));
  int ends[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  MAY(file = ioctl(ends[0], 0x89e0 /* SIOCUNIXFILE */), ENOENT);
  CHECK(file == -1);
}

int main(void) {
  free_to_change = MAY(unshare(CLONE_NEWNET));
  asked = MUST(socket(AF_INET, SOCK_DGRAM, 0));
  if (free_to_change) {
    struct ifreq up = get(SIOCGIFFLAGS, "lo");
    up.ifr_flags |= IFF_UP;
    set(SIOCSIFFLAGS, up);
  }
  const char* name = made_interface();
  free_to_change = free_to_change && strcmp(name, "lo") != 0;
  addresses(name);
  properties(name);
  driver(name);
  neighbours_and_routes(name);
  bridge();
  list();
  of_any_socket();
  return ok("%016lx", noted);
}
