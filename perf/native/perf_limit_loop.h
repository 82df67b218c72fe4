/* The limit server's thread: accepting, receiving, parking, sending. See perf_limit.h for the work. */
#ifndef PERF_LIMIT_LOOP_H
#define PERF_LIMIT_LOOP_H

#include "perf_limit.h"

#define PM_RECEIVE_BYTES (256u << 10)
#define PM_LISTENER UINT32_MAX

static void pm_close(pm_server *s, pm_conn *c) {
    if (c->parked_until_ns) s->n_parked--;
    close(c->fd);
    free(c->in);
    free(c->out);
    memset(c, 0, sizeof *c);
    c->fd = -1;
}

static void pm_accept(pm_server *s) {
    for (;;) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
        if (fd < 0) return;
        uint32_t at = 0;
        while (at < PM_CONNS_MAX && s->conns[at] && s->conns[at]->fd >= 0) at++;
        if (at < PM_CONNS_MAX && !s->conns[at]) s->conns[at] = calloc(1, sizeof(pm_conn));
        if (at == PM_CONNS_MAX || !s->conns[at]) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        s->conns[at]->fd = fd;
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = at};
        if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &event)) pm_close(s, s->conns[at]);
    }
}

/* Every whole frame that has come, as long as the answers leave. -1: close. */
static int pm_take_frames(pm_server *s, pm_conn *c) {
    size_t at = 0;
    if (c->first_segment < c->n_segments) return 0;
    while (c->in_bytes - at >= 4) {
        size_t size = pw_load32(c->in + at), here = c->in_bytes - at - 4;
        if (size < 8 || size > PM_FRAME_BYTES_MAX) return -1;
        if (here < size) break;
        int was_parked = c->parked_until_ns != 0;
        int status = pm_request(s, c, c->in + at + 4, size);
        if (status < 0) return -1;
        s->n_parked += (status == 1) - was_parked;
        if (status == 1) break;
        c->parked_until_ns = 0;
        at += size + 4;
        /* A file slice leaves at once; small answers wait for their neighbours. */
        if (c->n_segments > 1 || c->out_bytes > PM_RECEIVE_BYTES) {
            if (pm_flush(c)) return -1;
            if (c->n_segments) break;
        }
    }
    if (at) {
        memmove(c->in, c->in + at, c->in_bytes - at);
        c->in_bytes -= at;
    }
    return pm_flush(c);
}

static int pm_in_room(pm_conn *c) {
    size_t wanted = PM_RECEIVE_BYTES;
    if (c->in_bytes >= 4 && pw_load32(c->in) <= PM_FRAME_BYTES_MAX && pw_load32(c->in) + 4 > wanted)
        wanted = pw_load32(c->in) + 4;
    if (c->in_bytes == c->in_room && wanted <= c->in_room) wanted = c->in_room * 2;
    if (wanted <= c->in_room) return 0;
    if (wanted > 2 * (size_t)PM_FRAME_BYTES_MAX) return -1;
    uint8_t *grown = realloc(c->in, wanted);
    if (!grown) return -1;
    c->in = grown;
    c->in_room = wanted;
    return 0;
}

static int pm_receive(pm_server *s, pm_conn *c) {
    for (;;) {
        if (pm_in_room(c)) return -1;
        size_t wanted = c->in_room - c->in_bytes;
        ssize_t n = recv(c->fd, c->in + c->in_bytes, wanted, MSG_DONTWAIT);
        if (n == 0) return -1;
        if (n < 0) {
            if (errno == EINTR) continue;
            return errno == EAGAIN ? 0 : -1;
        }
        c->in_bytes += (size_t)n;
        if (!c->parked_until_ns && pm_take_frames(s, c)) return -1;
        if ((size_t)n < wanted) return 0;
    }
}

/* Parked fetches are few: after an append, or when one is due, all of them are tried again. */
static int64_t pm_unpark(pm_server *s, int appended) {
    int64_t wait_ms = -1, now_ns = pm_now_ns();
    int left = s->n_parked;
    for (uint32_t i = 0; i < PM_CONNS_MAX && left > 0 && s->conns[i]; i++) {
        pm_conn *c = s->conns[i];
        if (c->fd < 0 || !c->parked_until_ns) continue;
        left--;
        if ((appended || now_ns >= c->parked_until_ns) && pm_take_frames(s, c)) {
            pm_close(s, c);
            continue;
        }
        if (!c->parked_until_ns) continue;
        int64_t due_ms = (c->parked_until_ns - now_ns + 999999) / 1000000;
        if (wait_ms < 0 || due_ms < wait_ms) wait_ms = due_ms < 0 ? 0 : due_ms;
    }
    return wait_ms;
}

/* Serves until the process is ended. -1 with errno where it cannot begin. */
static int pm_serve(int listen_fd, const char *directory) {
    struct epoll_event events[PM_EVENTS_PER_TURN];
    pm_server *s = calloc(1, sizeof *s);
    if (!s) return -1;
    pc_init();
    s->listen_fd = listen_fd;
    s->directory = directory;
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event listener = {.events = EPOLLIN, .data.u32 = PM_LISTENER};
    fcntl(listen_fd, F_SETFL, fcntl(listen_fd, F_GETFL) | O_NONBLOCK);
    if (s->epoll_fd < 0 || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, listen_fd, &listener)) return -1;
    int64_t wait_ms = -1;
    for (;;) {
        int n = epoll_wait(s->epoll_fd, events, PM_EVENTS_PER_TURN, (int)wait_ms);
        if (n < 0 && errno != EINTR) return -1;
        s->appended = 0;
        for (int i = 0; i < n; i++) {
            uint32_t at = events[i].data.u32;
            if (at == PM_LISTENER) {
                pm_accept(s);
                continue;
            }
            pm_conn *c = s->conns[at];
            if (c->fd < 0) continue;
            int bad = 0;
            if (events[i].events & EPOLLOUT && c->n_segments) {
                bad = pm_flush(c);
                if (!bad && !c->n_segments) bad = pm_take_frames(s, c);
            }
            if (!bad && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) bad = pm_receive(s, c);
            if (bad) pm_close(s, c);
        }
        wait_ms = s->n_parked ? pm_unpark(s, s->appended) : -1;
    }
}

#endif
