/* upstream.c - a fast scripted OpenAI upstream: one thread, epoll, HTTP/1.1 keep-alive.
 *
 * The model's name "m-<chunks>-<delay_us>" says how it answers.
 * Not streamed: about 1 kB of JSON, after <delay_us>.
 * Streamed: <chunks> SSE events, one HTTP chunk and one send() each, every one carrying
 * "@<16 letters>": CLOCK_MONOTONIC in ns at the time it was sent, a hexadecimal digit a letter from a to p
 * (as decimals it would pass for a card number, and be looked at as one); then a finish event and [DONE].
 * With delay 0 streams are served in turn, one event each, so that they interleave as real ones do.
 * A call by memory-proxy's extraction is told by its User-Agent and answered with one fact: what the user
 * said last of a ticket (bench/workload.py).
 *
 *   cc -O2 -o upstream upstream.c && ./upstream PORT
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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

#define MAXFD 20000
#define RBUF 65536

typedef struct {
    int used, streaming, chunks_left, ready, want_out, first, extraction;
    unsigned long ticket; /* that the extraction's exchanges tell of last */
    uint64_t delay_ns, due;
    char model[64];
    size_t rlen, rcap;
    char *rbuf;
    char *obuf;
    size_t olen, ocap; /* pending output */
    int plain_wait;    /* delayed non-streaming reply */
} conn;

static conn C[MAXFD];
static int ep;
static int ready_list[MAXFD], nready;
typedef struct {
    uint64_t t;
    int fd;
} hent;
static hent heap[MAXFD * 2];
static int nheap;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static void hpush(uint64_t t, int fd) {
    int i = nheap++;
    while (i && heap[(i - 1) / 2].t > t) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i].t = t;
    heap[i].fd = fd;
}
static hent hpop(void) {
    hent r = heap[0], l = heap[--nheap];
    int i = 0;
    for (;;) {
        int c = 2 * i + 1;
        if (c >= nheap) break;
        if (c + 1 < nheap && heap[c + 1].t < heap[c].t) c++;
        if (heap[c].t >= l.t) break;
        heap[i] = heap[c];
        i = c;
    }
    heap[i] = l;
    return r;
}
static void arm(int fd, int out) {
    if (C[fd].want_out == out) return;
    C[fd].want_out = out;
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | (out ? EPOLLOUT : 0), .data.fd = fd};
    epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e);
}
static void drop(int fd) {
    conn *c = &C[fd];
    if (!c->used) return;
    if (c->ready)
        for (int i = 0; i < nready; i++)
            if (ready_list[i] == fd) {
                ready_list[i] = ready_list[--nready];
                break;
            }
    for (int i = 0; i < nheap; i++)
        if (heap[i].fd == fd) heap[i].fd = -1;
    close(fd);
    char *rb = c->rbuf, *ob = c->obuf;
    size_t rc = c->rcap, oc = c->ocap;
    memset(c, 0, sizeof *c);
    c->rbuf = rb;
    c->rcap = rc;
    c->obuf = ob;
    c->ocap = oc;
}
/* 0 ok, -1 connection gone */
static int out(int fd, const char *p, size_t n) {
    conn *c = &C[fd];
    if (!c->olen) {
        ssize_t w = send(fd, p, n, MSG_NOSIGNAL);
        if (w < 0) {
            if (errno != EAGAIN) return -1;
            w = 0;
        }
        p += w;
        n -= w;
        if (!n) return 0;
    }
    if (c->olen + n > c->ocap) {
        c->ocap = (c->olen + n) * 2;
        c->obuf = realloc(c->obuf, c->ocap);
    }
    memcpy(c->obuf + c->olen, p, n);
    c->olen += n;
    arm(fd, 1);
    return 0;
}
static const char FILLER[] = "Streaming proxies forward bytes as they arrive; a memory layer reads the "
                             "conversation on its way through, keeps what is "
                             "worth keeping and brings it back when a later request needs it. This canned "
                             "answer is here to give the body a realistic "
                             "size of about one kilobyte, the size of a short paragraph of model output with "
                             "its envelope of identifiers and usage. "
                             "Nothing in it matters, except that each proxy under test has to move all of it "
                             "from one socket to another without change.";
