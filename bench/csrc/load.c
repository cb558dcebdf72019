/* load.c - closed-loop HTTP/1.1 load client for JSON and SSE: one thread, epoll.
 *
 *   cc -O2 -o load load.c
 *   ./load -p PORT -t PATH -b BODIES [-f FIRST] [-c CONNECTIONS] [-d SECONDS] [-s STAGGER_MS] [-H 'K: V']...
 *
 * BODIES holds one request body a line; the connections take them in turn, from line FIRST on.
 * Prints one JSON object; latencies in microseconds. "chunk" is the time from the upstream's send() of an
 * event (its stamp, same clock) to this client's recv(). Requests in flight when the time is up are
 * not counted, their chunks are. "injected" and "degraded" count answers by their X-Memory-Status.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    uint64_t *v;
    size_t n, cap;
} vec;
static void vp(vec *a, uint64_t x) {
    if (a->n == a->cap) {
        a->cap = a->cap ? a->cap * 2 : 4096;
        a->v = realloc(a->v, a->cap * 8);
    }
    a->v[a->n++] = x;
}
static int cmp(const void *a, const void *b) {
    uint64_t x = *(uint64_t *)a, y = *(uint64_t *)b;
    return x < y ? -1 : x > y;
}
static void pr(const char *name, vec *a) {
    if (!a->n) {
        printf(",\"%s\":null", name);
        return;
    }
    qsort(a->v, a->n, 8, cmp);
    double s = 0;
    for (size_t i = 0; i < a->n; i++) s += a->v[i];
    printf(",\"%s\":{\"n\":%zu,\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f}", name,
           a->n, s / a->n / 1e3, a->v[a->n / 2] / 1e3, a->v[(size_t)(a->n * .9)] / 1e3,
           a->v[(size_t)(a->n * .99)] / 1e3, a->v[a->n - 1] / 1e3);
}
enum { HEAD, BODY, CSIZE, CDATA, CCRLF, CTRAIL };
typedef struct {
    int fd, st, status, gotfirst, close_after, chunked, dig, until_close;
    char line[8192];
    int ll;
    long left;
    uint64_t t0, stamp, start_at;
} conn;
typedef struct {
    char *bytes;
    size_t size;
} request;
static int ep, port;
static request *requests;
static size_t count, next_request;
static vec lat, ttfb, ttft, chl;
static uint64_t chunks, reads, bytes, ok, bad, connerr, injected, degraded;
static int errstatus[600];
static struct sockaddr_in addr;
static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void do_connect(conn *c, int slot) {
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (void *)&addr, sizeof addr)) {
        connerr++;
        close(c->fd);
        c->fd = -1;
        usleep(1000);
        return;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = slot};
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
}
static void begin(conn *c, int slot) {
    if (c->fd >= 0 && c->close_after) {
        close(c->fd);
        c->fd = -1;
    }
    uint64_t t = now_ns();
    if (c->fd < 0) do_connect(c, slot);
    if (c->fd < 0) return;
    c->st = HEAD;
    c->ll = 0;
    c->status = 0;
    c->gotfirst = c->close_after = c->chunked = c->dig = c->until_close = 0;
    c->left = 0;
    c->stamp = 0;
    c->t0 = t;
    request *r = &requests[next_request++ % count];
    size_t off = 0;
    while (off < r->size) {
        ssize_t w = send(c->fd, r->bytes + off, r->size - off, MSG_NOSIGNAL);
        if (w < 0) break;
        off += w;
    }
}
static void done(conn *c, int slot, uint64_t t, int good) {
    if (good && c->status == 200) {
        ok++;
        vp(&lat, t - c->t0);
    } else {
        bad++;
        if (c->status > 0 && c->status < 600)
            errstatus[c->status]++;
        else
            errstatus[0]++;
    }
    if (!good) c->close_after = 1;
    begin(c, slot);
}
static void payload(conn *c, const char *p, size_t n, uint64_t t) {
    bytes += n;
    if (!c->gotfirst && c->status == 200) c->gotfirst = 1, vp(&ttfb, t - c->t0);
    const char *e = p + n;
    while (p < e) {
        if (c->dig) {
            if (*p >= 'a' && *p <= 'p') {
                c->stamp = c->stamp * 16 + (*p - 'a');
                p++;
                if (++c->dig == 17) {
                    c->dig = 0;
                    chunks++;
                    if (t > c->stamp) vp(&chl, t - c->stamp);
                    if (c->gotfirst == 1) {
                        c->gotfirst = 2;
                        vp(&ttft, t - c->t0);
                    }
                }
            } else
                c->dig = 0;
            continue;
        }
        p = memchr(p, '@', e - p);
        if (!p) break;
        p++;
        c->dig = 1;
        c->stamp = 0;
    }
}
static void feed(conn *c, int slot, char *p, ssize_t n, uint64_t t) {
    char *e = p + n;
    reads++;
    while (p < e) switch (c->st) {
        case HEAD: {
            int k = e - p;
            if (k > (int)sizeof c->line - 1 - c->ll) k = sizeof c->line - 1 - c->ll;
            int before = c->ll;
            memcpy(c->line + c->ll, p, k);
            c->ll += k;
            c->line[c->ll] = 0;
            char *z = strstr(c->line, "\r\n\r\n");
            if (!z) {
                p += k;
                if (c->ll >= (int)sizeof c->line - 1) {
                    done(c, slot, t, 0);
                    return;
                }
                break;
            }
            p += (z - c->line) + 4 - before;
            z[2] = 0;
            char *q;
            c->status = atoi(c->line + 9);
            c->left = -1;
            if ((q = strcasestr(c->line, "\r\ncontent-length:"))) c->left = atol(q + 17);
            if (strcasestr(c->line, "\r\ntransfer-encoding: chunked")) c->chunked = 1;
            if (strcasestr(c->line, "\r\nconnection: close")) c->close_after = 1;
            if (strcasestr(c->line, "\r\nx-memory-status: injected")) injected++;
            if (strcasestr(c->line, "\r\nx-memory-status: degraded")) degraded++;
            c->ll = 0;
            if (c->chunked)
                c->st = CSIZE;
            else {
                c->st = BODY;
                if (c->left < 0) c->until_close = 1;
                if (!c->left) {
                    done(c, slot, t, 1);
                    return;
                }
            }
            break;
        }
        case BODY: {
            long k = e - p;
            if (!c->until_close && k > c->left) k = c->left;
            payload(c, p, k, t);
            p += k;
            if (!c->until_close && !(c->left -= k)) {
                done(c, slot, t, 1);
                return;
            }
            break;
        }
        case CSIZE:
            if (*p == '\n') {
                c->line[c->ll] = 0;
                c->left = strtol(c->line, 0, 16);
                c->ll = 0;
                c->st = c->left ? CDATA : CTRAIL;
            } else if (c->ll < 30)
                c->line[c->ll++] = *p;
            p++;
            break;
        case CDATA: {
            long k = e - p;
            if (k > c->left) k = c->left;
            payload(c, p, k, t);
            p += k;
            if (!(c->left -= k)) c->st = CCRLF;
            break;
        }
        case CCRLF:
            if (*p++ == '\n') c->st = CSIZE;
            break;
        case CTRAIL:
            if (*p == '\n') {
                if (c->ll == 0) {
                    done(c, slot, t, 1);
                    return;
                }
                c->ll = 0;
            } else if (*p != '\r')
                c->ll++;
            p++;
            break;
        }
}
/* One request a line of the file. Returns 0 if there is at least one. */
static int read_bodies(const char *file, const char *path, const char *headers) {
    FILE *f = fopen(file, "rb");
    if (!f) return -1;
    char *line = NULL;
    size_t cap = 0, slots = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, f)) > 0) {
        if (line[n - 1] == '\n') n--;
        if (count == slots) {
            slots = slots ? slots * 2 : 64;
            requests = realloc(requests, slots * sizeof *requests);
        }
        request *r = &requests[count++];
        r->bytes = malloc(n + 6000);
        r->size = sprintf(r->bytes,
                          "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer "
                          "sk-bench\r\nContent-Type: application/json\r\nAccept: */*\r\n"
                          "User-Agent: load/1\r\n%sContent-Length: %zd\r\n\r\n",
                          path, port, headers, n);
        memcpy(r->bytes + r->size, line, n);
        r->size += n;
    }
    free(line);
    fclose(f);
    return count ? 0 : -1;
}
int main(int argc, char **argv) {
    int conc = 1, o, stagger = 0;
    double dur = 5;
    const char *path = "/", *bodies = NULL;
    char headers[4096] = "";
    while ((o = getopt(argc, argv, "p:t:c:d:b:f:H:s:")) != -1) switch (o) {
        case 'p':
            port = atoi(optarg);
            break;
        case 't':
            path = optarg;
            break;
        case 'c':
            conc = atoi(optarg);
            break;
        case 'd':
            dur = atof(optarg);
            break;
        case 'b':
            bodies = optarg;
            break;
        case 'f':
            next_request = strtoull(optarg, 0, 10);
            break;
        case 'H':
            strcat(headers, optarg);
            strcat(headers, "\r\n");
            break;
        case 's':
            stagger = atoi(optarg);
            break;
        default:
            return 2;
        }
    if (!bodies || !port || read_bodies(bodies, path, headers)) {
        fprintf(stderr, "load: -p PORT and -b BODIES are needed\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    addr = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ep = epoll_create1(0);
    conn *C = calloc(conc, sizeof *C);
    struct epoll_event ev[512];
    static char buf[1 << 18];
    uint64_t T0 = now_ns(), T1 = T0 + (uint64_t)(dur * 1e9);
    int live = 0;
    for (int i = 0; i < conc; i++) {
        C[i].fd = -1;
        C[i].start_at = T0 + (conc > 1 ? (uint64_t)stagger * 1000000ull * i / conc : 0);
    }
    uint64_t t = now_ns();
    while (t < T1) {
        while (live < conc && C[live].start_at <= t) {
            begin(&C[live], live);
            live++;
        }
        int to = live < conc ? 1 : 20;
        int n = epoll_wait(ep, ev, 512, to);
        for (int i = 0; i < n; i++) {
            int s = ev[i].data.u32;
            conn *c = &C[s];
            if (c->fd < 0) continue;
            ssize_t k = recv(c->fd, buf, sizeof buf, MSG_DONTWAIT);
            uint64_t tn = now_ns();
            if (k < 0 && errno == EAGAIN) continue;
            if (k <= 0) {
                if (c->st == BODY && c->until_close) {
                    c->close_after = 1;
                    done(c, s, tn, 1);
                } else
                    done(c, s, tn, 0);
                continue;
            }
            feed(c, s, buf, k, tn);
        }
        for (int i = 0; n == 0 && i < live; i++)
            if (C[i].fd < 0) begin(&C[i], i);
        t = now_ns();
    }
    double el = (now_ns() - T0) / 1e9;
    printf("{\"elapsed\":%.3f,\"conc\":%d,\"ok\":%" PRIu64 ",\"bad\":%" PRIu64 ",\"connerr\":%" PRIu64, el,
           conc, ok, bad, connerr);
    printf(",\"injected\":%" PRIu64 ",\"degraded\":%" PRIu64 ",\"rps\":%.1f", injected, degraded, ok / el);
    printf(",\"chunks\":%" PRIu64 ",\"chunks_s\":%.1f,\"reads\":%" PRIu64 ",\"bytes\":%" PRIu64, chunks,
           chunks / el, reads, bytes);
    pr("lat", &lat);
    pr("ttfb", &ttfb);
    pr("ttft", &ttft);
    pr("chunk", &chl);
    printf(",\"err\":{");
    int f = 1;
    for (int i = 0; i < 600; i++)
        if (errstatus[i]) {
            printf("%s\"%d\":%d", f ? "" : ",", i, errstatus[i]);
            f = 0;
        }
    printf("}}\n");
    return 0;
}