/* What the extraction model says. A fact that the user had not said would not be stored. */
static void fact(char *content, size_t size, unsigned long ticket) {
    snprintf(content, size,
             "{\\\"facts\\\": [{\\\"type\\\": \\\"semantic\\\", \\\"content\\\": \\\"User bought ticket %lu.\\\","
             " \\\"confidence\\\": 0.9}]}",
             ticket);
}
static int plain(int fd) {
    char b[2048], r[2600], content[1024];
    conn *c = &C[fd];
    if (c->extraction)
        fact(content, sizeof content, c->ticket);
    else
        strcpy(content, FILLER);
    int n = snprintf(b, sizeof b,
                     "{\"id\":\"chatcmpl-scripted\",\"object\":\"chat.completion\","
                     "\"created\":1700000000,\"model\":\"%s\","
                     "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s\","
                     "\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
                     "\"usage\":{\"prompt_tokens\":57,\"completion_tokens\":101,\"total_tokens\":158,"
                     "\"prompt_tokens_details\":{\"cached_tokens\":0}},"
                     "\"system_fingerprint\":\"fp_mock\"}",
                     c->model, content);
    int m = snprintf(r, sizeof r,
                     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-request-id: req_mock\r\n"
                     "openai-processing-ms: 1\r\nContent-Length: %d\r\n\r\n%s",
                     n, b);
    return out(fd, r, m);
}
static const char *stamp(char letters[17]) {
    uint64_t t = now_ns();
    for (int i = 15; i >= 0; i--, t >>= 4) letters[i] = 'a' + (t & 15);
    letters[16] = 0;
    return letters;
}
static int event(int fd) { /* send the next SSE event of a stream */
    conn *c = &C[fd];
    char d[512], f[640], letters[17];
    int n = snprintf(d, sizeof d,
                     "data: "
                     "{\"id\":\"chatcmpl-scripted\",\"object\":\"chat.completion."
                     "chunk\",\"created\":1700000000,\"model\":\"%s\","
                     "\"system_fingerprint\":\"fp_mock\",\"choices\":[{\"index\":0,\"delta\":{%s\"content\":"
                     "\"@%s \"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
                     c->model, c->first ? "\"role\":\"assistant\"," : "", stamp(letters));
    c->first = 0;
    int m = snprintf(f, sizeof f, "%x\r\n%.*s\r\n", n, n, d);
    return out(fd, f, m);
}
static int finish(int fd) {
    conn *c = &C[fd];
    char d[512], f[700];
    int n = snprintf(d, sizeof d,
                     "data: "
                     "{\"id\":\"chatcmpl-scripted\",\"object\":\"chat.completion."
                     "chunk\",\"created\":1700000000,\"model\":\"%s\","
                     "\"system_fingerprint\":\"fp_mock\",\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":"
                     "null,\"finish_reason\":\"stop\"}]}\n\n",
                     c->model);
    int m = snprintf(f, sizeof f, "%x\r\n%.*s\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", n, n, d);
    c->streaming = 0;
    return out(fd, f, m);
}
static char *find(char *h, size_t n, const char *s) { return memmem(h, n, s, strlen(s)); }
/* The number behind the last s in h; 0 where there is none. h is followed by a byte that is no digit. */
static unsigned long last_number(char *h, size_t n, const char *s) {
    char *end = h + n, *number = NULL;
    for (char *p = h; (p = find(p, end - p, s)) != NULL;) number = p += strlen(s);
    return number ? strtoul(number, NULL, 10) : 0;
}
static int handle(int fd, char *head, size_t hl, char *body, size_t bl) {
    conn *c = &C[fd];
    if (!strncmp(head, "GET ", 4)) {
        const char *r = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
                        "27\r\n\r\n{\"object\":\"list\",\"data\":[]}";
        return out(fd, r, strlen(r));
    }
    int n = 64;
    long us = 0;
    strcpy(c->model, "m-64-0");
    char *p = find(body, bl, "\"model\""), *end = body + bl;
    if (p) {
        p += 7;
        while (p < end && (*p == ' ' || *p == ':')) p++;
        if (p < end && *p == '"') {
            p++;
            size_t i = 0;
            while (p < end && *p != '"' && i < sizeof c->model - 1) c->model[i++] = *p++;
            c->model[i] = 0;
            char *q = strstr(c->model, "m-");
            if (q) sscanf(q, "m-%d-%ld", &n, &us);
        }
    }
    c->delay_ns = us * 1000ull;
    c->extraction = find(head, hl, "(memory_extraction)") != NULL;
    if (c->extraction) {
        us = 0;
        c->ticket = last_number(body, bl, "I bought ticket ");
    }
    int stream = find(body, bl, "\"stream\":true") || find(body, bl, "\"stream\": true");
    if (!stream) {
        if (!us) return plain(fd);
        c->plain_wait = 1;
        hpush(now_ns() + c->delay_ns, fd);
        return 0;
    }
    static const char H[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
        "x-request-id: req_mock\r\nopenai-processing-ms: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    c->streaming = 1;
    c->first = 1;
    c->chunks_left = n;
    if (out(fd, H, sizeof H - 1)) return -1;
    if (c->delay_ns) {
        c->due = now_ns() + c->delay_ns;
        hpush(c->due, fd);
    } else {
        c->ready = 1;
        ready_list[nready++] = fd;
    }
    return 0;
}
static void readable(int fd) {
    conn *c = &C[fd];
    for (;;) {
        if (c->rcap - c->rlen < 16384) {
            c->rcap = c->rcap ? c->rcap * 2 : RBUF;
            c->rbuf = realloc(c->rbuf, c->rcap);
        }
        ssize_t n = recv(fd, c->rbuf + c->rlen, c->rcap - c->rlen, 0);
        if (n == 0) {
            drop(fd);
            return;
        }
        if (n < 0) {
            if (errno == EAGAIN) break;
            drop(fd);
            return;
        }
        c->rlen += n;
        if ((size_t)n < 16384) break;
    }
    while (c->rlen && !c->streaming && !c->plain_wait) {
        char *e = find(c->rbuf, c->rlen, "\r\n\r\n");
        if (!e) return;
        size_t hl = e - c->rbuf + 4, bl = 0;
        char *q;
        char sv = c->rbuf[hl - 1];
        c->rbuf[hl - 1] = 0;
        size_t total;
        if ((q = strcasestr(c->rbuf, "\r\ncontent-length:"))) {
            bl = strtoul(q + 17, 0, 10);
            c->rbuf[hl - 1] = sv;
            total = hl + bl;
            if (c->rlen < total) return;
        } else if (strcasestr(c->rbuf,
                              "\r\ntransfer-encoding:")) { /* chunked request: whole body must be here */
            c->rbuf[hl - 1] = sv;
            char *z = find(c->rbuf + hl, c->rlen - hl, "0\r\n\r\n");
            if (!z) return;
            bl = z - (c->rbuf + hl);
            total = hl + bl + 5;
        } else {
            c->rbuf[hl - 1] = sv;
            total = hl;
        }
        if (strncmp(c->rbuf, "GET", 3) && strncasecmp(c->rbuf, "POST", 4)) {
            drop(fd);
            return;
        }
        if (find(c->rbuf, hl, "100-continue")) {
            if (out(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25)) {
                drop(fd);
                return;
            }
        }
        if (handle(fd, c->rbuf, hl, c->rbuf + hl, bl)) {
            drop(fd);
            return;
        }
        memmove(c->rbuf, c->rbuf + total, c->rlen - total);
        c->rlen -= total;
    }
}
static void writable(int fd) {
    conn *c = &C[fd];
    ssize_t w = send(fd, c->obuf, c->olen, MSG_NOSIGNAL);
    if (w < 0) {
        if (errno != EAGAIN) drop(fd);
        return;
    }
    memmove(c->obuf, c->obuf + w, c->olen - w);
    c->olen -= w;
    if (!c->olen) arm(fd, 0);
}
int main(int argc, char **argv) {
    int port = argc > 1 ? atoi(argv[1]) : 9100, one = 1;
    signal(SIGPIPE, SIG_IGN);
    int ls = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(ls, (void *)&a, sizeof a) || listen(ls, 4096)) {
        perror("bind");
        return 1;
    }
    ep = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = ls}, ev[512];
    epoll_ctl(ep, EPOLL_CTL_ADD, ls, &e);
    fprintf(stderr, "mock on 127.0.0.1:%d\n", port);
    for (;;) {
        struct timespec ts = {0, 0}, *tp = NULL;
        if (nready)
            tp = &ts;
        else if (nheap) {
            uint64_t t = now_ns(), d = heap[0].t > t ? heap[0].t - t : 0;
            ts.tv_sec = d / 1000000000ull;
            ts.tv_nsec = d % 1000000000ull;
            tp = &ts;
        }
        int n = epoll_pwait2(ep, ev, 512, tp, NULL);
        for (int i = 0; i < n; i++) {
            int fd = ev[i].data.fd;
            if (fd == ls) {
                int k;
                while ((k = accept4(ls, 0, 0, SOCK_NONBLOCK)) >= 0) {
                    if (k >= MAXFD) {
                        close(k);
                        continue;
                    }
                    setsockopt(k, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    C[k].used = 1;
                    struct epoll_event x = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = k};
                    epoll_ctl(ep, EPOLL_CTL_ADD, k, &x);
                }
                continue;
            }
            if (!C[fd].used) continue;
            if (ev[i].events & (EPOLLHUP | EPOLLERR)) {
                drop(fd);
                continue;
            }
            if (ev[i].events & (EPOLLIN | EPOLLRDHUP)) readable(fd);
            if (C[fd].used && (ev[i].events & EPOLLOUT)) writable(fd);
        }
        if (nready) { /* delay 0: one event per stream per turn */
            int snap[MAXFD], k = nready;
            memcpy(snap, ready_list, k * sizeof(int));
            for (int i = 0; i < k; i++) {
                int fd = snap[i];
                conn *c = &C[fd];
                if (!c->used || !c->ready || c->olen) continue;
                int r;
                if (c->chunks_left) {
                    c->chunks_left--;
                    r = event(fd);
                } else {
                    c->ready = 0;
                    for (int j = 0; j < nready; j++)
                        if (ready_list[j] == fd) {
                            ready_list[j] = ready_list[--nready];
                            break;
                        }
                    r = finish(fd);
                }
                if (r)
                    drop(fd);
                else if (!c->ready && c->rlen)
                    readable(fd);
            }
        }
        uint64_t t = nheap ? now_ns() : 0;
        while (nheap && heap[0].t <= t) {
            hent h = hpop();
            if (h.fd < 0) continue;
            conn *c = &C[h.fd];
            if (!c->used) continue;
            int r = 0;
            if (c->plain_wait) {
                c->plain_wait = 0;
                r = plain(h.fd);
            } else if (c->streaming && c->chunks_left) {
                c->chunks_left--;
                r = event(h.fd);
                c->due += c->delay_ns;
                hpush(c->due, h.fd);
            } else if (c->streaming)
                r = finish(h.fd);
            if (r) drop(h.fd);
        }
    }
}
